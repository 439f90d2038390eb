import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.detectors.statistics.robust import (
    autocorrelation,
    long_run_sigma,
    nonnegative_least_squares,
    quantiles,
    robust_sigma,
)

FINITE = st.integers(-(10**6), 10**6).map(lambda number: number / 8)


@given(st.lists(FINITE, min_size=2, max_size=40), st.floats(0.01, 100), FINITE)
def test_robust_sigma_scales_and_does_not_shift(values: list[float], scale: float, shift: float) -> None:
    """The estimator is equivariant: sigma(a x + b) = a sigma(x)."""
    array = np.array(values)
    assert robust_sigma(scale * array + shift) == pytest.approx(scale * robust_sigma(array), rel=1e-6, abs=1e-6)


def test_robust_sigma_of_normal_data_with_spikes_is_the_normal_sigma() -> None:
    """One value in a hundred far off moves it by little."""
    values = np.random.default_rng(1).normal(0, 2, 5000)
    values[::100] += 1000
    assert robust_sigma(values) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("truth", [0.0, 0.5, 0.8])
def test_autocorrelation_of_a_short_series_is_right_on_average(truth: float) -> None:
    """The correction for bias holds where it matters: 60 values."""
    random = np.random.default_rng(2)
    estimates = []
    for _ in range(400):
        values = np.zeros(160)
        for at in range(1, 160):
            values[at] = truth * values[at - 1] + random.normal()
        tail = values[-60:]
        estimates.append(autocorrelation(tail - tail.mean()))
    assert np.mean(estimates) == pytest.approx(truth, abs=0.08)


def test_long_run_sigma_grows_with_correlation() -> None:
    """AR(1) of 0.5: sqrt(3) times the plain sigma."""
    random = np.random.default_rng(3)
    values = np.zeros(20_000)
    for at in range(1, len(values)):
        values[at] = 0.5 * values[at - 1] + random.normal()
    assert long_run_sigma(values) == pytest.approx(robust_sigma(values) * 3**0.5, rel=0.05)


@given(st.lists(st.floats(0, 10), min_size=3, max_size=3), st.integers(0, 1000))
def test_least_squares_finds_nonnegative_coefficients_exactly(truth: list[float], seed: int) -> None:
    """Without noise the true coefficients come back."""
    design = np.random.default_rng(seed).uniform(0.1, 1.0, (20, 3))
    found = nonnegative_least_squares(design, design @ np.array(truth))
    assert found == pytest.approx(truth, abs=1e-4)


def test_least_squares_never_gives_a_negative_coefficient() -> None:
    """A falling trend is answered with a constant."""
    design = np.stack([np.ones(10), np.arange(10.0)], axis=1)
    found = nonnegative_least_squares(design, 10.0 - np.arange(10.0))
    assert found[1] == 0
    assert found[0] == pytest.approx(5.5)


@given(st.lists(FINITE, min_size=1, max_size=40), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_are_those_of_numpy(values: list[float], parts: list[float]) -> None:
    assert quantiles(np.array(values), parts) == pytest.approx(np.quantile(values, parts), rel=1e-9, abs=1e-6)
