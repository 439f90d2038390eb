"""Axes: which part of the world they show, and which round values stand at them. Pure."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles

_LEAST_SPAN = 0.3
"""Least height of the vertical axis, of its middle value: noise of some percent must not look like a cliff."""

_ROOM = 0.08
_SPIKE = 2.0
"""What is above this many times the upper decile is cut off: one long cycle would press all else onto the ground."""

_MINUTE_NS = 60 * 10**9
_STEPS_NS = tuple(minutes * _MINUTE_NS for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080))


def value_range(values: Sequence[float]) -> tuple[float, float]:
    """Lower and upper end of the vertical axis for at least two positive `values`."""
    low = min(values)
    high = max(low, min(max(values), _SPIKE * quantiles(values, n=10)[-1]))
    missing = max(0.0, _LEAST_SPAN * median(values) - (high - low))
    room = _ROOM * (high - low + missing)
    return max(0.0, low - missing / 2 - room), high + missing / 2 + room


def time_ticks(from_ns: int, to_ns: int, most: int) -> list[int]:
    """Instants on round minutes, hours or days of UTC; at most one more than `most`."""
    step_ns = next((one for one in _STEPS_NS if (to_ns - from_ns) <= most * one), None)
    if step_ns is None:  # a year of an incident: whole weeks
        week_ns = _STEPS_NS[-1]
        step_ns = -(-(to_ns - from_ns) // (most * week_ns)) * week_ns
    return list(range(-(-from_ns // step_ns) * step_ns, to_ns + 1, step_ns))


def digits(ticks: Sequence[float]) -> int:
    """Digits behind the point that tell neighbouring ticks apart."""
    step = min((later - earlier for earlier, later in pairwise(ticks)), default=1.0)
    return max(0, -math.floor(math.log10(step)))
