"""The decision: which shifts count as a change. Apart from the statistic, so that a back-test can ask again."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.segmentation import Shift

SUSPICION_RUN_LENGTH = 17_280.0
"""Mean number of windows between two false suspicions: one a day at 5 s."""

MIN_BEFORE_WINDOWS = 6
"""Fewest windows of the old level that a change is measured against."""

MIN_AFTER_WINDOWS = 2
"""Fewest windows a split may leave at its end; how long a change must last is for the decision, not for its place."""


@dataclass(frozen=True)
class Parameters:
    """The settings of detection, in windows."""

    reference_windows: int
    persistence_windows: int
    history_windows: int
    min_effect: float
    false_alarm: float
    min_cycles: int
    window_ns: int

    @classmethod
    def of(cls, detection: Detection, windows: Windows) -> Self:
        """Durations in seconds become numbers of windows, rounded up."""

        def count(seconds: float) -> int:
            return max(1, math.ceil(seconds / windows.length_s - 1e-9))

        persistence = count(detection.persistence_s)
        reference = max(count(detection.reference_s), MIN_BEFORE_WINDOWS)
        return cls(
            reference_windows=reference,
            persistence_windows=persistence,
            history_windows=max(count(detection.history_s), reference + persistence),
            min_effect=detection.min_effect,
            false_alarm=detection.false_alarm,
            min_cycles=detection.min_cycles,
            window_ns=int(windows.length_s * 1e9),
        )

    @property
    def min_shift(self) -> float:
        """The minimum effect as a difference of logs."""
        return math.log1p(self.min_effect)


@dataclass(frozen=True)
class Decision:
    """Whether a shift counts, and why not where it does not."""

    accepted: bool
    reason: str


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


def decide(shift: Shift | None, parameters: Parameters, *, slowed: bool) -> Decision:
    """Judge a statistic: lasting, surely more than noise, and large enough to matter.

    `slowed` tells that a slowdown is open, so that a shift back is its end; otherwise getting faster is an
    improvement, which becomes the new normal and is in no hurry.
    """
    if shift is None:
        return Decision(accepted=False, reason="too few windows")
    improvement = shift.after < shift.before and not slowed
    lasting = parameters.persistence_windows * (IMPROVEMENT_PERSISTENCE if improvement else 1)
    if shift.windows_after < lasting:
        return Decision(accepted=False, reason=f"has lasted {shift.windows_after} windows only")
    if shift.p_value > parameters.false_alarm:
        return Decision(accepted=False, reason=f"may be noise (p = {shift.p_value:.2g})")
    if abs(shift.after - shift.before) < parameters.min_shift:
        return Decision(accepted=False, reason=f"smaller than the minimum effect ({shift.effect:+.1%})")
    return Decision(accepted=True, reason="")
