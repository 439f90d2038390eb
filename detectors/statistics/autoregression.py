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

_TINY = float(np.finfo(np.float64).tiny)


def fit(residuals: Floats, order: int) -> Floats:
    """Coefficients phi, shape (order,), of x_t = phi_1 x_{t-1} + ... + e_t; `residuals`, shape (n,), have mean 0.

    Their sum is held between 0, below which means would vary less than those of independent noise, and 0.97.
    """
    return _solve(_equations(_delayed(residuals, order)[:, order:]))


def fit_best(residuals: Floats) -> Floats:
    """Coefficients of the order with the least penalised error: 0 to `ORDER_MAX`, and to one coefficient for 25 points.

    Errors are compared over the values that the highest order predicts. Over these all orders share their products, to
    which each adds its own few: that takes half of the time of a fit for each.
    """
    n = len(residuals)
    order_max = min(ORDER_MAX, n // _POINTS_PER_ORDER)
    delayed = _delayed(residuals, order_max)
    compared = delayed[:, order_max:]
    shared = _equations(compared)
    best, least = np.zeros(0), math.inf
    for order in range(order_max + 1):
        own = _equations(delayed[: order + 1, order:order_max])
        phi = _solve(shared[:order, : order + 1] + own)
        errors = np.concatenate(([1.0], -phi)) @ compared[: order + 1]
        cost = n * math.log(max(float(errors @ errors) / len(errors), 1e-300)) + _PENALTY * order
        if cost < least:
            best, least = phi, cost
    return best


def choose_order(residuals: Floats) -> int:
    """The order that `fit_best` takes."""
    return len(fit_best(residuals))


def whiten(values: Floats, phi: Floats) -> Floats:
    """`values`, shape (n,) or (n, k), less what the p values before predict: shape (n - p,) or (n - p, k)."""
    order, n = len(phi), len(values)
    errors = values[order:].copy()
    for lag, coefficient in enumerate(phi, start=1):
        errors -= coefficient * values[order - lag : n - lag]
    return errors


def _delayed(values: Floats, order: int) -> Floats:
    """`values`, shape (n,), as they are and 1, ..., `order` places later, after zeros; shape (order + 1, n)."""
    n = len(values)
    delayed = np.zeros((order + 1, n))
    for lag in range(order + 1):
        delayed[lag, lag:] = values[: n - lag]
    return delayed


def _equations(delayed: Floats) -> Floats:
    """Normal equations of an autoregression, shape (p, p + 1), right side first, from `delayed`, shape (p + 1, n)."""
    products: Floats = delayed[1:] @ delayed.T
    return products


def _solve(equations: Floats) -> Floats:
    """Coefficients, shape (p,), from normal equations, shape (p, p + 1), their sum held as `fit` says."""
    order = len(equations)
    if order == 0:
        return np.zeros(0)
    gram = equations[:, 1:]
    gram.flat[:: order + 1] += 1e-9 * gram.diagonal() + _TINY  # keeps values that never move from dividing by zero
    phi: Floats = np.asarray(np.linalg.solve(gram, equations[:, 0]), np.float64)
    total = float(phi.sum())
    if total < 0:
        return np.zeros(order)
    return phi * (_PERSISTENCE_MAX / total) if total > _PERSISTENCE_MAX else phi
