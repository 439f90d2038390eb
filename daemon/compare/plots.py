"""Plots as SVG, made of numbers alone: no text from outside gets into them, and colours come from the page's CSS."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cyclewatch.daemon.compare.comparison import CyclePair
from cyclewatch.daemon.compare.sentences import duration
from cyclewatch.daemon.ticks import value_ticks

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 16, 12, 34
_PARTS = np.concatenate((np.linspace(0, 0.98, 99), (0.985, 0.99, 0.995, 0.999, 1.0)))
_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
_TICKS_MAX = 6
_STEPS = (1.0, 2.0, 5.0)
_WIDE = 20.0
"""Times that lie further apart than this factor are drawn on a logarithmic scale."""


def distribution_svg(pair: CyclePair) -> str:
    """How large a part of the cycles was done within a time, before and after; "" where there are none."""
    sides = (("before", pair.before), ("after", pair.after))
    curves = [(name, side.quantiles_us(_PARTS)) for name, side in sides if side and side.times is not None]
    if not curves:
        return ""
    low = min(float(times[0]) for _, times in curves)
    high = max(float(times[-1]) for _, times in curves)
    scale = _Scale(low, high)
    pieces = [_frame(scale)]
    for name, every in curves:
        # Of equal times the first of all and the last of each: a sketch's bins would make stairs.
        ends = np.concatenate(([0], np.flatnonzero(np.diff(every, append=np.inf))))
        times, parts = every[ends], _PARTS[ends]
        points = " ".join(f"{scale.x(time):.1f},{_y(part):.1f}" for time, part in zip(times, parts, strict=True))
        middle = scale.x(float(np.interp(0.5, parts, times)))
        pieces.append(f'<polyline class="curve {name}" points="{points}"/>')
        pieces.append(f'<circle class="dot {name}" cx="{middle:.1f}" cy="{_y(0.5):.1f}" r="4"/>')
    label = "Share of the cycles that were done within a time, before and after"
    return f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(pieces)}</svg>'


def bar(before: float, after: float, most: float) -> str:
    """Two bars on a scale that ends at `most`, one above the other."""
    widths = [100 * max(value, 0.0) / most if most > 0 else 0.0 for value in (before, after)]
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="before" y="0.5" width="{widths[0]:.2f}" height="4"/>'
        f'<rect class="after" y="5.5" width="{widths[1]:.2f}" height="4"/></svg>'
    )


class _Scale:
    """Times on the horizontal axis, linear or logarithmic."""

    def __init__(self, low: float, high: float) -> None:
        self._logarithmic = low > 0 and high / low > _WIDE
        room = 1.02
        self._low, self._high = (low / room, high * room) if low > 0 else (0.0, max(high, 1e-9) * room)
        self._from, self._to = self._placed(self._low), self._placed(self._high)

    def x(self, time: float) -> float:
        """Where a time stands, in units of the drawing."""
        part = (self._placed(time) - self._from) / (self._to - self._from)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        """Round times within the scale, not too many."""
        if self._logarithmic:
            powers = range(math.floor(math.log10(self._low)), math.ceil(math.log10(self._high)) + 1)
            every = [step * 10.0**power for power in powers for step in _STEPS]
            shown = [time for time in every if self._low <= time <= self._high]
            return shown[:: -(-len(shown) // _TICKS_MAX) or 1]
        return value_ticks(self._low, self._high, _TICKS_MAX)

    def _placed(self, time: float) -> float:
        return math.log(max(time, self._low)) if self._logarithmic else time


def _frame(scale: _Scale) -> str:
    pieces = []
    for level in _LEVELS:
        y = _y(level)
        pieces.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        pieces.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{level:.0%}</text>')
    floor = _HEIGHT - _BOTTOM
    for time in scale.ticks():
        x = scale.x(time)
        pieces.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>')
        pieces.append(f'<text class="tick" x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{duration(time)}</text>')
    return "".join(pieces)


def _y(part: float) -> float:
    return _TOP + (1 - part) * (_HEIGHT - _TOP - _BOTTOM)


def block_line(values: Sequence[float]) -> str:
    """A line of blocks for a terminal, as high as the values."""
    most = max(values, default=0.0)
    return "".join(" ▁▂▃▄▅▆▇█"[round(8 * max(value, 0.0) / most)] if most > 0 else " " for value in values)


def histograms(pair: CyclePair, bins: int) -> tuple[float, float, list[list[float]]] | None:
    """Shares of the cycles in `bins` equal stretches of time: where they begin and end, and those of each side.

    None where no side tells its times.

    Up to the 99th percentile of the slower side, since one straggler would squeeze everything else into a corner.
    """
    sides = [side for side in (pair.before, pair.after) if side and side.times is not None]
    if not sides:
        return None
    low = min(float(side.quantiles_us((0.0,))[0]) for side in sides)
    high = max(float(side.quantiles_us((0.99,))[0]) for side in sides)
    edges = np.linspace(low * 0.999, high * 1.001, bins + 1)
    shares = []
    for side in (pair.before, pair.after):
        times = side.quantiles_us(_PARTS) if side and side.times is not None else np.zeros(0)
        below = np.interp(edges, times, _PARTS, left=0.0, right=1.0) if len(times) else np.zeros(bins + 1)
        shares.append([float(after - before) for before, after in pairwise(below)])
    return float(edges[0]), float(edges[-1]), shares
