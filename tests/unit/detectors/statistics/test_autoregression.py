"""Fitting, choosing and whitening with autoregressions."""

import math

import numpy as np
import pytest

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.autoregression import ORDER_MAX, choose_order, fit, fit_best, whiten


def wander(n: int, phi: tuple[float, ...], seed: int) -> Floats:
    """A stationary autoregression of standard normal errors, shape (n,)."""
    errors = np.random.default_rng(seed).normal(size=n + 200)
    values = np.zeros(n + 200)
    for t in range(len(phi), n + 200):
        values[t] = errors[t] + sum(one * values[t - lag] for lag, one in enumerate(phi, start=1))
    return values[200:]


@pytest.mark.parametrize("phi", [(0.5,), (0.8,), (0.5, 0.3), (0.6, -0.3), (0.3, 0.2, 0.2), (0.2, 0.1, 0.1, 0.4)])
def test_coefficients_are_found_again(phi: tuple[float, ...]) -> None:
    found = fit(wander(20_000, phi, seed=3), len(phi))
    np.testing.assert_allclose(found, phi, atol=0.03)


def test_no_coefficients_for_order_zero() -> None:
    assert fit(wander(50, (0.5,), seed=1), 0).shape == (0,)


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e-3, 1e8, 1e150])
def test_coefficients_do_not_care_for_scale(scale: float) -> None:
    """The ridge that keeps equal values from dividing by zero must not pull small values to independence."""
    values = wander(500, (0.5, 0.3), seed=4)
    np.testing.assert_allclose(fit(values * scale, 2), fit(values, 2), rtol=1e-9)


def test_the_sum_of_coefficients_is_held() -> None:
    walk = np.cumsum(np.random.default_rng(5).normal(size=2000))
    for order in range(1, ORDER_MAX + 1):
        assert 0 <= fit(walk - walk.mean(), order).sum() <= 0.97 + 1e-9
    growing: Floats = 1.1 ** np.arange(100.0)
    assert fit(growing, 1).sum() == pytest.approx(0.97)
    swinging: Floats = np.tile([1.0, -1.0], 50)
    assert fit(swinging, 1).tolist() == [0.0]
    assert fit(swinging, 3).sum() >= 0


def test_values_that_never_move_have_no_coefficients() -> None:
    for order in range(1, ORDER_MAX + 1):
        assert fit(np.zeros(100), order).tolist() == [0.0] * order


def test_independent_noise_mostly_has_order_zero() -> None:
    orders = [choose_order(np.random.default_rng(seed).normal(size=500)) for seed in range(100)]
    assert orders.count(0) >= 75


@pytest.mark.parametrize("phi", [(0.5,), (0.8,), (0.5, 0.3)])
def test_wandering_noise_has_an_order(phi: tuple[float, ...]) -> None:
    assert all(choose_order(wander(500, phi, seed)) >= len(phi) for seed in range(40))


def test_noise_that_repeats_four_values_later_has_order_four() -> None:
    assert choose_order(wander(1000, (0.0, 0.0, 0.0, 0.7), seed=1)) == 4


def order_by_fitting_each(residuals: Floats) -> int:
    """What `choose_order` says, the slow way."""
    n = len(residuals)
    order_max = min(ORDER_MAX, n // 25)
    errors = [whiten(residuals, fit(residuals, order))[order_max - order :] for order in range(order_max + 1)]
    return int(np.argmin([n * math.log(np.mean(one**2)) + 3 * order for order, one in enumerate(errors)]))


@pytest.mark.parametrize("n", [1, 24, 25, 60, 99, 100, 101, 750])
@pytest.mark.parametrize("phi", [(), (0.5,), (0.5, 0.3), (-0.5,), (0.6, -0.3), (0.2, 0.1, 0.1, 0.4), (1.0,)])
def test_orders_fitted_together_are_those_fitted_each_by_itself(phi: tuple[float, ...], n: int) -> None:
    for seed in range(5):
        values = 1e3 * wander(n, phi, seed)
        order = order_by_fitting_each(values)
        assert choose_order(values) == order
        np.testing.assert_allclose(fit_best(values), fit(values, order), rtol=1e-9)


@pytest.mark.parametrize("order", range(1, ORDER_MAX + 1))
def test_coefficients_are_those_of_least_squares(order: int) -> None:
    values = wander(300, (0.4, 0.2, 0.1), seed=9)
    before = np.column_stack([values[order - lag : 300 - lag] for lag in range(1, order + 1)])
    expected = np.linalg.lstsq(before, values[order:], rcond=None)[0]
    np.testing.assert_allclose(fit(values, order), expected, rtol=1e-6)


@pytest.mark.parametrize(("n", "most"), [(1, 0), (24, 0), (25, 1), (49, 1), (50, 2), (99, 3), (100, 4), (10_000, 4)])
def test_order_is_bounded_by_the_number_of_values(n: int, most: int) -> None:
    assert choose_order(np.cumsum(np.random.default_rng(2).normal(size=n))) <= most


def test_whitening_against_a_loop() -> None:
    values, phi = np.random.default_rng(6).normal(size=30), np.array([0.5, -0.2, 0.1])
    expected = [values[t] - sum(phi[lag] * values[t - 1 - lag] for lag in range(3)) for t in range(3, 30)]
    np.testing.assert_allclose(whiten(values, phi), expected)


def test_whitening_leaves_what_it_is_given() -> None:
    values = np.arange(10.0)
    assert whiten(values, np.zeros(0)).tolist() == values.tolist()
    whiten(values, np.zeros(0))[0] = 99
    whiten(values, np.array([0.5]))[0] = 99
    assert values.tolist() == list(range(10))


def test_whitening_of_columns_is_that_of_each() -> None:
    columns, phi = np.random.default_rng(7).normal(size=(40, 3)), np.array([0.4, 0.3])
    together = whiten(columns, phi)
    assert together.shape == (38, 3)
    for number in range(3):
        np.testing.assert_allclose(together[:, number], whiten(columns[:, number], phi))


def test_whitened_noise_is_independent_again() -> None:
    values = wander(10_000, (0.6, 0.2), seed=8)
    errors = whiten(values, fit(values, 2))
    for lag in range(1, 6):
        assert abs(float(errors[lag:] @ errors[:-lag]) / float(errors @ errors)) < 0.03
    assert errors.std() == pytest.approx(1, abs=0.03)
