"""Several shifts of one series: where its levels begin, each tested against its neighbours."""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.change_points.season import seasons
from cyclewatch.detectors.change_points.several import levels_at_once
from cyclewatch.detectors.change_points.shift import Shift, most_likely_shift
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics import autoregression
from cyclewatch.detectors.statistics.normal import normal_scores

_OWN_NOISE_MIN = 100
"""Values that a stretch needs so that its noise is taken from itself, and not from the whole series."""

LONG = 8_192
_COARSE = 4_096
_REACH = 2_048
"""Above `LONG` values shifts are looked for and judged in means of blocks, `_COARSE` of them or more, and then placed
exactly by the values within `_REACH`. Levels shorter than a few blocks are not seen there."""

_ROUNDS_MAX = 8


def segment(values: Floats, margin: int, false_alarm: float, waves: Floats | None = None) -> list[Shift]:
    """All shifts of `values`, shape (n,), in order; levels are at least `margin` values long.

    `false_alarm` is the probability of any shift being found where there is none. `waves`, shape (n, k), are columns of
    which no multiple is taken for shifts, as `season.seasons` gives them; above `LONG` values there are none to give.
    """
    return _Segmentation(values, margin, false_alarm, waves).shifts() if len(values) >= 2 * margin else []


@dataclass(frozen=True)
class _Stretch:
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


class _Segmentation:
    def __init__(self, values: Floats, margin: int, false_alarm: float, waves: Floats | None) -> None:
        self._values = values
        self._margin = margin
        self._alarm = false_alarm
        self._phi = np.zeros(0)
        self._waves = waves
        self._tested: dict[tuple[_Stretch, bytes | None], Shift | None] = {}

    def shifts(self) -> list[Shift]:
        """Found from the outside in, then each placed and tested anew between its neighbours until nothing moves."""
        n = len(self._values)
        if n <= LONG:
            return self._settle(sorted(self._split(_Stretch(0, n))))
        block = n // _COARSE
        means = self._values[: n // block * block].reshape(-1, block).mean(axis=1)
        coarse = segment(means, self._margin, self._alarm, seasons(means))
        edges = [0, *(shift.position * block for shift in coarse), n]
        last = len(coarse) - 1
        return [
            # A neighbour's own place is known to a block.
            self._place(shift, edges[i] + block * (i > 0), edges[i + 1], edges[i + 2] - block * (i < last))
            for i, shift in enumerate(coarse)
        ]

    def _place(self, coarse: Shift, before: int, position: int, after: int) -> Shift:
        """A shift that was found in means of blocks, at its exact place."""
        exact = self._test(_Stretch(max(before, position - _REACH), min(after, position + _REACH)))
        if exact is None or exact.p_value > self._alarm:
            return replace(coarse, position=position, values_after=after - position)
        return replace(exact, values_after=after - exact.position, p_value=min(exact.p_value, coarse.p_value))

    def _split(self, stretch: _Stretch) -> list[int]:
        shift = self._test(stretch)
        if shift and shift.p_value <= self._alarm:
            positions = [shift.position]
        else:
            ranked = normal_scores(self._values[stretch.begin : stretch.end])
            positions = [stretch.begin + position for position in levels_at_once(ranked, self._margin)]
        if not positions:
            return []
        edges = [stretch.begin, *positions, stretch.end]
        inside = [self._split(_Stretch(begin, end)) for begin, end in itertools.pairwise(edges)]
        return [*itertools.chain.from_iterable(inside), *positions]

    def _test(self, stretch: _Stretch, phi: Floats | None = None) -> Shift | None:
        """The most likely shift within a stretch, its position counted from the beginning of the series.

        Remembered, since neighbours that settle ask for stretches again, and for those that were split.
        """
        key = (stretch, None if phi is None else phi.tobytes())
        if key not in self._tested:
            rows = slice(stretch.begin, stretch.end)
            columns = None if self._waves is None else self._waves[rows]
            shift = most_likely_shift(self._values[rows], self._margin, columns, phi)
            self._tested[key] = replace(shift, position=shift.position + stretch.begin) if shift else None
        return self._tested[key]

    def _settle(self, positions: list[int]) -> list[Shift]:
        shifts: list[Shift] = []
        for _ in range(_ROUNDS_MAX):
            self._learn_noise(positions)
            edges = [0, *positions, len(self._values)]
            found = [self._between(before, after) for before, after in zip(edges, edges[2:], strict=False)]
            shifts = [shift for shift in found if shift is not None]
            weakest = max(shifts, key=lambda shift: shift.p_value, default=None)
            if weakest is not None and weakest.p_value > self._alarm:
                shifts.remove(weakest)
            settled = sorted({shift.position for shift in shifts})
            if settled == positions:
                break
            positions = settled
        return [shift for shift in shifts if shift.p_value <= self._alarm]

    def _between(self, before: int, after: int) -> Shift | None:
        """The shift between two others; it pays for all the stretches that could have been chosen in place of this."""
        phi = None if after - before >= _OWN_NOISE_MIN else self._phi
        shift = self._test(_Stretch(before, after), phi)
        if shift is None or after - before == len(self._values):
            return shift
        shorter = min(shift.position - before, after - shift.position)
        return replace(shift, p_value=min(1.0, shift.p_value * len(self._values) / shorter))

    def _learn_noise(self, positions: list[int]) -> None:
        """The noise of the whole series around its levels, for stretches too short to tell their own."""
        parts = np.split(self._values, positions)
        residuals = np.concatenate([part - np.median(part) for part in parts])
        low, high = np.quantile(residuals, (0.01, 0.99))
        self._phi = autoregression.fit_best(np.clip(residuals, low, high))
