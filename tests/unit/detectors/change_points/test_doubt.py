"""A shift beside what the expectation may be wrong by."""

import math

import numpy as np
import pytest

from cyclewatch.detectors.change_points.doubt import beside_doubt
from cyclewatch.detectors.change_points.shift import Shift, shift_at
from cyclewatch.detectors.phases import Floats

SIGMA, PHI = 0.02, 0.5
N, AT = 600, 500
ERROR = 0.01
"""How far the level moves for one standard deviation of the model's error, where the load is as high as it gets."""


def noise(seed: int) -> Floats:
    errors = np.random.default_rng(seed).normal(size=N + 100) * SIGMA * math.sqrt(1 - PHI**2)
    values: Floats = np.convolve(errors, PHI ** np.arange(100.0))[100 : N + 100]
    return values


def load(*high: tuple[int, int]) -> Floats:
    """1 in these stretches, 0 elsewhere, shape (n,)."""
    level = np.zeros(N)
    for begin, end in high:
        level[begin:end] = 1.0
    return level


def shift(values: Floats) -> Shift:
    return shift_at(values, AT, np.array([PHI]))


def beside(values: Floats, doubts: Floats) -> tuple[Shift, Shift]:
    """The shift alone, and beside the doubts."""
    alone = shift(values)
    return alone, beside_doubt(alone, values, doubts, np.array([PHI]))


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_a_load_that_stays_takes_nothing_from_a_shift(constant: float) -> None:
    """Whatever the model is wrong by is the same before and after."""
    values = noise(1) + 0.03 * (np.arange(N) >= AT)
    alone, found = beside(values, np.full((N, 1), constant))
    assert found.difference == pytest.approx(alone.difference, rel=0.1)
    assert found.error == pytest.approx(alone.error, rel=1e-4)
    assert found.p_value == pytest.approx(alone.p_value, rel=0.1)


def test_a_shift_that_came_with_the_load_may_be_an_error_of_the_model() -> None:
    """Nothing tells the two apart: as large as it was, and not sure at all."""
    values = noise(2) + 0.02 * (np.arange(N) >= AT)
    alone, found = beside(values, ERROR * load((AT, N))[:, None])
    assert found.difference == pytest.approx(alone.difference, rel=0.1)
    assert found.error == pytest.approx(math.hypot(alone.error, ERROR), rel=0.1)
    assert alone.p_value < 1e-6
    assert found.p_value > 0.01


def test_other_stretches_of_the_same_load_tell_that_it_is_one() -> None:
    """The level was as high before whenever the load was."""
    high = load((50, 150), (250, 350), (AT, N))
    values = noise(3) + 0.02 * high
    alone, found = beside(values, ERROR * high[:, None])
    assert abs(found.difference) < 0.4 * alone.difference
    assert found.p_value > 0.01


def test_and_that_it_is_none() -> None:
    """The load has been there before, and the level was not."""
    high = load((50, 150), (250, 350), (AT, N))
    _, found = beside(noise(4) + 0.03 * (np.arange(N) >= AT), ERROR * high[:, None])
    assert found.difference == pytest.approx(0.03, abs=3 * found.error)
    assert found.p_value < 1e-4


def test_doubt_never_makes_a_shift_surer() -> None:
    """Not even where estimated errors make it larger."""
    random = np.random.default_rng(5)
    for seed in range(20):
        values = noise(seed) + 0.02 * (np.arange(N) >= AT)
        alone, found = beside(values, ERROR * random.normal(size=(N, 3)).cumsum(axis=0) / math.sqrt(N))
        assert found.p_value >= alone.p_value
        assert found.error >= alone.error * (1 - 1e-9)
        assert (found.position, found.before) == (alone.position, alone.before)


def test_spikes_do_not_pass_for_an_error_of_the_model() -> None:
    """Doubts that are large where the spikes are."""
    values = noise(6) + 0.03 * (np.arange(N) >= AT)
    spikes = np.zeros(N)
    spikes[[20, 120, 220, 320, 520]] = 1.0
    _, clean = beside(values, ERROR * spikes[:, None])
    _, found = beside(values + 5.0 * spikes, ERROR * spikes[:, None])
    assert found.difference == pytest.approx(clean.difference, abs=clean.error)
