"""A GPU collector on a recorded door and a clock that the test moves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.collector import DEADLINE_S, GpuCollector
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.gpu.recording import RecordedDoor, Recording
from cyclewatch.collectors.records import Fact, Happening, Reading, Sample
from cyclewatch.collectors.runner import Outcome, Runner
from cyclewatch.config.settings import Gpu

RECORDINGS = Path(__file__).parent / "fixtures/nvml"
NAMES = ("h200", "a100", "h100-mig", "lost-gpu", "old-driver")
SECOND = 1_000_000_000
ANSWERS_AT_ONCE = 0.005
"""Seconds that the events' thread waits for one, so that closing is quick."""


def recording(name: str) -> Recording:
    return Recording.load(RECORDINGS / f"{name}.json")


class Lab:
    """The collector runs as in the daemon, through its runner; time is what the test says."""

    def __init__(
        self,
        door: NvmlDoor,
        discovery: Discovery | None = None,
        proc: Path = Path("/nonexistent"),
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.now_ns = 1000 * SECOND
        self.collector = GpuCollector(
            Gpu(),
            discovery or Discovery(()),
            proc,
            door,
            lambda: self.now_ns,
            deadline_s=deadline_s,
            event_wait_s=ANSWERS_AT_ONCE,
        )
        self.samples: list[Sample] = []
        self.outcomes: list[Outcome] = []
        self._runner = Runner(
            self.collector, lambda: Now(self.now_ns, self.now_ns), self.samples.append, self.outcomes.append
        )

    def turn(self, after_s: float = 2.0) -> "Lab":
        """Let time pass, and collect; `samples` and `outcome` are of this turn alone."""
        self.now_ns += int(after_s * SECOND)
        self.samples.clear()
        assert self._runner.run()
        return self

    @property
    def outcome(self) -> Outcome:
        return self.outcomes[-1]

    def values(self, name: str, **labels: str) -> list[float]:
        """Values of the readings of this turn that have these labels."""
        return [
            sample.value
            for sample in self.samples
            if isinstance(sample, Reading) and sample.name == name and labels.items() <= dict(sample.labels).items()
        ]

    def value(self, name: str, **labels: str) -> float:
        (value,) = self.values(name, **labels)
        return value

    def facts(self) -> dict[str, str]:
        return {sample.subject: sample.value for sample in self.samples if isinstance(sample, Fact)}

    def happenings(self) -> list[Happening]:
        return [sample for sample in self.samples if isinstance(sample, Happening)]


@contextmanager
def lab(
    door: NvmlDoor | str,
    discovery: Discovery | None = None,
    proc: Path = Path("/nonexistent"),
    deadline_s: float = DEADLINE_S,
) -> Iterator[Lab]:
    """A lab, closed in the end; a name stands for the recording of that name."""
    one = Lab(RecordedDoor(recording(door)) if isinstance(door, str) else door, discovery, proc, deadline_s)
    try:
        yield one
    finally:
        one.collector.close()


def told(samples: Sequence[Sample], outcome: Outcome) -> list[str]:
    """Samples and what the runner made of them, as lines; XIDs come when they come, and are left out."""
    lines = []
    for sample in samples:
        if isinstance(sample, Reading):
            labels = ",".join(f"{name}={value}" for name, value in sample.labels)
            lines.append(f"{sample.target} {sample.name}{{{labels}}} {sample.value:.6g}")
        elif isinstance(sample, Fact):
            lines.append(f"{sample.target} {sample.subject} = {sample.value}")
        else:
            assert isinstance(sample, Happening)
    lines += [f"failure: {failure}" for failure in outcome.failures]
    return [*lines, *([f"no data: {outcome.no_data}"] if outcome.no_data else [])]
