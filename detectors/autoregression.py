"""Noise whose neighbours move together: autoregressions, fitted by least squares, and whitening with them."""

import math

import numpy as np

from cyclewatch.detectors.phases import Floats

ORDER_MAX = 4
_POINTS_PER_ORDER = 25
_PENALTY = 3.0
"""Penalty of one more coefficient: between Akaike's 2, which takes too many in long series, and Schwarz's log n, which
takes too few where noise is a sum of a wandering and of an independent part."""

_PERSISTENCE_MAX = 0.97
"""Largest sum of coefficients: above, noise would be a random walk, and nothing a shift."""


def fit(residuals: Floats, order: int) -> Floats:
    """Coefficients phi, shape (order,), of x_t = phi_1 x_{t-1} + ... + e_t; `residuals`, shape (n,), have mean 0.

    Their sum is held between 0, below which means would vary less than those of independent noise, and 0.97.
    """
    if order == 0:
        return np.zeros(0)
    n = len(residuals)
    lagged = np.stack([residuals[order - lag : n - lag] for lag in range(1, order + 1)])
    gram = lagged @ lagged.T
    gram[np.diag_indices(order)] += 1e-9 * gram.diagonal() + np.finfo(np.float64).tiny
    phi: Floats = np.asarray(np.linalg.solve(gram, lagged @ residuals[order:]), np.float64)
    total = float(phi.sum())
    if total < 0:
        return np.zeros(order)
    return phi * (_PERSISTENCE_MAX / total) if total > _PERSISTENCE_MAX else phi


def fit_best(residuals: Floats) -> Floats:
    """Coefficients of the order that `choose_order` gives, shape (order,)."""
    return fit(residuals, choose_order(residuals))


def choose_order(residuals: Floats) -> int:
    """The order with the least penalised error: 0 to `ORDER_MAX`, and to one coefficient for 25 points."""
    n = len(residuals)
    order_max = min(ORDER_MAX, n // _POINTS_PER_ORDER)
    costs = []
    for order in range(order_max + 1):
        errors = whiten(residuals, fit(residuals, order))[order_max - order :]
        costs.append(n * math.log(max(float(errors @ errors) / len(errors), 1e-300)) + _PENALTY * order)
    return int(np.argmin(costs))


def whiten(values: Floats, phi: Floats) -> Floats:
    """`values`, shape (n,) or (n, k), less what the p values before predict: shape (n - p,) or (n - p, k)."""
    order, n = len(phi), len(values)
    errors = values[order:].copy()
    for lag, coefficient in enumerate(phi, start=1):
        errors -= coefficient * values[order - lag : n - lag]
    return errors
