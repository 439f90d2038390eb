"""Small robust estimators used by the workload model and the tests for shifts."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from cyclewatch.detectors.phases import Floats

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for normal data."""

_AUTOCORRELATION_MAX = 0.95


def robust_sigma(values: Floats) -> float:
    """Standard deviation by the median absolute deviation; 0 for fewer than two values.

    Falls back on the mean absolute deviation where more than half of the values are equal.
    """
    if len(values) < 2:  # noqa: PLR2004 (a spread needs two)
        return 0.0
    deviation = np.abs(values - np.median(values))
    sigma = MAD_TO_SIGMA * float(np.median(deviation))
    return sigma if sigma > 0 else 1.2533 * float(deviation.mean())


def quantiles(values: Floats, parts: Sequence[float]) -> tuple[float, ...]:
    """The values below which each of `parts`, from 0 to 1, of at least one value lies, linear between neighbours.

    As `np.quantile` has it, in a fifth of the time.
    """
    places = np.array(parts) * (len(values) - 1)
    return tuple(np.interp(places, np.arange(len(values)), np.sort(values)).tolist())


def clip_outliers(values: Floats, centre: float, sigma: float, limit: float = 3.0) -> Floats:
    """`values` pulled in to `limit` sigmas around `centre` (winsorised), shape kept."""
    if sigma <= 0:
        return values
    clipped: Floats = np.clip(values, centre - limit * sigma, centre + limit * sigma)
    return clipped


def autocorrelation(residuals: Floats) -> float:
    """Lag-1 autocorrelation, corrected for its bias in short series (Kendall 1954), within 0 and 0.95.

    Negative estimates count as 0: they would make noise look smaller than it may be.
    """
    n = len(residuals)
    energy = float(residuals @ residuals)
    if n < 4 or energy <= 0:  # noqa: PLR2004 (too short to say)
        return 0.0
    raw = float(residuals[1:] @ residuals[:-1]) / energy
    corrected = raw + (1 + 3 * raw) / n
    return min(max(corrected, 0.0), _AUTOCORRELATION_MAX)


def long_run_sigma(residuals: Floats) -> float:
    """Standard deviation that the mean of n neighbours has, times sqrt(n): sigma * sqrt((1 + r) / (1 - r)).

    The variance inflation of a first-order autoregression; `residuals` have the level removed.
    """
    sigma = robust_sigma(residuals)
    r = autocorrelation(clip_outliers(residuals, 0.0, sigma))
    return sigma * math.sqrt((1 + r) / (1 - r))


def nonnegative_least_squares(design: Floats, target: Floats) -> Floats:
    """Coefficients >= 0 that minimise |design @ x - target|, shape (p,), for a handful of columns.

    Tries every set of columns: exact, and for p <= 5 faster and simpler than an active-set method.
    """
    rows, columns = design.shape
    best, best_error = np.zeros(columns), float(target @ target)
    for size in range(1, min(columns, rows) + 1):
        for chosen in itertools.combinations(range(columns), size):
            part = design[:, chosen]
            solution, *_ = np.linalg.lstsq(part, target, rcond=None)
            if (solution < 0).any():
                continue
            residual = target - part @ solution
            error = float(residual @ residual)
            if error < best_error * (1 - 1e-9):
                best, best_error = np.zeros(columns), error
                best[list(chosen)] = solution
    return best
