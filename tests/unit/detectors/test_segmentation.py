import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.detectors.segmentation import most_likely_shift


def _noise(seed: int, size: int, correlation: float = 0.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.normal(0, 0.02, size)
    for at in range(1, size):
        values[at] += correlation * values[at - 1]
    return values


def test_a_step_is_found_where_it_is_and_as_large_as_it_is() -> None:
    """10 % after 60 of 100 windows."""
    values = _noise(1, 100)
    values[60:] += np.log(1.1)
    shift = most_likely_shift(values, 6, 6)
    assert shift is not None
    assert abs(shift.position - 60) <= 1
    assert shift.effect == pytest.approx(0.1, abs=0.015)
    assert shift.ci[0] < 0.1 < shift.ci[1]
    assert shift.p_value < 1e-6


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_p_value_is_honest_under_autocorrelation(correlation: float) -> None:
    """Of 300 series without a shift, at most about 1 % have a p-value below 1 % (with its sampling error)."""
    small = sum(
        (shift := most_likely_shift(_noise(seed, 120, correlation), 6, 6)) is not None and shift.p_value < 0.01
        for seed in range(300)
    )
    assert small <= 9


def test_spikes_are_no_shift() -> None:
    """Three spikes of twenty sigmas, side by side with nothing else."""
    values = _noise(4, 100)
    values[[30, 60, 61]] += 0.4
    shift = most_likely_shift(values, 6, 6)
    assert shift is not None
    assert shift.p_value > 0.01


def test_a_constant_series_has_no_shift() -> None:
    """No noise and no change: p is 1."""
    shift = most_likely_shift(np.zeros(50), 6, 6)
    assert shift is not None
    assert shift.p_value == 1.0


def test_too_short_a_series_gives_none() -> None:
    """Fewer values than both sides need."""
    assert most_likely_shift(np.zeros(11), 6, 6) is None
    assert most_likely_shift(np.zeros(0), 6, 6) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(-5, 5))
def test_shifting_the_whole_series_moves_nothing(seed: int, offset: float) -> None:
    """Levels are relative: the verdict of x + c is the one of x."""
    values = _noise(seed, 60)
    values[30:] += 0.05
    one, other = most_likely_shift(values, 6, 6), most_likely_shift(values + offset, 6, 6)
    assert one is not None
    assert other is not None
    assert one.position == other.position
    assert one.effect == pytest.approx(other.effect, abs=1e-9)
    assert one.p_value == pytest.approx(other.p_value, rel=1e-5)
