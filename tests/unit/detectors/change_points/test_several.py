"""Several levels at once: what a plateau and levels up and down are, and what noise is not.

Values are of the size of normal scores, which is what segmentation hands on.
"""

import math

import numpy as np
import pytest

from cyclewatch.detectors.change_points.several import levels_at_once
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.normal import normal_scores

MARGIN = 5


def noise(n: int, seed: int, phi: float = 0.0) -> Floats:
    """First-order autoregression of standard deviation 1, shape (n,)."""
    errors = np.random.default_rng(seed).normal(size=n + 300) * math.sqrt(1 - phi * phi)
    values: Floats = np.convolve(errors, phi ** np.arange(300.0))[300 : n + 300]
    return values


def levels(*parts: tuple[int, float]) -> Floats:
    """Levels one after the other, each given by its length and its height."""
    heights = np.array([height for _, height in parts], np.float64)
    return np.repeat(heights, [length for length, _ in parts])


def holds(positions: list[int], expected: list[int], within: int) -> bool:
    """Whether each expected place is among those found: what is too much is for the tests of segmentation."""
    return all(min((abs(one - place) for one in positions), default=within + 1) <= within for place in expected)


def found(truth: Floats, expected: list[int], within: int, phi: float = 0.0, series: int = 20) -> int:
    """In how many of `series` all expected places are found."""
    values = (truth + noise(len(truth), seed, phi) for seed in range(series))
    return sum(holds(levels_at_once(one, MARGIN), expected, within) for one in values)


@pytest.mark.parametrize(("length", "height"), [(10, 4.0), (20, 4.0), (30, 2.0), (30, 4.0), (60, 50.0)])
def test_a_plateau(length: int, height: float) -> None:
    begin = (500 - length) // 2
    truth = levels((begin, 0), (length, height), (500 - length - begin, 0))
    assert found(truth, [begin, begin + length], within=5) >= 18


def test_a_plateau_at_either_end() -> None:
    assert found(levels((300, 0), (30, 6), (30, 0)), [300, 330], within=2) >= 18
    assert found(levels((30, 0), (30, 6), (300, 0)), [30, 60], within=2) >= 18


@pytest.mark.parametrize("lasting", [20, 40, 80])
def test_levels_up_and_down(lasting: int) -> None:
    truth = levels(*((lasting, 4.0 * (number % 2)) for number in range(8)))
    assert found(truth, [lasting * number for number in range(1, 8)], within=3) >= 18


def test_levels_up_and_down_in_wandering_noise() -> None:
    truth = levels(*((80, 4.0 * (number % 2)) for number in range(8)))
    assert found(truth, [80 * number for number in range(1, 8)], within=5, phi=0.5) >= 14


def test_levels_without_noise() -> None:
    assert levels_at_once(levels((240, 0), (20, 1), (240, 0)), MARGIN) == [240, 260]
    assert levels_at_once(levels(*((20, number % 2) for number in range(8))), MARGIN) == list(range(20, 160, 20))


def test_levels_in_ranks() -> None:
    """As segmentation asks for them: whatever a level's height, it is where it is."""
    truth = levels((200, 0), (30, 1), (100, 0), (50, 1000), (120, 0))
    values = (truth + 0.1 * noise(500, seed) for seed in range(20))
    places = [levels_at_once(normal_scores(one), MARGIN) for one in values]
    assert sum(holds(one, [200, 230, 330, 380], within=10) for one in places) >= 18


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.5, 0.8, 0.9])
@pytest.mark.parametrize(("n", "most"), [(100, 3), (500, 1), (1000, 1)])
def test_noise_has_no_levels(n: int, most: int, phi: float) -> None:
    assert sum(bool(levels_at_once(noise(n, seed, phi), MARGIN)) for seed in range(30)) <= most


@pytest.mark.parametrize("n", range(4 * MARGIN))
def test_too_short_for_a_plateau(n: int) -> None:
    assert levels_at_once(noise(n, seed=n), MARGIN) == []
    assert levels_at_once(levels((n // 2, 0), (n - n // 2, 100)), MARGIN) == []


@pytest.mark.parametrize("n", [20, 21, 50, 500])
def test_values_that_never_move(n: int) -> None:
    assert levels_at_once(normal_scores(np.full(n, 3.0)), MARGIN) == []


@pytest.mark.parametrize("margin", [1, 2, 5, 20])
def test_positions_are_in_order_and_within(margin: int) -> None:
    random = np.random.default_rng(6)
    for seed in range(6):
        positions = levels_at_once(noise(400, seed) + np.repeat(random.normal(0, 6, 20), 20), margin)
        assert positions == sorted(set(positions))
        assert all(type(one) is int and margin <= one <= 400 - margin for one in positions)


def test_the_input_is_left_as_it_is() -> None:
    values = noise(200, seed=1) + levels((80, 0), (40, 5), (80, 0))
    before = values.copy()
    levels_at_once(values, MARGIN)
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize(("factor", "offset"), [(0.5, 0.0), (2.0, 0.0), (1.0, 1.0), (-1.0, 0.0)])
def test_scale_and_offset_move_nothing(factor: float, offset: float) -> None:
    values = noise(300, seed=2) + levels((120, 0), (40, 6), (140, 0))
    assert levels_at_once(values * factor + offset, MARGIN) == levels_at_once(values, MARGIN)
