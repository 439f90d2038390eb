"""The decision: which shifts count as a change. Apart from the statistic, so that a back-test can ask again."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.change_points.shift import Shift
from cyclewatch.detectors.phases import Floats

REFERENCE_WINDOWS_MIN = 6
"""Fewest windows that make a baseline."""

SUSPICION_WINDOWS = 720.0
"""Mean number of windows between two false suspicions, each of which costs a few milliseconds: an hour at 5 s."""

_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Parameters:
    """The settings of detection, in windows."""

    reference_windows: int
    persistence_windows: int
    history_windows: int
    min_effect: float
    min_tail_effect: float
    min_deployment_effect: float
    false_alarms_per_hour: float
    min_cycles: int
    window_ns: int
    suspicion_windows: float = SUSPICION_WINDOWS

    @classmethod
    def of(cls, detection: Detection, windows: Windows) -> Self:
        """Durations in seconds become numbers of windows, rounded up."""

        def count(seconds: float) -> int:
            return max(1, math.ceil(seconds / windows.length_s - 1e-9))

        persistence = count(detection.persistence_s)
        reference = max(count(detection.reference_s), REFERENCE_WINDOWS_MIN)
        return cls(
            reference_windows=reference,
            persistence_windows=persistence,
            history_windows=max(count(detection.history_s), reference + persistence),
            min_effect=detection.min_effect,
            min_tail_effect=detection.min_tail_effect,
            min_deployment_effect=detection.min_deployment_effect,
            false_alarms_per_hour=detection.false_alarms_per_hour,
            min_cycles=detection.min_cycles,
            window_ns=int(windows.length_s * 1e9),
        )

    @property
    def min_shift(self) -> float:
        """The minimum effect as a difference of logs."""
        return math.log1p(self.min_effect)


@dataclass(frozen=True)
class Decision:
    """Whether a shift counts, and why not where it does not; `too_small` is one that only hides larger ones."""

    accepted: bool
    reason: str
    too_small: bool = False


IMPROVEMENT_PERSISTENCE = 4
"""How many times as long as a slowdown an improvement must last."""

GONE_RATIO = 0.25
"""A slowdown is over when at most this part of it is left."""


def left_over(level: float, before: float, after: float, parameters: Parameters) -> bool:
    """Whether at `level` enough is left of a slowdown from `before` to `after` to call it one (all logs)."""
    return level - before >= max(parameters.min_shift, GONE_RATIO * (after - before))


def went_away(values: Floats, before: float, after: float, parameters: Parameters) -> bool:
    """Whether the last windows show that a slowdown from `before` to `after` has gone.

    Each of them, as many as a change must last, is nearer to the old level, and their median is back at it. This asks
    for less than a test for a shift: that the old level can be held has been shown already, and a slowdown
    that is over must not stay open because its end was gradual.
    """
    last = values[-parameters.persistence_windows :]
    nearer = bool((last < (before + after) / 2).all())
    return (
        len(last) == parameters.persistence_windows
        and nearer
        and not left_over(float(np.median(last)), before, after, parameters)
    )


def decide(shift: Shift | None, parameters: Parameters, *, slowed: bool, usual: float | None = None) -> Decision:
    """Judge a statistic: lasting, surely more than noise, large enough to matter, and not what comes every day.

    `slowed` tells that a slowdown is open, so that a shift back is its end; otherwise getting faster is an
    improvement, which becomes the new normal and is in no hurry. `usual` is the level at this hour on the days before.
    """
    if shift is None:
        return Decision(accepted=False, reason="too few windows")
    improvement = shift.after < shift.before and not slowed
    lasting = parameters.persistence_windows * (IMPROVEMENT_PERSISTENCE if improvement else 1)
    if shift.values_after < lasting:
        return Decision(accepted=False, reason=f"has lasted {shift.values_after} windows only")
    # The longer both levels have lasted, the fewer such stretches there are in an hour for noise to look like them.
    shorter = min(shift.position, shift.values_after)
    if shift.p_value > parameters.false_alarms_per_hour * shorter * parameters.window_ns / _HOUR_NS:
        return Decision(accepted=False, reason=f"may be noise (p = {shift.p_value:.2g})")
    if abs(shift.difference) < parameters.min_shift:
        effect = math.expm1(shift.difference)
        return Decision(accepted=False, reason=f"smaller than the minimum effect ({effect:+.1%})", too_small=True)
    if usual is not None and shift.difference > 0 and shift.after - usual < parameters.min_shift:
        return Decision(accepted=False, reason="no slower than at this hour on the days before")
    return Decision(accepted=True, reason="")
