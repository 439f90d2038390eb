"""What a comparison says, whatever was compared and however it is shown."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cyclewatch.collectors.suspicion_records import SuspicionRow
from cyclewatch.detectors.attribution import BoundSplit, Cause
from cyclewatch.detectors.kernels.comparison import ProfileComparison
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.split_part import SplitPart
from cyclewatch.detectors.statistics.sketch import merge, quantiles

NO_COMMON_LOAD = "no load was seen on both sides, so the time cannot be split"


@dataclass(frozen=True)
class Subject:
    """One of the two things that are compared: what people called it, what it is, and what is known of it, in order."""

    label: str
    kind: str
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Cycles:
    """Times of many cycles: how many, their mean, and what has their quantiles: a sketch, or the times themselves."""

    count: int
    mean_us: float
    times: bytes | Floats | None = field(compare=False)
    """A sketch, or times in microseconds, shape (n,), n at least 1; None where only the mean is known."""

    def quantiles_us(self, parts: Iterable[float]) -> Floats:
        """The time below which each of `parts` of the cycles lies, shape (n,); NaN where that is not known."""
        if self.times is None:
            return np.full(len(list(parts)), np.nan)
        if isinstance(self.times, bytes):
            return np.array(quantiles(self.times, tuple(parts))) / 1e3
        exact: Floats = np.quantile(self.times, tuple(parts))
        return exact


def merged(parts: Iterable[tuple[int, float, bytes]]) -> Cycles | None:
    """The cycles of several windows: count, mean in nanoseconds and sketch of each; None for none."""
    known = list(parts)
    count = sum(number for number, _, _ in known)
    if not count:
        return None
    mean_ns = math.fsum(number * mean_ns for number, mean_ns, _ in known) / count
    return Cycles(count, mean_ns / 1e3, merge(sketch for _, _, sketch in known))


def growth(parts: Sequence[SplitPart]) -> float | None:
    """How many times as long the whole of a split became; None where there is none."""
    before_us, after_us = math.fsum(one.before_us for one in parts), math.fsum(one.after_us for one in parts)
    return after_us / before_us if before_us > 0 else None


@dataclass(frozen=True)
class CyclePair:
    """The cycles of one kind of work before and after; None on the side that has none.

    `alike` tells that a cycle is the same thing on both sides, so that a change in percent means something.
    """

    name: str
    before: Cycles | None
    after: Cycles | None
    alike: bool = True

    @property
    def common_us(self) -> float:
        """Time of the cycles on the side that has less of it."""
        return min(one.count * one.mean_us if one else 0.0 for one in (self.before, self.after))


@dataclass(frozen=True)
class Comparison:
    """Two subjects side by side.

    Where `comparable` is false, a difference is no regression; `warnings` say why, and what else to know. `findings`
    are sentences, the most important first. `slower` is how many times as long a step became, as far as it can be
    told. `split` are the parts of the time that `split_of` names, `bound` what that time takes at least.
    """

    before: Subject
    after: Subject
    comparable: bool
    warnings: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    slower: float | None = None
    ci: tuple[float, float] | None = None
    """95 % interval of the effect (slower - 1), where there are windows to tell it."""
    cycles: tuple[CyclePair, ...] = ()
    split_of: str = ""
    split: tuple[SplitPart, ...] = ()
    bound: BoundSplit | None = None
    kernels: ProfileComparison | None = None
    suspicions: tuple[SuspicionRow, ...] = ()
    causes: tuple[Cause, ...] = ()
