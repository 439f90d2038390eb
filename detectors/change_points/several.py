"""Several shifts at once, where no single one stands out: a plateau that comes down again, levels up and down.

A single step explains little of them, and an autoregression explains them as wandering. So levels as a whole are held
against wandering as a whole: whichever leaves less error, each level paying for its place.
"""

import math

import numpy as np

from cyclewatch.detectors.phases import Floats, Integers
from cyclewatch.detectors.statistics import autoregression
from cyclewatch.detectors.statistics.autoregression import whiten
from cyclewatch.detectors.statistics.robust import robust_sigma

_PRICE = 3.0
"""What a level costs besides 2 log n, in twice the log likelihood: so much that independent noise, of which the best
of all places is taken, makes none."""


_COUNTS = 24
"""How many numbers of levels are tried."""


def levels_at_once(values: Floats, margin: int) -> list[int]:
    """Where levels begin in `values`, shape (n,), in order, if levels explain them better than wandering noise does."""
    n = len(values)
    if n < 4 * margin:
        return []
    centred = values - values.mean()
    wandering = _error(centred)
    best: list[int] = []
    least = 0.0
    for phi in (np.zeros(0), _phi_by_differences(values)):
        striking = _striking(values, phi, margin)
        # A clear level must not pay for chance ones, so fewer are tried too: the most striking ones.
        for count in np.unique(np.linspace(1, len(striking), min(len(striking), _COUNTS)).astype(int)):
            positions = sorted(striking[:count])
            levels = _error(_around_levels(values, positions))
            cost = n * math.log(max(levels, 1e-12) / max(wandering, 1e-12)) + (2 * math.log(n) + _PRICE) * count
            if cost < least:
                best, least = positions, cost
    return best


def _around_levels(values: Floats, positions: list[int]) -> Floats:
    """`values`, shape (n,), less the mean of the level that each is in."""
    lengths = np.diff([0, *positions, len(values)])
    means = np.add.reduceat(values, [0, *positions]) / lengths
    residuals: Floats = values - np.repeat(means, lengths)
    return residuals


def _error(residuals: Floats) -> float:
    """Mean square of what an autoregression leaves."""
    errors = whiten(residuals, autoregression.fit_best(residuals))
    return float(errors @ errors) / len(errors)


def _phi_by_differences(values: Floats) -> Floats:
    """AR(1) from differences over one and two places, which levels hardly touch; shape (1,).

    Chakar, Lebarbier, Lévy-Leduc and Robin, A robust approach for estimating change-points in the mean of an AR(1)
    process, Bernoulli 23, 2017, eq. 8.
    """
    one = float(np.median(np.abs(values[1:] - values[:-1])))
    two = float(np.median(np.abs(values[2:] - values[:-2])))
    ratio = (two / one) ** 2 - 1 if one > 0 else 0.0
    return np.array([min(max(ratio, 0.0), 0.95)])


def _striking(values: Floats, phi: Floats, margin: int) -> list[int]:
    """Splits that stand out in parts of every length, which overlap by half; the most striking first.

    Seeded binary segmentation: Kovács, Bühlmann, Li and Munk, Biometrika 110, 2023.
    """
    errors = whiten(values, phi)
    errors = errors / max(robust_sigma(np.diff(errors)) / math.sqrt(2), 1e-3 * float(errors.std()), 1e-300)
    begins, ends, splits, scores = _parts(errors, margin)
    taken: list[int] = []
    for index in np.argsort(-scores):
        if scores[index] < 2 * math.log(len(values)):
            break
        begin, end = begins[index], ends[index]
        if not any(begin < position < end for position in taken):
            taken.append(int(splits[index]))
    return [position + len(phi) for position in taken]


def _parts(errors: Floats, margin: int) -> tuple[Integers, Integers, Integers, Floats]:
    """Begin, end, best split and its score of every part."""
    n = len(errors)
    found = []
    length = 2 * margin
    while length <= n:
        parts = np.lib.stride_tricks.sliding_window_view(errors, length)[:: length // 2]
        sums = np.cumsum(parts, axis=1)
        places = np.arange(margin, length - margin + 1)
        excess = sums[:, margin - 1 : length - margin] - sums[:, -1:] * (places / length)
        scores = excess**2 / (places * (length - places) / length)
        best = scores.argmax(axis=1)
        begins = np.arange(len(parts)) * (length // 2)
        found.append((begins, begins + length, begins + places[best], scores.max(axis=1)))
        length += max(length // 2, 1)
    begins, ends, splits, best_scores = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return begins, ends, splits, best_scores
