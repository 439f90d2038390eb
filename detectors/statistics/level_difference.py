"""How much slower one stretch of windows is than another at the same load, with an interval that allows for noise.

Much simpler than the daemon's own test, for stretches that somebody chose: no place of a change is looked for. The
load is taken out by its buckets alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.robust import long_run_sigma

_WINDOWS_MIN = 4
_Z = 1.96
_MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal data."""


class Cell(Protocol):
    """The cycles of one load bucket in one window."""

    @property
    def bucket(self) -> int:
        """Of the load."""
        ...

    @property
    def count(self) -> int:
        """How many cycles."""
        ...

    @property
    def mean_ns(self) -> float:
        """Their mean time."""
        ...


@dataclass(frozen=True, slots=True)
class LevelDifference:
    """Median level after over before, minus 1, with its 95 % interval."""

    effect: float
    ci: tuple[float, float]

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves no difference out."""
        return not self.ci[0] <= 0 <= self.ci[1]


def level_difference(before: Iterable[Sequence[Cell]], after: Iterable[Sequence[Cell]]) -> LevelDifference | None:
    """The difference of two stretches, given as the cells of each window in order of time.

    None where fewer than four windows on a side have a load that both sides have.
    """
    old, new = list(before), list(after)
    reference = _bucket_means(cell for cells in old for cell in cells)
    levels = _levels(old, reference), _levels(new, reference)
    if min(map(len, levels)) < _WINDOWS_MIN:
        return None
    errors = (long_run_sigma(side - np.median(side)) * _MEDIAN_ERROR / math.sqrt(len(side)) for side in levels)
    error = math.hypot(*errors)
    difference = float(np.median(levels[1]) - np.median(levels[0]))
    low, high = difference - _Z * error, difference + _Z * error
    return LevelDifference(math.expm1(difference), (math.expm1(low), math.expm1(high)))


def _bucket_means(cells: Iterable[Cell]) -> Mapping[int, float]:
    sums: dict[int, tuple[int, float]] = {}
    for cell in cells:
        count, time_ns = sums.get(cell.bucket, (0, 0.0))
        sums[cell.bucket] = count + cell.count, time_ns + cell.count * cell.mean_ns
    return {bucket: time_ns / count for bucket, (count, time_ns) in sums.items() if count and time_ns > 0}


def _levels(windows: Iterable[Sequence[Cell]], reference: Mapping[int, float]) -> Floats:
    """log(mean / mean before of the same bucket) of each window that has such a load, shape (n,)."""
    levels = []
    for cells in windows:
        known = [cell for cell in cells if cell.bucket in reference and cell.mean_ns > 0]
        if known:
            logs = [math.log(cell.mean_ns / reference[cell.bucket]) for cell in known]
            levels.append(float(np.average(logs, weights=[cell.count for cell in known])))
    return np.array(levels)
