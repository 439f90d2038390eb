"""Detection over a series that lies there whole: a file, or stored history."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from cyclewatch.detectors.change_points.season import seasons
from cyclewatch.detectors.change_points.segmentation import LONG, segment
from cyclewatch.detectors.change_points.shift import Z_95, Shift, most_likely_shift
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.robust import robust_sigma

_SUSPICIOUS_P = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Settings:
    """What counts as a change.

    `false_alarm` is the probability of any change being reported in a series without one (held by simulation for 500
    values of independent, autocorrelated, heavy-tailed and seasonal noise); `min_effect` is relative, 0.02 is 2 %;
    `min_length` is how many values a level must last.
    """

    false_alarm: float = 0.012
    min_effect: float = 0.0
    min_length: int = 5


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change. `index` is the first value of the new level; `effect` is relative, with a 95 % interval.

    `effect` and `ci` are NaN where the old level is 0.
    """

    index: int
    before: float
    after: float
    effect: float
    ci: tuple[float, float]
    probability: float


@dataclass(frozen=True)
class Suspicion:
    """A change that does not count, and why."""

    index: int
    effect: float
    probability: float
    reason: str


@dataclass(frozen=True)
class Detection:
    """All changes of a series of `n` values, in order."""

    n: int
    change_points: tuple[ChangePoint, ...]
    suspicions: tuple[Suspicion, ...]
    settings: Settings


def detect(values: Floats, settings: Settings | None = None) -> Detection:
    """Changes of the level of `values`, shape (n,); values that are not finite are left out, but keep their index."""
    return _detect(values, settings or Settings(), _Scale.point)


def detect_in_logs(logs: Floats, settings: Settings | None = None) -> Detection:
    """The same of `logs`, shape (n,): levels are logs, effects are relative changes of what these are logs of."""
    return _detect(logs, settings or Settings(), _Scale.point_of_logs)


def _detect(values: Floats, settings: Settings, point_of: Callable[["_Scale", Shift, int], ChangePoint]) -> Detection:
    index = np.flatnonzero(np.isfinite(values))
    finite = np.asarray(values, np.float64)[index]
    if not len(finite):
        return Detection(len(values), (), (), settings)
    scale = _Scale.of(finite)
    finite = scale.taken_out(finite)
    points, suspicions = [], []
    waves = seasons(finite) if len(finite) <= LONG else None
    shifts = segment(finite, settings.min_length, settings.false_alarm, waves)
    for shift in shifts:
        point = point_of(scale, shift, int(index[shift.position]))
        if abs(point.effect) < settings.min_effect:
            reason = f"smaller than the minimum effect of {settings.min_effect:.1%}"
            suspicions.append(Suspicion(point.index, point.effect, point.probability, reason))
        else:
            points.append(point)
    begin = shifts[-1].position if shifts else 0
    recent = most_likely_shift(finite[begin:], settings.min_length, None if waves is None else waves[begin:])
    if recent is not None and recent.p_value < _SUSPICIOUS_P:
        point = point_of(scale, recent, int(index[begin + recent.position]))
        reason = f"may be noise (p = {recent.p_value:.2g})"
        suspicions.append(Suspicion(point.index, point.effect, point.probability, reason))
    return Detection(len(values), tuple(points), tuple(suspicions), settings)


@dataclass(frozen=True)
class _Scale:
    """Where values are and how far they spread: the tests see them around 0 with a spread of 1, however large."""

    centre: float
    spread: float

    @classmethod
    def of(cls, values: Floats) -> Self:
        centre = float(np.median(values))
        halves = values / 2 - centre / 2  # the difference of two numbers may not be one
        return cls(centre, 2 * robust_sigma(halves) or 1.0)

    def taken_out(self, values: Floats) -> Floats:
        out: Floats = (values / 2 - self.centre / 2) / (self.spread / 2)
        return out

    def point(self, shift: Shift, index: int) -> ChangePoint:
        before, after = self._levels(shift)
        # A base that is nothing but rounding is 0.
        zero = abs(before) <= _ROUNDING * max(abs(after), abs(self.centre), self.spread)
        base = math.nan if zero else before
        unit = self.spread / abs(base)
        effect = shift.difference * unit
        # Of a ratio, whose base has an error of its own.
        error_after = math.sqrt(max(shift.error**2 - shift.error_before**2, 0.0))
        half = Z_95 * math.hypot(error_after, after / base * shift.error_before) * unit
        return ChangePoint(index, before, after, effect, (effect - half, effect + half), 1.0 - shift.p_value)

    def point_of_logs(self, shift: Shift, index: int) -> ChangePoint:
        before, after = self._levels(shift)
        low, middle, high = (
            _expm1((shift.difference + sigmas * shift.error) * self.spread) for sigmas in (-Z_95, 0.0, Z_95)
        )
        return ChangePoint(index, before, after, middle, (low, high), 1.0 - shift.p_value)

    def _levels(self, shift: Shift) -> tuple[float, float]:
        return self.centre + shift.before * self.spread, self.centre + shift.after * self.spread


def _expm1(log: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.expm1(log))
