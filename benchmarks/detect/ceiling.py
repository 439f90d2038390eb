"""What is possible at all: a scan for one change that knows the noise.

The generalised likelihood ratio of one shift at an unknown place between two unknown levels, in AR(1) noise of known
coefficient and standard deviation, its threshold set by simulation. Nobody who has to learn the noise from the
series can be expected to beat it.
"""

import numpy as np

from detect.series import Floats, ar1

MARGIN = 2  # points at least on either side of a split
NULL_BATCH = 1000


def whiten(values: Floats, rho: float) -> Floats:
    """Innovations of `values`, shape (rows, n), each of variance sigma^2 (1 - rho^2); shape kept.

    The first point has the stationary variance, so it is weighed with sqrt(1 - rho^2) (Prais and Winsten 1954);
    with it the whitening is the exact inverse square root of the covariance sigma^2 rho^|i - j|.
    """
    whitened = values.copy()
    whitened[:, 1:] -= rho * values[:, :-1]
    whitened[:, 0] *= np.sqrt(1 - rho * rho)
    return whitened


def likelihood_ratios(values: Floats, rho: float, sigma: float) -> Floats:
    """Twice the log likelihood ratio of a shift against none, for every split.

    `values` has the shape (rows, n); the result has the shape (rows, n - 2 MARGIN + 1), its column j being the split
    whose new level begins at index MARGIN + j. Known noise: the fall of the weighted sum of squares (generalised
    least squares) from one level to two. With the whitened indicator of the points before the split k

        b = (sqrt(1 - rho^2), 1 - rho, ..., 1 - rho, -rho at k, 0, ...)

    and of those from k on

        a = (0, ..., 1 at k, 1 - rho, ...),

    the sum of squares explained by both is a quadratic form of b'z and a'z with the inverse of their 2 x 2 Gram
    matrix; all sums over z are cumulative ones.
    """
    n = values.shape[1]
    z = whiten(values, rho)
    k = np.arange(MARGIN, n - MARGIN + 1)
    inner, first = 1 - rho, np.sqrt(1 - rho * rho)
    sums = np.cumsum(z[:, 1:], axis=1)  # of z[1] .. z[t], at column t - 1
    head, at, total = first * z[:, :1], z[:, k], sums[:, -1:]
    b_z = head + inner * sums[:, k - 2] - rho * at
    a_z = at + inner * (total - sums[:, k - 1])
    b_b = first**2 + (k - 1) * inner**2 + rho**2
    a_a = 1 + (n - k - 1) * inner**2
    b_a = -rho
    two_levels = (a_a * b_z**2 - 2 * b_a * b_z * a_z + b_b * a_z**2) / (a_a * b_b - b_a**2)
    one_level = (head + inner * total) ** 2 / (first**2 + (n - 1) * inner**2)
    ratios: Floats = (two_levels - one_level) / (sigma * first) ** 2
    return ratios


def scan(values: Floats, rho: float, sigma: float) -> tuple[Floats, Floats]:
    """The largest ratio of each row of `values`, shape (rows, n), and the index where its new level begins."""
    ratios = likelihood_ratios(values, rho, sigma)
    return ratios.max(axis=1), (MARGIN + ratios.argmax(axis=1)).astype(np.float64)


def threshold(random: np.random.Generator, rho: float, rows: int, points: int, alarm_rate: float) -> float:
    """The ratio that a share of `alarm_rate` of series without a change exceeds, from `rows` simulated ones."""
    largest = [
        scan(ar1(random, min(NULL_BATCH, rows - start), points, rho), rho, 1.0)[0]
        for start in range(0, rows, NULL_BATCH)
    ]
    return float(np.quantile(np.concatenate(largest), 1 - alarm_rate))
