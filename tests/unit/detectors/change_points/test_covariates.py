from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.detectors.change_points.covariates import Covariates, PhaseDetection, detect_under_load, usable_values
from cyclewatch.detectors.change_points.offline import Settings
from cyclewatch.detectors.phases import Floats

N = 400
AT = 220
FIXED, REQUEST, KV_TOKEN = 6e-3, 2e-4, 4.3e-8


def load_of(seed: int, n: int = N) -> dict[str, Floats]:
    """Batch sizes that swing by half around 24, each request with a context that wanders; shape (n,) each."""
    random = np.random.default_rng(seed)
    swing = 1 + 0.5 * np.sin(np.arange(n) / 19 + random.uniform(0, 6))
    batch = np.maximum(np.round(24 * swing + random.normal(0, 1, n)), 1)
    context = 1500 * np.exp(np.cumsum(random.normal(0, 0.015, n)))
    return {"batch_size": batch, "kv_tokens": batch * context}


def seconds_of(load: dict[str, Floats], seed: int, sigma: float) -> Floats:
    """Cycle times in seconds with independent noise, shape (n,)."""
    noise = np.random.default_rng(1000 + seed).normal(0, sigma, len(load["batch_size"]))
    expected: Floats = FIXED + REQUEST * load["batch_size"] + KV_TOKEN * load["kv_tokens"]
    return expected * np.exp(noise)


def under(load: dict[str, Floats], values: Floats, options: Settings | None = None) -> PhaseDetection:
    covariates = Covariates(np.zeros(len(values), np.int64), ("decode",), load)
    (found,) = detect_under_load(values, covariates, options)
    return found


@pytest.mark.parametrize("sigma", [0.01, 0.02])
def test_a_load_swing_is_no_change_and_a_shift_under_it_is(sigma: float) -> None:
    """Load swings by half either way; 3 % more time is found where it begins, and by how much."""
    false, hits, effects = 0, 0, []
    for seed in range(20):
        load = load_of(seed)
        values = seconds_of(load, seed, sigma)
        false += len(under(load, values).detection.change_points)
        values[AT:] *= 1.03
        points = under(load, values).detection.change_points
        hits += len(points) == 1 and abs(points[0].index - AT) <= 12
        effects += [point.effect for point in points if abs(point.index - AT) <= 12]
    assert false <= 1
    assert hits >= 19
    assert np.mean(effects) == pytest.approx(0.03, abs=0.003)


def test_a_step_of_the_load_is_no_change() -> None:
    """Half as much load again, for good, and nothing slower."""
    load = {"batch_size": np.where(np.arange(N) < AT, 16.0, 24.0)}
    values = (FIXED + REQUEST * load["batch_size"]) * np.exp(np.random.default_rng(5).normal(0, 0.01, N))
    assert under(load, values).detection.change_points == ()


def test_levels_are_values_at_a_typical_load_and_costs_are_those_of_the_first_level() -> None:
    load = load_of(3)
    values = seconds_of(load, 3, 0.005)
    values[AT:] *= 1.2
    found = under(load, values)
    (point,) = found.detection.change_points
    typical = float(np.median(seconds_of(load, 3, 0.0)))
    assert point.before == pytest.approx(typical, rel=0.01)
    assert point.after == pytest.approx(typical * 1.2, rel=0.01)
    assert point.ci[0] < 0.2 < point.ci[1]
    assert list(found.costs) == ["fixed", "batch_size", "kv_tokens"]
    assert found.costs["fixed"] == pytest.approx(FIXED, rel=0.1)
    assert found.costs["kv_tokens"] == pytest.approx(KV_TOKEN, rel=0.2)


@pytest.mark.parametrize(("before", "after"), [(5.0, 1.0), (1.0, 5.0)])
def test_the_interval_of_a_large_effect_holds_the_truth(before: float, after: float) -> None:
    """Of 20 series 19, with three standard errors of 1; as wide as noise of 10 % asks for."""
    factor, missed, widths = after / before, [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        batch = random.integers(1, 64, 180).astype(np.float64)
        values = (5 + 0.1 * batch) * np.repeat([before, after], [30, 150]) * np.exp(0.1 * random.normal(size=180))
        (point,) = under({"batch_size": batch}, values).detection.change_points
        low, high = point.ci
        missed += [seed] * (not low <= factor - 1 <= high)
        widths.append(high - low)
    assert len(missed) <= 4, f"missed with seeds {missed}"
    assert np.mean(widths) == pytest.approx(2 * 1.96 * 0.1 * np.sqrt(1 / 30 + 1 / 150) * factor, rel=0.15)


def test_several_shifts_do_not_bend_the_fit() -> None:
    """Up, up and down again, where what matters is the number of new tokens alone."""
    random = np.random.default_rng(6)
    tokens = np.exp(random.normal(6, 0.6, N))
    values = 3e-5 * tokens * np.exp(random.normal(0, 0.01, N))
    values[100:] *= 1.04
    values[200:] *= 1.04
    values[300:] /= 1.06
    points = under({"new_tokens": tokens}, values).detection.change_points
    assert [abs(point.index - at) <= 5 for point, at in zip(points, (100, 200, 300), strict=True)] == [True] * 3


def test_each_phase_has_its_own_load_and_indices_of_the_whole_series() -> None:
    """Only one of two phases gets slower; their rows take turns."""
    load = load_of(7)
    values = seconds_of(load, 7, 0.01)
    phase = np.arange(N) % 2
    values[phase == 1] *= 5
    values[(phase == 1) & (np.arange(N) >= AT)] *= 1.05
    extend, decode = detect_under_load(values, Covariates(phase, ("extend", "decode"), load))
    assert (extend.phase, extend.detection.change_points) == ("extend", ())
    (point,) = decode.detection.change_points
    assert point.index % 2 == 1
    assert abs(point.index - AT) <= 10


def test_phases_alone_are_series_of_their_own() -> None:
    """Nothing to take out: values may be of any sign."""
    values = np.random.default_rng(8).normal(0, 1, N)
    values[1::2] += 1000
    values[AT::2] -= 4
    quiet, shifted = detect_under_load(values, Covariates(1 - np.arange(N) % 2, ("odd", "even")))
    assert quiet.detection.change_points == ()
    assert abs(shifted.detection.change_points[0].index - AT) <= 4
    assert shifted.costs == {}


def test_what_is_smaller_than_the_minimum_effect_is_a_suspicion() -> None:
    load = load_of(9)
    values = seconds_of(load, 9, 0.005)
    values[AT:] *= 1.03
    detection = under(load, values, Settings(min_effect=0.05)).detection
    assert detection.change_points == ()
    assert detection.suspicions[0].reason == "smaller than the minimum effect of 5.0%"
    assert detection.suspicions[0].effect == pytest.approx(0.03, abs=0.005)
    assert detection.settings.min_effect == 0.05


def test_values_that_cannot_be_compared_keep_their_index() -> None:
    """Not finite, not above 0, or of an unknown load."""
    load = load_of(10)
    values = seconds_of(load, 10, 0.01)
    values[AT:] *= 1.1
    values[[3, 50]] = np.nan, np.inf
    values[[60, 61]] = 0.0, -1.0
    load["batch_size"][[70, 71]] = np.nan, -1.0
    covariates = Covariates(np.zeros(N, np.int64), ("",), load)
    assert np.flatnonzero(~usable_values(values, covariates)).tolist() == [3, 50, 60, 61, 70, 71]
    (point,) = under(load, values).detection.change_points
    assert abs(point.index - AT) <= 2


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [np.nan] * 30,
        [-1.0] * 30,
        [7.0] * 30,
        [1e-320, 1e308] * 20,
        [1e308] * 20 + [1e-308] * 20,
        list(np.exp(np.linspace(-600, 600, 50))),
    ],
    ids=str,
)
@pytest.mark.parametrize("largest", [0.0, 1.0, 1e300])
def test_extremes_are_answered(values: list[float], largest: float) -> None:
    load = {"batch_size": np.linspace(0, largest, len(values)), "kv_tokens": np.zeros(len(values))}
    found = under(load, np.array(values, np.float64))
    assert all(0 <= point.index < len(values) for point in found.detection.change_points)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([1e-9, 1e-3, 7.0, 1e9]), st.sampled_from([0.5, 3.0, 1e6]))
def test_units_move_nothing(seed: int, unit: float, token_unit: float) -> None:
    """Seconds or nanoseconds, tokens or pages: the same changes, of the same size."""
    load = load_of(seed, 150)
    values = seconds_of(load, seed, 0.01)
    values[90:] *= 1.1
    plain = under(load, values)
    scaled = under({**load, "kv_tokens": load["kv_tokens"] * token_unit}, values * unit)

    def places(found: PhaseDetection) -> Any:
        return [point.index for point in found.detection.change_points]

    assert places(scaled) == places(plain)
    for one, other in zip(plain.detection.change_points, scaled.detection.change_points, strict=True):
        assert other.effect == pytest.approx(one.effect, rel=1e-6)
        assert other.before == pytest.approx(one.before * unit, rel=1e-6)
