"""Detection over a whole series: what it takes, what it reports."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from cyclewatch.detectors.change_points.offline import ChangePoint, Settings, detect
from cyclewatch.detectors.phases import Floats


def noise(n: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=n)


def stepped(before: float = 10.0, after: float = 13.0, sigma: float = 0.5, seed: int = 0) -> Floats:
    """500 values, from 300 on at the level `after`."""
    values: Floats = np.where(np.arange(500) < 300, before, after) + sigma * noise(500, seed)
    return values


def only(values: Floats, settings: Settings | None = None) -> ChangePoint:
    """The one change that is found."""
    detection = detect(values, settings)
    assert len(detection.change_points) == 1
    return detection.change_points[0]


def test_effect_and_interval_are_the_truth() -> None:
    point = only(stepped())
    assert abs(point.index - 300) <= 1
    assert point.before == pytest.approx(10, abs=0.1)
    assert point.after == pytest.approx(13, abs=0.1)
    assert point.effect == pytest.approx(0.3, abs=0.02)
    assert point.effect == pytest.approx((point.after - point.before) / point.before)
    assert point.ci[0] < point.effect < point.ci[1]
    assert point.ci[1] - point.ci[0] == pytest.approx(2 * 1.96 * 0.05 * math.sqrt(1 / 300 + 1 / 200), rel=0.2)
    assert point.probability > 0.999


@pytest.mark.parametrize("after", [10.5, 20.0])
def test_the_interval_of_the_effect_holds_the_truth(after: float) -> None:
    """Of 60 series 57, with three standard errors of 1.7, and two for what is estimated."""
    detections = [detect(stepped(10, after, sigma=0.1, seed=seed)) for seed in range(60)]
    points = [point for one in detections for point in one.change_points if abs(point.index - 300) <= 2]
    assert len(points) == 60
    assert sum(point.ci[0] <= after / 10 - 1 <= point.ci[1] for point in points) >= 50


@pytest.mark.parametrize(
    ("before", "after", "sigmas", "lengths"),
    [
        (-10.0, -20.0, (1.0, 1.0), (30, 150)),
        (10.0, 20.0, (1.0, 1.0), (30, 150)),
        (-20.0, 20.0, (1.0, 1.0), (30, 150)),
        (10.0, 12.0, (0.1, 1.0), (200, 50)),
        (12.0, 10.0, (1.0, 0.1), (50, 200)),
    ],
)
def test_the_interval_holds_the_truth_of_either_sign_and_with_noise_that_changes(
    before: float, after: float, sigmas: tuple[float, float], lengths: tuple[int, int]
) -> None:
    """Of 60 series 57, with three standard errors of 1.7, and two for what is estimated."""
    truth = (after - before) / abs(before)
    missed = []
    for seed in range(60):
        values = np.repeat([before, after], lengths) + np.repeat(sigmas, lengths) * noise(sum(lengths), seed)
        (point, *others) = detect(values).change_points
        assert not others, f"seed {seed}"
        missed += [seed] * (not point.ci[0] <= truth <= point.ci[1])
    assert len(missed) <= 10, f"missed with seeds {missed}"


def test_a_fall_has_a_negative_effect() -> None:
    assert only(stepped(10, 8)).effect == pytest.approx(-0.2, abs=0.02)


def test_a_negative_level_that_rises_has_a_positive_effect() -> None:
    point = only(stepped(-10, -8))
    assert point.effect == pytest.approx(0.2, abs=0.02)
    assert point.ci[0] < point.effect < point.ci[1]


def test_what_is_not_finite_is_left_out_but_keeps_its_index() -> None:
    values = stepped(sigma=0.1)
    values[[0, 10, 11, 150, 299, 400, 499]] = [math.nan, math.inf, -math.inf, math.nan, math.nan, math.inf, math.nan]
    detection = detect(values)
    assert detection.n == 500
    assert [point.index for point in detection.change_points] == [300]


def test_a_gap_right_before_the_change() -> None:
    values = stepped(sigma=0.1)
    values[200:320] = math.nan
    assert only(values).index == 320


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [math.nan], [math.inf] * 50, [math.nan] * 50, [1.0, 2.0], [5.0] * 9, [5.0] * 500, [0.0] * 500],
    ids=["empty", "one", "one NaN", "infinite", "NaN", "two", "few equal", "constant", "zero"],
)
def test_series_without_anything_to_find(values: list[float]) -> None:
    detection = detect(np.array(values))
    assert detection.n == len(values)
    assert detection.change_points == ()
    assert detection.suspicions == ()


def test_a_base_of_zero_has_no_relative_effect() -> None:
    point = only(np.repeat([0.0, 1.0], 100))
    assert point.index == 100
    assert math.isnan(point.effect)
    assert math.isnan(point.ci[0])
    assert math.isnan(point.ci[1])
    assert point.before == pytest.approx(0, abs=1e-9)
    assert point.after == pytest.approx(1)


def test_a_fall_to_zero_is_a_whole() -> None:
    assert only(np.repeat([7.0, 0.0], 100)).effect == pytest.approx(-1)


def test_a_change_without_relative_effect_counts_whatever_the_minimum() -> None:
    assert only(np.repeat([0.0, 1.0], 100), Settings(min_effect=0.5)).index == 100


def test_changes_below_the_minimum_effect_are_suspicions() -> None:
    values = stepped(100, 101)
    assert only(values, Settings(min_effect=0.005)).effect == pytest.approx(0.01, abs=0.002)
    detection = detect(values, Settings(min_effect=0.02))
    assert detection.change_points == ()
    assert [abs(one.index - 300) <= 5 for one in detection.suspicions] == [True]
    assert detection.suspicions[0].effect == pytest.approx(0.01, abs=0.002)
    assert detection.suspicions[0].reason == "smaller than the minimum effect of 2.0%"


def test_the_minimum_effect_holds_for_falls_too() -> None:
    detection = detect(stepped(101, 100), Settings(min_effect=0.02))
    assert detection.change_points == ()
    assert len(detection.suspicions) == 1


def test_what_may_be_noise_is_a_suspicion() -> None:
    """A step whose test stays just above the limit, and is told so."""
    for seed in range(40):
        detection = detect(noise(300, seed) + 0.45 * (np.arange(300) >= 150))
        assert all(point.probability >= 1 - detection.settings.false_alarm for point in detection.change_points)
        for suspicion in detection.suspicions:
            assert suspicion.reason.startswith("may be noise (p = ")
            assert 0.9 < suspicion.probability < 1


def test_nothing_is_both_a_change_and_a_suspicion() -> None:
    for seed in range(20):
        detection = detect(stepped(seed=seed), Settings(min_effect=0.1))
        changes = {point.index for point in detection.change_points}
        assert not changes & {suspicion.index for suspicion in detection.suspicions}


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-150, 1e-9, 1.0, 1e9, 1e150, 1e300])
def test_huge_and_tiny_scales(scale: float) -> None:
    point = only(stepped() * scale)
    plain = only(stepped())
    assert point.index == plain.index
    assert point.effect == pytest.approx(plain.effect, rel=1e-2)
    assert point.before == pytest.approx(10 * scale, rel=1e-2)
    assert point.after == pytest.approx(13 * scale, rel=1e-2)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8, -1e9])
def test_large_offsets(offset: float) -> None:
    point = only(stepped() + offset)
    assert abs(point.index - 300) <= 1
    assert point.after - point.before == pytest.approx(3, abs=0.2)


def test_a_huge_offset_with_tiny_noise() -> None:
    """Steps of 1e-4 are what a double of 1e12 can hold."""
    point = only(1e12 + np.round(stepped(), 3))
    assert abs(point.index - 300) <= 1
    assert point.after - point.before == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize("spike", [1e6, 2.0**63, 1e100])
def test_one_absurd_value_hides_nothing(spike: float) -> None:
    values = stepped()
    values[100] = spike
    assert abs(only(values).index - 300) <= 1


@pytest.mark.parametrize("spike", [1e200, 1.7e308])
def test_one_value_at_the_end_of_the_range_hides_nothing(spike: float) -> None:
    values = stepped()
    values[100] = spike
    assert abs(only(values).index - 300) <= 1


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, np.float32, np.bool_])
def test_other_kinds_of_numbers(kind: type) -> None:
    values: Any = np.repeat([0, 1], [40, 30]).astype(kind)
    detection = detect(values)
    assert [point.index for point in detection.change_points] == [40]


def test_counts_as_floats() -> None:
    random = np.random.default_rng(3)
    values = np.concatenate([random.poisson(3, 250), random.poisson(6, 250)]).astype(np.float64)
    assert abs(only(values).index - 250) <= 3


def test_values_of_which_most_are_equal() -> None:
    random = np.random.default_rng(4)
    base: Floats = np.where(random.uniform(size=500) < 0.6, 0.0, random.normal(size=500))
    assert detect(5 + base).change_points == ()
    assert abs(only(5 + base + (np.arange(500) >= 250)).index - 250) <= 2


def test_one_spike_at_the_end_of_equal_values_is_no_change() -> None:
    assert detect(np.concatenate([np.zeros(499), [1.0]])).change_points == ()


def test_rare_events_are_no_change() -> None:
    """1 % of the values are 1, the others 0, and that never changes."""
    series = [(np.random.default_rng(seed).uniform(size=500) < 0.01).astype(np.float64) for seed in range(60)]
    assert sum(bool(detect(values).change_points) for values in series) <= 3


def test_short_exact_sawteeth_have_no_change() -> None:
    for period in (2, 3, 7, 10):
        assert detect(np.tile(np.arange(float(period)), 500 // period)).change_points == ()


def test_the_input_is_left_as_it_is() -> None:
    values = stepped()
    values[3] = math.nan
    before = values.copy()
    detect(values)
    np.testing.assert_array_equal(values, before)


def test_settings_are_kept_and_used() -> None:
    settings = Settings(min_length=30)
    values = noise(500, seed=1)
    values[240:260] += 20
    detection = detect(values, settings)
    assert detection.settings is settings
    edges = [0, *(point.index for point in detection.change_points), 500]
    assert min(np.diff(edges)) >= 30
    assert detect(values).settings == Settings()
    assert [point.index for point in detect(values).change_points] == [240, 260]


def test_all_values_can_be_json() -> None:
    values = stepped(sigma=0.1)
    values[450:] += 0.02
    values[3] = math.nan
    for detection in (detect(values), detect(values, Settings(min_effect=0.5)), detect(np.repeat([0, 1.0], 50))):
        text = json.dumps(asdict(detection))
        assert json.loads(text)["n"] == detection.n
        for point in detection.change_points:
            assert type(point.index) is int
            numbers = (point.before, point.after, point.effect, *point.ci, point.probability)
            assert all(type(number) is float for number in numbers)
