"""What attribution knows of a change, and what it says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.detectors.kernels.comparison import ProfileComparison
from cyclewatch.detectors.load.physical_bound import Load
from cyclewatch.detectors.phases import Floats, Integers


class Status(StrEnum):
    """How a claim is known."""

    MEASURED = "measured"
    INFERRED = "inferred"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class StageMeans:
    """Mean cycles of one load bucket over some windows; nanoseconds. `on_cpu_ratio` may be NaN.

    `load` is the mean load, where a cycle is one step of it.
    """

    bucket: int
    count: int
    stages_ns: tuple[float, ...]
    on_cpu_ratio: float
    load: Load | None = None


@dataclass(frozen=True)
class Trace:
    """Values of one quantity around a change, in order of time.

    `name` is the quantity's (`collectors/quantities.py`), `labels` say of what it was read; `at_ns` (UTC) and `values`
    have shape (n,), n at least 1. Values may be NaN.
    """

    name: str
    labels: Mapping[str, str]
    at_ns: Integers
    values: Floats


@dataclass(frozen=True)
class Event:
    """Something about the server or its node changed, or happened; then `after` says what."""

    at_ns: int
    kind: str
    subject: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The event as a sentence."""
        if self.kind == "restart":
            return "the server was restarted"
        if not self.before and self.kind not in _LEADS_FROM_ONE_VALUE_TO_ANOTHER:
            return f"{self.subject}: {self.after}"
        return f"{self.subject} changed from {self.before or 'nothing'} to {self.after or 'nothing'}"


_LEADS_FROM_ONE_VALUE_TO_ANOTHER = frozenset({"version", "model", "argument", "environment"})


@dataclass(frozen=True)
class RankCycles:
    """Cycles of the same phase on another rank of the same server, in the same stretches of time."""

    rank: str
    before: Sequence[StageMeans]
    after: Sequence[StageMeans]


@dataclass(frozen=True)
class Evidence:
    """What is known of the time before and after a change that began at `started_at_ns` (UTC).

    `before` and `after` are the cycles of the series that changed, one of `rank`; `synchronous` tells that the forward
    pass ran inside `run_batch`, on a CPU. `levels` is that series itself as it was judged, log(measured / expected) a
    window. `traces` are all readings of the server and its node in both stretches, `events` what happened close to the
    beginning. `kernels` compares a profile taken before with one taken after. `slower` is how many times as long a step
    became, for a change of which no cycles are at hand.
    What was not seen is missing, never zero.
    """

    started_at_ns: int
    rank: str
    before: Sequence[StageMeans]
    after: Sequence[StageMeans]
    synchronous: bool
    levels: Trace | None = None
    traces: Sequence[Trace] = ()
    events: Sequence[Event] = ()
    ranks: Sequence[RankCycles] = ()
    kernels: ProfileComparison | None = None
    slower: float | None = None


@dataclass(frozen=True)
class Cause:
    """A candidate for what is behind a change. `share` is its part of the slowdown, None where none can be given.

    `device` is what of its kind it concerns ("gpu3", "tp1", a disk), "" where there is but one.
    """

    kind: str
    subject: str
    score: float
    share: float | None
    status: Status
    evidence: tuple[str, ...]
    device: str = ""
