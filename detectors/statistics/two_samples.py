"""Two tests for the difference of two samples, each as a two-sided p-value; scipy would take too much memory."""

import math

import numpy as np

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.normal import normal_tail

_STEPS_MAX = 300
_TINY = 1e-300
_PRECISION = 1e-14


def welch_p_value(before: Floats, after: Floats) -> float:
    """P-value of Welch's t-test for unequal variances; NaN where a sample has fewer than two values.

    Equal means without any spread give 1, different ones 0.
    """
    n, m = len(before), len(after)
    if min(n, m) < 2:  # noqa: PLR2004 (a spread needs two)
        return math.nan
    errors = float(before.var(ddof=1)) / n, float(after.var(ddof=1)) / m
    error = sum(errors)
    difference = float(after.mean() - before.mean())
    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    freedom = error**2 / (errors[0] ** 2 / (n - 1) + errors[1] ** 2 / (m - 1))
    t_squared = difference**2 / error
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t_squared))


def mann_whitney_p_value(before: Floats, after: Floats) -> float:
    """P-value of the U test of Mann and Whitney; NaN where a sample is empty.

    The normal approximation, corrected for ties and for continuity.
    """
    n, m = len(before), len(after)
    if min(n, m) == 0:
        return math.nan
    _, place, count = np.unique(np.concatenate((before, after)), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    whole = n + m
    ties = float((count.astype(np.float64) ** 3 - count).sum()) / (whole * (whole - 1))
    variance = n * m / 12 * (whole + 1 - ties)
    if variance <= 0:
        return 1.0
    return min(2 * normal_tail((abs(u - n * m / 2) - 0.5) / math.sqrt(variance)), 1.0)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b > 0 and x from 0 to 1.

    Lentz's continued fraction (Press et al., Numerical Recipes, 3rd edition, 6.4).
    """
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for step in range(1, _STEPS_MAX):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
