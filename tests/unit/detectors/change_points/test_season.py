"""Finding waves, and nothing but waves."""

import math

import numpy as np
import pytest

from cyclewatch.detectors.change_points.season import seasons
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.normal import normal_scores


def noise(n: int, seed: int, phi: float = 0.0) -> Floats:
    """First-order autoregression of standard deviation 1, shape (n,)."""
    errors = np.random.default_rng(seed).normal(size=n + 300) * math.sqrt(1 - phi * phi)
    values: Floats = np.convolve(errors, phi ** np.arange(300.0))[300 : n + 300]
    return values


def wave(n: int, turns: float, amplitude: float = 1.0) -> Floats:
    sine: Floats = amplitude * np.sin(2 * math.pi * turns * np.arange(n) / n + 1.0)
    return sine


def left_over(values: Floats, columns: Floats) -> float:
    """Part of the variance of `values` that the columns do not explain."""
    rest = values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]
    return float(rest.var() / values.var())


@pytest.mark.parametrize("turns", [10.0, 10.37, 24.5, 60.8])
def test_a_wave_is_found_whole_or_not(turns: float) -> None:
    for seed in range(5):
        columns = seasons(noise(500, seed) + wave(500, turns))
        assert columns is not None
        assert left_over(wave(500, turns), columns) < 0.03


def test_a_wave_is_found_in_wandering_noise() -> None:
    columns = seasons(noise(1000, seed=1, phi=0.5) + wave(1000, 41.0))
    assert columns is not None
    assert left_over(wave(1000, 41.0), columns) < 0.05


@pytest.mark.parametrize("turns", [9.6, 33.21])
def test_no_frequency_nearby_explains_more(turns: float) -> None:
    """Against each tried by itself, to the tenth of a tenth of a turn to which `seasons` looks."""
    values = normal_scores(noise(600, seed=7) + wave(600, turns, 2.0))
    columns = seasons(values)
    assert columns is not None
    angle = 2 * math.pi * np.arange(600) / 600
    near = np.arange(turns - 0.3, turns + 0.3, 0.01)
    best = max(abs(values @ np.exp(1j * angle * one)) for one in near)
    assert math.hypot(*(values @ columns[:, :2])) >= 0.9999 * best


def test_two_waves() -> None:
    both = wave(800, 12.0) + wave(800, 50.3, 1.5)
    columns = seasons(noise(800, seed=2) + both)
    assert columns is not None
    assert columns.shape == (800, 4)
    assert left_over(both, columns) < 0.03


def test_at_most_three_waves() -> None:
    values = noise(2000, seed=3) + sum(wave(2000, turns, 2.0) for turns in (20, 60, 110, 170, 230))
    columns = seasons(values)
    assert columns is not None
    assert columns.shape == (2000, 6)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_noise_has_no_season(phi: float) -> None:
    assert [seed for seed in range(60) if seasons(noise(500, seed, phi)) is not None] == []


def test_heavy_tails_have_no_season() -> None:
    found = [seed for seed in range(60) if seasons(np.random.default_rng(seed).standard_cauchy(500)) is not None]
    assert found == []


@pytest.mark.parametrize("height", [1.0, 3.0, 100.0])
@pytest.mark.parametrize("at", [50, 250, 437])
def test_a_step_has_no_season(height: float, at: int) -> None:
    step = np.where(np.arange(500) >= at, height, 0.0)
    assert seasons(noise(500, seed=4) + step) is None
    assert seasons(step) is None


def test_shifts_up_and_down_at_irregular_places_are_no_season() -> None:
    levels = np.repeat([0.0, 3.0, 0.0, 3.0, 0.0], [60, 110, 90, 140, 100])
    assert [seed for seed in range(30) if seasons(noise(500, seed) + levels) is not None] == []


def test_a_wave_next_to_a_step_is_found() -> None:
    columns = seasons(noise(500, seed=5) + wave(500, 25.0, 2.0) + 2.0 * (np.arange(500) >= 200))
    assert columns is not None
    assert left_over(wave(500, 25.0), columns) < 0.05


@pytest.mark.parametrize("n", [0, 1, 5, 100, 143])
def test_too_few_values_for_a_background(n: int) -> None:
    assert seasons(wave(n, 10.0)) is None


def test_values_that_never_move_have_no_season() -> None:
    assert seasons(np.full(500, 3.0)) is None


def test_scale_and_offset_change_nothing() -> None:
    values = np.round(noise(500, seed=6) + wave(500, 20.0), 3)
    plain, moved = seasons(values), seasons(values * 1e-9 - 3e-6)
    assert plain is not None
    assert moved is not None
    np.testing.assert_allclose(moved, plain)
