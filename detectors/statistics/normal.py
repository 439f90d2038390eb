"""The normal distribution, as far as detection needs it: scipy would take more memory than the whole daemon."""

import math

import numpy as np

from cyclewatch.detectors.phases import Floats

_CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 2.1858087e-04, -1.25372503e-03)
_CENTRAL_END = (-4.17768164e-03, 0.246640727, 1.50140941)
_TAIL = (-2.00214257e-04, 1.00950558e-04, 1.34934322e-03, -3.67342844e-03, 5.73950773e-03, -7.6224613e-03)
_TAIL_END = (9.43887047e-03, 1.00167406, 2.83297682)


def normal_tail(score: float) -> float:
    """P(Z > score)."""
    return 0.5 * math.erfc(score / math.sqrt(2))


def normal_quantile(probability: Floats) -> Floats:
    """The z with P(Z < z) = probability, for 0 < probability < 1, to seven digits; shape kept.

    Giles, Approximating the erfinv function, GPU Computing Gems 2, 2011, listing 5 (single precision).
    """
    w = -np.log(4 * probability * (1 - probability))
    central = np.polyval((*_CENTRAL, *_CENTRAL_END), w - 2.5)
    tail = np.polyval((*_TAIL, *_TAIL_END), np.sqrt(np.maximum(w, 0.0)) - 3.0)
    quantile: Floats = math.sqrt(2) * (2 * probability - 1) * np.where(w < 5, central, tail)  # noqa: PLR2004 (ibid.)
    return quantile


def normal_scores(values: Floats) -> Floats:
    """`values` with the k-th smallest of n replaced by the normal quantile of (k - 1/2) / n; equal ones stay equal."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - count / 2
    scores: Floats = normal_quantile(middle / len(values))[place]
    return scores


def overshoot_factor(apart: Floats) -> Floats:
    """nu(x) of Siegmund, the share of crossings that are seen at steps of size x; within 1 and 0, shape kept.

    nu(x) = (2 / x) (Phi(x / 2) - 1 / 2) / ((x / 2) Phi(x / 2) + phi(x / 2)), Siegmund and Yakir 2007, eq. 5.8.
    """
    half = np.maximum(apart, 1e-6) / 2
    density = np.exp(-half * half / 2) / math.sqrt(2 * math.pi)
    below = _normal_cdf(half)
    factor: Floats = (below - 0.5) / half / (half * below + density)
    return factor


def _normal_cdf(z: Floats) -> Floats:
    """P(Z < z) for z >= 0, to 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * z)
    series = t * np.polyval((1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530), t)
    cdf: Floats = 1 - np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * series
    return cdf
