"""The confirming test: is there one lasting shift in this stretch, where, how large, how sure?"""

import math
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.robust import autocorrelation, clip_outliers, robust_sigma

_Z_95 = 1.959964


@dataclass(frozen=True)
class Shift:
    """The most likely single shift of a series of logs: a statistic, not yet a decision.

    `position` is the first value of the new level, `windows_after` how many values stand at it. `before` and
    `after` are mean log levels; `effect` is relative (0.05 is 5 % slower), `ci` its 95 % interval; `p_value`
    allows for every position having been tried.
    """

    position: int
    windows_after: int
    before: float
    after: float
    effect: float
    ci: tuple[float, float]
    p_value: float
    sigma: float


@dataclass(frozen=True)
class Noise:
    """What is known of the noise beforehand: a long-run standard deviation, worth so many independent values."""

    sigma: float
    weight: float


NOTHING_KNOWN = Noise(0.0, 0.0)


def most_likely_shift(
    values: Floats, min_before: int, min_after: int, noise: Noise = NOTHING_KNOWN, sigma_floor: float = 0.0
) -> Shift | None:
    """The split of `values`, shape (n,), with the largest standardised difference of means; None if too short."""
    n = len(values)
    if min_before < 1 or min_after < 1 or n < min_before + min_after:
        return None
    sums = np.concatenate(([0.0], np.cumsum(without_spikes(values))))
    splits = np.arange(min_before, n - min_after + 1)
    before = sums[splits] / splits
    after = (sums[n] - sums[splits]) / (n - splits)
    best = int(np.argmax(np.abs(after - before) * np.sqrt(splits * (n - splits) / n)))
    return shift_at(values, int(splits[best]), min(min_before, min_after), noise, sigma_floor)


def shift_at(
    values: Floats, position: int, margin: int, noise: Noise = NOTHING_KNOWN, sigma_floor: float = 0.0
) -> Shift:
    """The shift of `values`, shape (n,), at a split, of all those that leave `margin` values at both ends.

    Noise is the long-run standard deviation of the residuals around both levels, pooled with what is known of
    it beforehand (at least `sigma_floor`), so that neighbours that move together do not look like a shift;
    single spikes are pulled in first. The p-value is the tail of the largest standardised Brownian bridge
    (Csörgő and Horváth, Limit Theorems in Change-Point Analysis, 1997, eq. 1.3.26), with Student's correction for
    a short series.
    """
    n = len(values)
    clipped = without_spikes(values)
    before, after = float(clipped[:position].mean()), float(clipped[position:].mean())
    residuals = clipped - np.where(np.arange(n) < position, before, after)
    r = autocorrelation(residuals)
    independent = max(n * (1 - r) / (1 + r) - 2, 1.0)
    variance = float(residuals @ residuals) / max(n - 2, 1) * (1 + r) / (1 - r)
    freedom = independent + noise.weight
    sigma = max(math.sqrt((independent * variance + noise.weight * noise.sigma**2) / freedom), sigma_floor, 1e-9)
    weight = math.sqrt(position * (n - position) / n)
    difference = after - before
    half_width = _Z_95 * math.sqrt(1 + 2 / freedom) * sigma / weight
    return Shift(
        position=position,
        windows_after=n - position,
        before=before,
        after=after,
        effect=math.expm1(difference),
        ci=(math.expm1(difference - half_width), math.expm1(difference + half_width)),
        p_value=_tail(_normal_equivalent(abs(difference) * weight / sigma, freedom), max(margin, 1) / n),
        sigma=sigma,
    )


def without_spikes(values: Floats) -> Floats:
    """`values` with single spikes pulled in to three sigmas around their neighbours; shape kept."""
    centre = _local_medians(values)
    return centre + clip_outliers(values - centre, 0.0, robust_sigma(values - centre))


def _local_medians(values: Floats, width: int = 5) -> Floats:
    """Running medians of `width` values: they follow a step and pass over a spike; shape kept."""
    half = width // 2
    padded = np.pad(values, half, mode="edge")
    medians: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    return medians


def _normal_equivalent(t: float, freedom: float) -> float:
    """Normal score with about the tail of Student's t (Wallace 1959)."""
    return math.sqrt(max(freedom * math.log1p(t * t / freedom), 0.0)) * (1 - 2 / (8 * freedom + 3))


def _tail(score: float, edge: float) -> float:
    """P(sup |B(t)| / sqrt(t (1 - t)) > score) over edge <= t <= 1 - edge."""
    if score < 1.5:  # noqa: PLR2004 (the expansion holds in the tail only)
        return 1.0
    density = score * math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
    width = 2 * math.log((1 - edge) / edge) if edge < 0.5 else 0.0  # noqa: PLR2004 (half of the series)
    return min(1.0, density * ((1 - 1 / score**2) * width + 4 / score**2))
