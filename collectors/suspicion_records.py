"""What a suspicion report tells: the record types, apart from how they are read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """What a report says of one of its two runs; times in microseconds, None where it says nothing."""

    name: str
    cycles: int | None = None
    mean_cycle_us: float | None = None
    cycle_times_us: tuple[float, ...] = ()
    """Durations of its cycles, the longest first, as the report lists them."""


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity before and after, and the tests of the difference; NaN where it is not told.

    `z` is (after - before) / standard deviation before; `p_value` is of Welch's t-test, `u_p_value` of the U test of
    Mann and Whitney.
    """

    before: float
    after: float
    delta: float
    z: float
    p_value: float
    u_p_value: float


@dataclass(frozen=True, slots=True)
class SuspicionRow:
    """One (function, metric, device): what changed in it, and how suspicious that looks.

    `beta` is the share of the cycle time that the function took, in percent; it may exceed 100 where several threads
    run. `mu` is the mean of the metric while the function ran, in units of its own; `log_z` is the z-score of
    log(1 + mu). `score` is |delta of beta| * (|z of beta| + |log_z|).
    """

    function: str
    metric: str
    device: str
    score: float
    beta: Change
    mu: Change
    log_z: float


@dataclass(frozen=True, slots=True)
class SuspicionReport:
    """A comparison of two runs as a report has it: `before` is the run of its first columns."""

    title: str
    before: Side
    after: Side
    rows: tuple[SuspicionRow, ...]
    warnings: tuple[str, ...] = ()
