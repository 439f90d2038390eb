"""The test for one lasting shift of the mean: where, how large, how sure.

A generalised likelihood ratio with the noise as an autoregression that is fitted anew with the shift and without it
(Davis, Huang and Yao, The Annals of Statistics 23, 1995): neighbours that wander together do not look like a shift, and
a shift does not look like wandering. Spikes and heavy tails are pulled in around both levels first.
"""

import math
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.phases import Floats, Integers
from cyclewatch.detectors.statistics import autoregression
from cyclewatch.detectors.statistics.autoregression import whiten
from cyclewatch.detectors.statistics.normal import normal_scores, normal_tail, overshoot_factor
from cyclewatch.detectors.statistics.robust import robust_sigma

Z_95 = 1.959964
"""Half width of a 95 % interval, in standard errors."""

_ROUNDS = 4
_CLIP_SIGMAS = 2.0
_RANKS_MIN = 40
"""Values from which on ranks can object: of fewer they are never sure."""

_RANKS_OBJECT = 0.05
"""Above this p-value by ranks alone, no shift is surer than its ranks say; below it their limited range hides how sure
it is."""

_SIGMAS_UNEVEN = 3.0
"""How surely the noise of one side must be larger than that of the other, by its log variance, to count as such. From
n values by their median deviation that has a variance of 5.4 / n, 2.7 times that of the best estimate."""

_WORTH_SCORE = 3.5
"""Score below which nothing is sure: with a thousand places tried p is about 0.05."""

_LEAN_VALUES = 3.0
"""Values' worth that the noise of one side leans on that of both: a few of its own tell little."""

_RANK_TOLERANCE = 1e-9
"""Part of the largest singular value below which columns are sums of others."""

_CALIBRATION_INDEPENDENT, _CALIBRATION_PERSISTENCE = 1.25, 0.5
"""What p-values lacked in simulation: series of 500 independent values gave 1.3 % below 0.01, as pulling in what is far
outside favours a shift a little, and AR(1) of 0.5 to 0.8 gave 0.85 %."""


@dataclass(frozen=True)
class Shift:
    """The most likely single shift of a series: a statistic, not yet a decision.

    `position` is the first value of the new level, `values_after` how many values stand at it. `before` and `after`
    are the levels, `error` the standard error of their difference, `error_before` that of the old level; `p_value`
    allows for every position having been tried; `sigma` is the long-run standard deviation of the noise: of the mean
    of n values, times sqrt(n).
    """

    position: int
    values_after: int
    before: float
    after: float
    error: float
    error_before: float
    p_value: float
    sigma: float

    @property
    def difference(self) -> float:
        """From the old level to the new one."""
        return self.after - self.before


def most_likely_shift(
    values: Floats, margin: int, seasons: Floats | None = None, phi: Floats | None = None
) -> Shift | None:
    """The shift of `values`, shape (n,), that explains most and leaves `margin` values at each end.

    `seasons`, shape (n, k), are columns of which no multiple is taken for a shift; `phi` is the autoregression of the
    noise where it is known from more values than these. None for a series that is too short, or that hardly ever moves.
    """
    n = len(values)
    if margin < 1 or n < 2 * max(margin, 0 if phi is None else len(phi)) or np.ptp(values) == 0:
        return None
    columns = np.ones((n, 1)) if seasons is None else np.column_stack([np.ones(n), seasons])
    ranked = _Problem(normal_scores(values), columns, np.zeros(0))
    rough = ranked.best_shift(margin)
    if _only_events(values, rough.position):
        return None
    problem = _Problem(_tame(values, rough.position), columns, phi)
    fit = problem.best_shift(margin)
    p_value = problem.p_value(fit)
    if n >= _RANKS_MIN:
        # A few far values in a row move a level, but hardly the ranks, even if their noise were independent.
        by_ranks = ranked.p_value(rough)
        p_value = max(p_value, by_ranks) if by_ranks > _RANKS_OBJECT else p_value
    return _measured(values, columns, fit, p_value)


def worth_testing(values: Floats, margin: int, phi: Floats) -> bool:
    """Whether `most_likely_shift` could find anything sure: a tenth to a fifth of its time.

    Asked with noise `phi`, as it was before, and then with noise as it is around the likeliest shift: it may have come
    to wander more, and then nearly every window of it is suspected.
    """
    n = len(values)
    if n < 2 * max(margin, len(phi)) or np.ptp(values) == 0:
        return False
    sigma = robust_sigma(values)
    centre = float(np.median(values))
    tame, columns = np.clip(values, centre - 4 * sigma, centre + 4 * sigma), np.ones((n, 1))
    before = _Problem(tame, columns, phi)
    fit = before.best_shift(margin)
    if not before.stands_out(fit):
        return False
    now = _Problem(tame, columns, before.noise_around(fit))
    return now.stands_out(now.best_shift(margin))


def shift_at(values: Floats, position: int, phi: Floats) -> Shift:
    """The shift of `values`, shape (n,), with noise `phi`, at a place known from elsewhere.

    The p-value is of this place alone.

    Raises:
        ValueError: there is no value on one side of `position`.
    """
    if not 0 < position < len(values):
        raise ValueError(f"no shift of {len(values)} values at {position}")
    phi = phi[: max(min(position, len(values) - position) - 1, 0)]
    columns = np.ones((len(values), 1))
    problem = _Problem(_tame(values, position), columns, phi)
    fit = problem.shift_at(position, phi)
    return _measured(values, columns, fit, problem.p_value(fit))


def _only_events(values: Floats, position: int) -> bool:
    """Whether most values before and after `position` are one and the same: what is left are events, not noise."""
    usual = np.median(values)
    return bool(np.mean(values[:position] == usual) > 0.5 and np.mean(values[position:] == usual) > 0.5)  # noqa: PLR2004


def _tame(values: Floats, position: int) -> Floats:
    """`values` with what is far outside both levels, the one before and the one after `position`, pulled in."""
    before, after = float(np.median(values[:position])), float(np.median(values[position:]))
    sigma = robust_sigma(np.concatenate([values[:position] - before, values[position:] - after]))
    reach = _CLIP_SIGMAS * sigma
    tamed: Floats = np.clip(values, min(before, after) - reach, max(before, after) + reach)
    return tamed


def _tame_sides(values: Floats, position: int) -> tuple[Floats, Floats]:
    """`values` with what is far outside the level of its own side of `position` pulled in, by the noise of that side.

    And which part of each side, shape (2,), was not.
    """
    sides = values[:position], values[position:]
    squares = [len(side) * robust_sigma(side) ** 2 for side in sides]
    both = sum(squares) / len(values)
    tamed = []
    for side, own in zip(sides, squares, strict=True):
        level, reach = float(np.median(side)), _CLIP_SIGMAS * math.sqrt(_of_side(own, len(side), both))
        tamed.append(np.clip(side, level - reach, level + reach))
    kept = np.array([np.mean(tame == side) for tame, side in zip(tamed, sides, strict=True)])
    return np.concatenate(tamed), kept


def _of_side(squares: float, freedom: int, both: float) -> float:
    """Variance of the noise of one side, by its sum of squares and that of both sides together."""
    return (squares + _LEAN_VALUES * both) / (freedom + _LEAN_VALUES)


@dataclass(frozen=True)
class _Fit:
    """A shift together with its noise.

    `positions` are those tried and `energies` what a whitened step of 1 there adds to the sum of squares, once the
    columns have taken what they can; `errors` is the sum of squares that is left.
    """

    position: int
    phi: Floats
    errors: float
    positions: Integers
    energies: Floats


class _Problem:
    """Values, shape (n,), as columns, shape (n, k), of which the first is constant, plus a step, plus noise `phi`."""

    def __init__(self, values: Floats, columns: Floats, phi: Floats | None = None) -> None:
        self._values = values
        self._columns = columns
        self._phi = phi
        self._n = len(values)

    def best_shift(self, margin: int) -> _Fit:
        """The best shift and its noise, found in turn.

        Once from independent noise and once from the noise that would do without a shift: from the first a shift
        that is small against wandering noise is not found, from the second one that is large.
        """
        if self._phi is not None:
            return self._scan(self._phi, margin)
        start = self._scan(np.zeros(0), margin)
        order = autoregression.choose_order(self._residuals(np.zeros(0), start.position))
        fits = [self._improve(start, order, margin)]
        if order:
            phi = autoregression.fit(self._residuals(np.zeros(0), None), order)
            fits.append(self._improve(self._scan(phi, margin), order, margin))
        return min(fits, key=lambda fit: fit.errors)

    def noise_around(self, fit: _Fit) -> Floats:
        """The autoregression of what the step leaves, of first order at least."""
        return autoregression.fit(self._residuals(fit.phi, fit.position), max(len(fit.phi), 1))

    def stands_out(self, fit: _Fit) -> bool:
        """Whether the step takes up so much of the sum of squares that it may be sure."""
        residuals = whiten(self._residuals(fit.phi, None), fit.phi)
        gain = float(residuals @ residuals) - fit.errors
        return gain > _WORTH_SCORE**2 * robust_sigma(whiten(self._values, fit.phi)) ** 2

    def shift_at(self, position: int, phi: Floats) -> _Fit:
        """The shift at a given place, with given noise."""
        return self._scan(phi, len(phi), only=position)

    def p_value(self, fit: _Fit) -> float:
        """The significance of the shift, against the best that noise alone can do."""
        freedom = max(self._n - 2 * len(fit.phi) - self._columns.shape[1] - 1, 1)
        return _p_value(self._score(fit, freedom) / self._unevenness(fit), fit)

    def _score(self, fit: _Fit, freedom: int) -> float:
        """Normal score of the likelihood ratio, with the correction of Student's t for few values (Wallace 1959)."""
        phi = self._phi
        if phi is None:
            phi = autoregression.fit(self._residuals(np.zeros(0), None), len(fit.phi))
            phi = autoregression.fit(self._residuals(phi, None), len(fit.phi))
        residuals = whiten(self._residuals(phi, None), phi)
        without = float(residuals @ residuals)
        if without <= fit.errors:
            return 0.0
        scale = 1e-12 * self._n * float(self._values.var())
        ratio = math.log(max(without, scale) / max(fit.errors, scale))
        return math.sqrt(max(freedom * ratio, 0.0)) * (1 - 2 / (8 * freedom + 3))

    def _unevenness(self, fit: _Fit) -> float:
        """How much larger the error of the difference is than `fit` says, where one side is surely noisier (Welch)."""
        residuals = whiten(self._residuals(fit.phi, fit.position), fit.phi)
        place = fit.position - len(fit.phi)
        before, after = residuals[:place], residuals[place:]
        of_before, of_after = robust_sigma(before) ** 2, robust_sigma(after) ** 2
        if min(of_before, of_after) <= 0:
            return 1.0
        if abs(math.log(of_after / of_before)) < _SIGMAS_UNEVEN * math.sqrt(5.4 / len(before) + 5.4 / len(after)):
            return 1.0
        apart = of_before / len(before) + of_after / len(after)
        together = float(residuals.var()) * (1 / len(before) + 1 / len(after))
        return max(math.sqrt(apart / together), 1.0)

    def _improve(self, fit: _Fit, order: int, margin: int) -> _Fit:
        for _ in range(_ROUNDS):
            phi = autoregression.fit(self._residuals(fit.phi, fit.position), order)
            before, fit = fit, self._scan(phi, margin)
            if fit.position == before.position and len(before.phi) == order:
                break
        return fit

    def _residuals(self, phi: Floats, position: int | None) -> Floats:
        """Values less columns and step, as generalised least squares with noise `phi` fits them; shape (n,)."""
        columns = self._columns if position is None else np.column_stack([self._columns, self._step(position)])
        weights = _least_squares(whiten(columns, phi), whiten(self._values, phi))
        residuals: Floats = self._values - columns @ weights
        return residuals

    def _step(self, position: int) -> Floats:
        return (np.arange(self._n) >= position).astype(np.float64)

    def _scan(self, phi: Floats, margin: int, only: int | None = None) -> _Fit:
        """The place of the step that leaves the least error, with noise `phi`, in one pass over all places."""
        first = max(margin, len(phi))
        positions = np.arange(first, self._n - first + 1) if only is None else np.array([only])
        columns, _ = np.linalg.qr(whiten(self._columns, phi))
        errors = whiten(self._values, phi)
        errors -= columns @ (columns.T @ errors)
        heights = 1.0 - np.concatenate(([0.0], np.cumsum(phi)))
        energies = (heights[:-1] ** 2).sum() + heights[-1] ** 2 * (self._n - len(phi) - positions)
        least = 1e-9 * energies
        for column in columns.T:
            energies = energies - _step_products(column, heights, positions) ** 2
        products = _step_products(errors, heights, positions)
        gains = np.where(energies > least, products**2 / np.maximum(energies, least), 0.0)
        best = int(np.argmax(gains))
        left = max(float(errors @ errors) - float(gains[best]), 0.0)
        return _Fit(int(positions[best]), phi, left, positions, np.maximum(energies, least))


def _step_products(column: Floats, heights: Floats, positions: Integers) -> Floats:
    """Products of a whitened column, shape (n - p,), with the whitened step at each of neighbouring positions.

    From its place on a whitened step has the `heights` 1, 1 - phi_1, 1 - phi_1 - phi_2, ..., of which the last lasts.
    """
    order = len(heights) - 1
    begin, end = int(positions[0]), int(positions[-1]) + 1  # slices, which take a third of the time that indices do
    sums = np.concatenate(([0.0], np.cumsum(column)))
    products: Floats = heights[-1] * (sums[-1] - sums[begin:end])
    for lag in range(order):
        products += heights[lag] * column[begin - order + lag : end - order + lag]
    return products


def _measured(values: Floats, columns: Floats, fit: _Fit, p_value: float) -> Shift:
    """The shift of `fit` with its levels, each as far off as the noise of its own side lets it be.

    Apart from the test, which knows one noise for both sides: that of a quiet side would cut off half of a noisy one.
    """
    n, order, position = len(values), len(fit.phi), fit.position
    tamed, kept = _tame_sides(values, position)
    columns = whiten(np.column_stack([columns, np.arange(n) >= position]), fit.phi)
    target = whiten(tamed, fit.phi)
    gains = np.linalg.pinv(columns, rcond=_RANK_TOLERANCE)
    levels = gains @ target
    squares = (target - columns @ levels) ** 2
    both = float(squares.sum()) / max(n - 2 * order - columns.shape[1], 1)
    sides = np.split(squares, [max(position - order, 0)])
    # What is pulled in no longer moves the level (the error of an M-estimator; Huber, Robust Statistics, 1981, 3.2).
    variances = np.array([_of_side(float(side.sum()), max(len(side) - 1, 0), both) for side in sides]) / kept**2
    noise = np.repeat(variances, [len(side) for side in sides])
    long_run = 1 - float(fit.phi.sum())
    return Shift(
        position=position,
        values_after=n - position,
        before=float(levels[0]),
        after=float(levels[0] + levels[-1]),
        error=math.sqrt(float(gains[-1] ** 2 @ noise)),
        error_before=math.sqrt(variances[0] / position) / long_run,
        p_value=p_value,
        sigma=math.sqrt(noise.mean()) / long_run,
    )


def _p_value(score: float, fit: _Fit) -> float:
    """P(the largest of all positions' scores > score) where there is no shift.

    The expected number of times that the scores cross the limit (Siegmund and Yakir, The Statistics of Gene Mapping,
    2007, section 5): neighbours whose scores differ by x limits' worth of noise add x^2 nu(x). With independent noise
    this is the Brownian bridge's tail (Csörgő and Horváth 1997, eq. 1.3.26); with wandering noise positions count one
    by one, since a jump stands out where it happens.
    """
    if score < 1.5:  # noqa: PLR2004 (the expansion holds in the tail only)
        return 1.0
    jump = 1.0 + float(fit.phi @ fit.phi)  # squared norm of the difference of two neighbours' whitened steps
    apart = score * np.sqrt(jump / fit.energies[1:])
    density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
    crossings = density / score * float((apart**2 * overshoot_factor(apart)).sum())
    calibration = _CALIBRATION_INDEPENDENT - _CALIBRATION_PERSISTENCE * float(fit.phi.sum())
    return min(1.0, calibration * (2 * normal_tail(score) + crossings))


def _least_squares(columns: Floats, values: Floats) -> Floats:
    """Weights, shape (k,), of columns, shape (n, k), some of which may nearly be sums of others."""
    gram = columns.T @ columns
    gram[np.diag_indices(len(gram))] *= 1 + 1e-12
    weights: Floats = np.asarray(np.linalg.lstsq(gram, columns.T @ values, rcond=None)[0], np.float64)
    return weights
