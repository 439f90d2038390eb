"""The test for one shift: place, size, certainty."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.detectors.change_points.shift import Z_95, Shift, most_likely_shift, shift_at, worth_testing
from cyclewatch.detectors.phases import Floats

MARGIN = 5


def noise(n: int, seed: int, phi: float = 0.0) -> Floats:
    """First-order autoregression of standard deviation 1, shape (n,)."""
    errors = np.random.default_rng(seed).normal(size=n + 300) * math.sqrt(1 - phi * phi)
    values: Floats = np.convolve(errors, phi ** np.arange(300.0))[300 : n + 300]
    return values


def stepped(n: int, at: int, height: float, seed: int, phi: float = 0.0) -> Floats:
    values: Floats = noise(n, seed, phi) + height * (np.arange(n) >= at)
    return values


def shift_of(values: Floats, margin: int = MARGIN, seasons: Floats | None = None, phi: Floats | None = None) -> Shift:
    shift = most_likely_shift(values, margin, seasons, phi)
    assert shift is not None
    return shift


@pytest.mark.parametrize("phi", [0.0, 0.5])
@pytest.mark.parametrize("at", [30, 100, 170])
def test_place_and_levels(at: int, phi: float) -> None:
    for seed in range(10):
        shift = shift_of(10 + stepped(200, at, 5.0, seed, phi))
        assert abs(shift.position - at) <= 1
        assert shift.values_after == 200 - shift.position
        assert shift.before == pytest.approx(10, abs=5 * shift.sigma / math.sqrt(at))
        assert shift.after == pytest.approx(15, abs=5 * shift.sigma / math.sqrt(200 - at))
        assert shift.difference == shift.after - shift.before
        assert shift.p_value < 1e-4


@pytest.mark.parametrize("margin", [1, 2, 5, 20])
def test_margin_is_kept(margin: int) -> None:
    values = np.concatenate([np.full(margin, 9.0), np.zeros(40), np.full(margin, 9.0)])
    values = values + 0.1 * noise(len(values), seed=1)
    for series in (values, values[: 40 + margin], values[margin:]):
        assert margin <= shift_of(series, margin).position <= len(series) - margin


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_the_interval_holds_the_truth_in_nineteen_of_twenty(phi: float) -> None:
    """150 series: 142.5 and three standard errors of 2.7, and a little for what is estimated."""
    held = 0
    for seed in range(150):
        shift = shift_of(stepped(500, 300, 4.0, seed, phi))
        held += abs(shift.difference - 4.0) <= Z_95 * shift.error
    assert 132 <= held <= 149


@pytest.mark.parametrize(
    ("sigmas", "lengths", "phi"),
    [
        ((0.1, 1.0), (200, 50), 0.0),
        ((0.1, 1.0), (100, 100), 0.0),
        ((0.3, 1.0), (200, 50), 0.0),
        ((1.0, 0.1), (50, 200), 0.0),
        ((0.1, 1.0), (100, 100), 0.5),
    ],
)
def test_the_interval_holds_the_truth_where_one_side_is_noisier(
    sigmas: tuple[float, float], lengths: tuple[int, int], phi: float
) -> None:
    """Of 60 series 57, with three standard errors of 1.7, and two for what is estimated; and the mean is not off."""
    at, n = lengths[0], sum(lengths)
    missed, errors = [], []
    for seed in range(60):
        shift = shift_of(noise(n, seed, phi) * np.repeat(sigmas, lengths) + 20.0 * (np.arange(n) >= at))
        errors.append(shift.difference - 20.0)
        missed += [seed] * (abs(errors[-1]) > Z_95 * shift.error)
    assert len(missed) <= 10, f"missed with seeds {missed}"
    assert abs(np.mean(errors)) < 4 * np.std(errors) / math.sqrt(60)


def test_the_error_of_the_old_level_is_of_its_own_noise() -> None:
    for seed in range(5):
        values = noise(300, seed) * np.where(np.arange(300) < 200, 0.1, 1.0) + 20.0 * (np.arange(300) >= 200)
        assert shift_of(values).error_before == pytest.approx(0.1 / math.sqrt(200), rel=0.7)
        assert shift_of(values[::-1].copy()).error_before == pytest.approx(1.0 / math.sqrt(100), rel=0.4)


def test_skewed_noise_moves_no_level() -> None:
    """What is pulled in is far outside on either side of either level, not above one and below the other."""
    ratios = []
    for seed in range(40):
        values = np.random.default_rng(seed).lognormal(0, 0.3, 400) * np.repeat([1.0, 3.0], 200)
        shift = shift_of(values)
        ratios.append(shift.after / shift.before)
    assert np.mean(ratios) == pytest.approx(3, rel=0.015)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_p_values_hold_what_they_promise(phi: float) -> None:
    """Of 200 series without a shift 2 are below 0.01 and 10 below 0.05, with three standard errors of 1.4 and 3.1."""
    p_values = np.array([shift_of(noise(500, 1000 + seed, phi)).p_value for seed in range(200)])
    assert (p_values < 0.01).sum() <= 6
    assert 1 <= (p_values < 0.05).sum() <= 19


def test_p_values_hold_under_heavy_tails_and_spikes() -> None:
    random = np.random.default_rng(9)
    series = [random.standard_t(3, 500) for _ in range(150)]
    series += [random.normal(size=500) + 10 * (random.uniform(size=500) < 0.01) for _ in range(150)]
    assert sum(shift_of(values).p_value < 0.01 for values in series) <= 9


def test_the_long_run_sigma_of_wandering_noise() -> None:
    """An autoregression of 0.5 and standard deviation 1 has a mean that varies sqrt(3) times as much."""
    sigmas = [shift_of(stepped(1000, 500, 3.0, seed, 0.5)).sigma for seed in range(20)]
    assert np.median(sigmas) == pytest.approx(math.sqrt(3), rel=0.1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    exponent=st.integers(-12, 12),
    offset=st.floats(-1000, 1000),
    phi=st.sampled_from([0.0, 0.6]),
)
def test_scale_and_offset_move_nothing(seed: int, exponent: int, offset: float, phi: float) -> None:
    values, scale = stepped(120, 70, 2.0, seed, phi), 10.0**exponent
    plain, moved = shift_of(values), shift_of((values + offset) * scale)
    assert moved.position == plain.position
    assert moved.p_value == pytest.approx(plain.p_value, rel=1e-4, abs=1e-12)
    assert moved.difference / scale == pytest.approx(plain.difference, rel=1e-4, abs=1e-6)
    assert moved.error / scale == pytest.approx(plain.error, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), phi=st.sampled_from([0.0, 0.6]))
def test_upside_down_moves_nothing(seed: int, phi: float) -> None:
    values = stepped(120, 70, 2.0, seed, phi)
    plain, turned = shift_of(values), shift_of(-values)
    assert turned.position == plain.position
    assert turned.p_value == pytest.approx(plain.p_value, rel=1e-6, abs=1e-12)
    assert turned.difference == pytest.approx(-plain.difference, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), phi=st.sampled_from([0.0, 0.5]))
def test_backwards_the_same_large_shift_is_found(seed: int, phi: float) -> None:
    """Whitening looks back only, so the numbers differ a little, but not what they say."""
    values = stepped(200, 120, 6.0, seed, phi)
    forth, back = shift_of(values), shift_of(values[::-1].copy())
    assert abs(back.position - (200 - forth.position)) <= 1
    assert back.difference == pytest.approx(-forth.difference, abs=forth.error)
    assert back.p_value < 1e-4
    assert forth.p_value < 1e-4


@pytest.mark.parametrize("spike", [30.0, -30.0, 1e6, 1e15])
def test_spikes_are_no_shift_and_hide_none(spike: float) -> None:
    alarms = 0
    for seed in range(40):
        values, shifted = noise(300, seed), stepped(300, 200, 2.0, seed)
        for series in (values, shifted):
            series[[20, 21, 150, 290]] += spike
        alarms += shift_of(values).p_value < 0.01
        shift = shift_of(shifted)
        assert abs(shift.position - 200) <= 6
        assert shift.p_value < 1e-6
        assert shift.difference == pytest.approx(2.0, abs=0.6)
    assert alarms <= 3


@pytest.mark.parametrize("at", [0, 4, 195, 199])
def test_one_far_value_at_the_very_end_is_no_shift(at: int) -> None:
    """One of the five that a level needs, whose median it does not move."""
    alarms = 0
    for seed in range(60):
        values = noise(200, seed)
        values[at] += 15
        alarms += shift_of(values).p_value < 0.01
    assert alarms <= 4


@pytest.mark.parametrize("n", [10, 20, 500])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.7e5])
def test_a_series_that_never_moves(n: int, value: float) -> None:
    assert most_likely_shift(np.full(n, value), MARGIN) is None


@pytest.mark.parametrize("n", range(10))
def test_too_short(n: int) -> None:
    assert most_likely_shift(noise(n, seed=0), MARGIN) is None


def test_a_margin_of_nothing() -> None:
    assert most_likely_shift(noise(50, seed=0), 0) is None


@pytest.mark.parametrize("n", range(2, 12))
def test_short_series_with_a_long_memory(n: int) -> None:
    """Whitening takes the first four values: what is left may be too short, but never breaks."""
    shift = most_likely_shift(noise(n, seed=0), 1, phi=np.array([0.3, 0.2, 0.1, 0.1]))
    assert shift is None or (0 < shift.position < n and math.isfinite(shift.p_value))


@pytest.mark.parametrize(("before", "after"), [(5, 5), (5, 95), (100, 100), (395, 5)])
def test_a_step_without_noise(before: int, after: int) -> None:
    shift = shift_of(np.repeat([2.0, 3.0], [before, after]))
    assert shift.position == before
    assert shift.before == pytest.approx(2.0)
    assert shift.after == pytest.approx(3.0)
    assert shift.p_value < 0.001


def test_known_noise_is_not_fitted() -> None:
    """Over 40 values wandering noise passes for independent; known from elsewhere, it does not."""
    phi = np.array([0.8])
    own = [shift_of(noise(40, seed, 0.8)).p_value < 0.01 for seed in range(200)]
    known = [shift_of(noise(40, seed, 0.8), phi=phi).p_value < 0.01 for seed in range(200)]
    assert sum(known) <= 8 < sum(own)


def test_a_wave_that_is_known_is_no_shift() -> None:
    angle = 2 * math.pi * np.arange(200) * 2 / 200
    wave = np.column_stack([np.cos(angle), np.sin(angle)])
    for seed in range(10):
        values = noise(200, seed) + 3 * wave[:, 1]
        assert shift_of(values, seasons=wave).p_value > 0.001
        shift = shift_of(values + 3 * (np.arange(200) >= 120), seasons=wave)
        assert abs(shift.position - 120) <= 4
        assert shift.difference == pytest.approx(3, abs=4 * shift.error)


def test_columns_that_say_the_same_twice_do_no_harm() -> None:
    angle = 2 * math.pi * np.arange(100) * 5 / 100
    wave = np.column_stack([np.cos(angle), np.sin(angle)] * 2)
    shift = shift_of(stepped(100, 50, 5.0, seed=1), seasons=wave)
    assert abs(shift.position - 50) <= 1
    assert math.isfinite(shift.error)


def test_shift_at_a_known_place() -> None:
    for seed in range(10):
        shift = shift_at(stepped(100, 60, 2.0, seed), 60, np.zeros(0))
        assert shift.position == 60
        assert shift.difference == pytest.approx(2.0, abs=4 * shift.error)
        assert shift.p_value < 1e-3


def test_a_known_place_needs_less_than_one_sought() -> None:
    values = stepped(200, 100, 0.5, seed=3)
    sought = shift_of(values)
    assert shift_at(values, sought.position, np.zeros(0)).p_value < sought.p_value


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_p_values_of_a_known_place(phi: float) -> None:
    known = np.array([phi]) if phi else np.zeros(0)
    p_values = np.array([shift_at(noise(300, seed, phi), 150, known).p_value for seed in range(400)])
    assert (p_values < 0.01).sum() <= 12


@pytest.mark.parametrize("position", [1, 2, 3, 98, 99])
def test_shift_at_the_very_ends(position: int) -> None:
    shift = shift_at(stepped(100, position, 50.0, seed=2, phi=0.8), position, np.array([0.4, 0.2, 0.1, 0.1]))
    assert shift.position == position
    assert shift.difference == pytest.approx(50, abs=10)


@pytest.mark.parametrize("position", [-1, 0, 100, 101])
def test_no_shift_at_or_beyond_the_ends(position: int) -> None:
    with pytest.raises(ValueError, match="no shift of 100 values"):
        shift_at(noise(100, seed=0), position, np.zeros(0))


@pytest.mark.parametrize(("known", "phi"), [(0.0, 0.0), (0.0, 0.5), (0.0, 0.8), (0.5, 0.5), (0.5, 0.8), (0.8, 0.8)])
@pytest.mark.parametrize("lasting", [12, 150])
def test_what_is_sure_is_worth_testing(lasting: int, known: float, phi: float) -> None:
    """Also where noise wanders more than it did; p-values from which a shift of 12 windows counts, and of 150."""
    sure = 0
    for seed in range(20):
        for height in (1.5, 2.0, 3.0, 5.0):
            values = stepped(600, 600 - lasting, height, seed, phi)
            if shift_of(values).p_value <= 5e-6 * lasting / 12:
                sure += 1
                assert worth_testing(values, MARGIN, np.array([known]))
    assert sure >= 10


def test_noise_that_wanders_more_than_before_is_seldom_worth_testing() -> None:
    """Nearly every window of it is suspected."""
    assert sum(worth_testing(noise(1000, seed, 0.8), MARGIN, np.array([0.5])) for seed in range(60)) <= 12
