"""Running collectors: each on its own, timed, its failures kept to itself."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from cyclewatch.collectors.base import Collector, Now
from cyclewatch.collectors.records import Failure, NoData, Reading, Sample


@dataclass(frozen=True)
class Outcome:
    """How one collection went.

    `failures` are sentences; `no_data` says why there was nothing, or is empty; `error` is what the collector
    raised, with its traceback.
    """

    collector: str
    duration_s: float
    samples: int
    failures: tuple[str, ...]
    no_data: str
    error: Exception | None = None


class Runner:
    """Runs one collector: never twice at a time, and never lets an exception out."""

    def __init__(
        self,
        collector: Collector,
        clock: Callable[[], Now],
        take: Callable[[Sample], None],
        report: Callable[[Outcome], None],
    ) -> None:
        self.collector = collector
        self.deadline_s = max(2 * collector.interval_s, 5.0)
        self._labels = {quantity.name: set(quantity.labels) for quantity in collector.quantities}
        self._clock = clock
        self._take = take
        self._report = report
        self._busy = threading.Lock()
        self._started_ns: int | None = None

    def run(self) -> bool:
        """Collect once; False where the run before has not ended."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._started_ns = self._clock().monotonic_ns
            self._collect()
        finally:
            self._started_ns = None
            self._busy.release()
        return True

    def overdue(self) -> bool:
        """Whether a collection is under way past its deadline; it cannot be cancelled, only reported."""
        started_ns = self._started_ns
        return started_ns is not None and self._clock().monotonic_ns - started_ns > self.deadline_s * 1e9

    def close(self, timeout_s: float) -> bool:
        """Let no further run begin, and close the collector; False where the run under way did not end in time."""
        if not self._busy.acquire(timeout=timeout_s):
            return False
        self.collector.close()
        return True

    def _declared(self, reading: Reading) -> bool:
        labels = self._labels.get(reading.name)
        return labels is not None and labels.issuperset(name for name, _ in reading.labels)

    def _collect(self) -> None:
        start = self._clock()
        failures: list[str] = []
        no_data = ""
        count = 0
        raised: Exception | None = None
        try:
            for sample in self.collector.collect(start):
                if isinstance(sample, Failure):
                    failures.append(sample.reason)
                elif isinstance(sample, NoData):
                    no_data = sample.reason
                elif isinstance(sample, Reading) and not self._declared(sample):
                    failures.append(f"{sample.name} with labels {dict(sample.labels)} is not declared by the collector")
                else:
                    count += 1
                    self._take(sample)
        except Exception as error:  # noqa: BLE001 (the seam: whatever a collector does must not stop the others)
            failures.append(f"{type(error).__name__}: {error}")
            raised = error
        duration_s = (self._clock().monotonic_ns - start.monotonic_ns) / 1e9
        self._report(Outcome(self.collector.name, duration_s, count, tuple(failures), no_data, raised))
