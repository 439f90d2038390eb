import itertools
import json
import math

import numpy as np
import pytest

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.watching.hours import HOUR_NS, Drift, Hours

SECOND = 10**9
DAY = 24
MIN_SHIFT = math.log1p(0.02)
WINDOW_S = 5
START_NS = 480_000 * HOUR_NS


def wandering(rng: np.random.Generator, n: int, phi: float, sigma: float) -> Floats:
    """AR(1) noise of standard deviation `sigma`, shape (n,)."""
    steps = rng.normal(0.0, sigma * math.sqrt(1 - phi**2), n)
    noise = np.zeros(n)
    noise[0] = rng.normal(0.0, sigma)
    for at in range(1, n):
        noise[at] = phi * noise[at - 1] + steps[at]
    return noise


def hour_levels(rng: np.random.Generator, n: int) -> Floats:
    """Noise of hours of 720 windows of 5 s with noise of 2 %, AR(1) 0.5: their medians vary by about 0.15 %."""
    return rng.normal(0.0, 0.0015, n)


def daily(n: int, size: float = 0.03) -> Floats:
    return size * np.sin(2 * math.pi * np.arange(n) / DAY)


def put_hour(hours: Hours, hour: int, level: float, windows: int = 60) -> bool:
    """One hour of equal windows, the fewest that count unless told."""
    step_ns = HOUR_NS // windows
    closed = [hours.add(START_NS + hour * HOUR_NS + at * step_ns, level) for at in range(windows)]
    return any(closed)


def follow(
    levels: Floats, hours: Hours | None = None, *, skip: frozenset[int] = frozenset()
) -> list[tuple[int, Drift]]:
    """The drifts reported while `levels`, one an hour, come in, each with the hour in which it was."""
    hours = hours or Hours()
    found = []
    for hour, level in enumerate(levels):
        if hour in skip or not put_hour(hours, hour, float(level)):
            continue
        if drift := hours.drift(MIN_SHIFT):
            found.append((hour, drift))
            hours.rebase(drift)
    return found


def test_one_percent_a_day_is_found_within_a_week_from_windows() -> None:
    """Windows of 5 s, noise of 2 % with AR(1) 0.5, and without and with a daily wave of 3 %."""
    rng = np.random.default_rng(1)
    n = 5 * 86400 // WINDOW_S
    days = np.arange(n) * WINDOW_S / 86400
    for wave in (0.0, 0.03):
        levels = 0.01 * days + wave * np.sin(2 * math.pi * days) + wandering(rng, n, 0.5, 0.02)
        hours = Hours()
        found = [
            (float(days[at]), drift)
            for at in range(n)
            if hours.add(START_NS + at * WINDOW_S * SECOND, float(levels[at]))
            and (drift := hours.drift(MIN_SHIFT)) is not None
        ]
        first_day, first = found[0]
        assert first_day < 4
        assert first.after - first.before == pytest.approx(0.02, abs=0.003)
        assert first.error < 0.001
        assert first.started_at_ns == START_NS + DAY * HOUR_NS
        assert first.points == DAY


@pytest.mark.parametrize("wave", [0.0, 0.03])
@pytest.mark.parametrize("direction", [1, -1])
def test_drift_is_found_within_a_week_and_followed(wave: float, direction: int) -> None:
    """Twenty runs of two weeks, either way; it goes on being reported as it grows."""
    for seed in range(20):
        n = 14 * DAY
        levels = hour_levels(np.random.default_rng(seed), n) + direction * 0.01 * np.arange(n) / DAY + daily(n, wave)
        found = follow(levels)
        assert found[0][0] < 4 * DAY
        assert 4 <= len(found) <= 6
        assert all(direction * (drift.after - drift.before) >= MIN_SHIFT for _, drift in found)
        assert all(a.after == b.before for (_, a), (_, b) in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("phi", "sigma", "wave"), [(0.0, 0.0015, 0.0), (0.8, 0.005, 0.0), (0.8, 0.005, 0.03), (0.0, 0.0, 0.03)]
)
def test_noise_and_a_daily_wave_are_no_drift(phi: float, sigma: float, wave: float) -> None:
    """Fifteen runs of 28 days."""
    n = 28 * DAY
    for seed in range(15 if sigma else 1):
        levels = wandering(np.random.default_rng(seed), n, phi, sigma) + daily(n, wave)
        assert follow(levels) == []


def test_noise_far_above_the_minimum_effect_is_rarely_a_drift() -> None:
    """Then the standard error alone decides, and it knows that hours wander together; 2 of 100 such runs have one."""
    n = 28 * DAY
    runs = [follow(wandering(np.random.default_rng(seed), n, 0.8, 0.03)) for seed in range(16)]
    assert sum(bool(found) for found in runs) <= 1


def test_missing_hours_do_not_let_a_wave_look_like_a_drift() -> None:
    """Six hours of every day are missing, others from day to day, and once three days."""
    n = 14 * DAY
    skip = frozenset(hour for hour in range(n) if (hour + hour // DAY) % DAY < 3 or 100 <= hour < 172)
    assert follow(daily(n, 0.05), skip=skip) == []
    drifting = daily(n, 0.05) + 0.01 * np.arange(n) / DAY
    assert follow(drifting, skip=skip)[0][0] < 8 * DAY


def test_a_wave_moved_by_summer_time_is_no_drift() -> None:
    """The whole day is the same."""
    n = 14 * DAY
    levels = daily(n + 1)
    assert follow(np.concatenate([levels[: 5 * DAY], levels[5 * DAY + 1 :]])) == []


def test_what_drifted_away_and_back_begins_and_ends() -> None:
    """Four percent up within four days, two days there, and back: it grows, and its end is told."""
    n = 16 * DAY
    days = np.arange(n) / DAY
    shape = np.interp(days, [0, 2, 6, 8, 12], [0, 0, 0.045, 0.045, 0])
    hours = Hours()
    found = follow(shape + hour_levels(np.random.default_rng(3), n), hours)
    last = found[-1][1]
    assert found[0][1].after > found[0][1].before
    assert [drift.ended for _, drift in found].count(True) == 1
    assert last.ended
    assert last.after < 0.02
    assert last.started_at_ns > found[0][1].started_at_ns
    starts = [drift.started_at_ns for _, drift in found]
    assert len(set(starts)) == len(starts)


def test_a_drift_that_barely_counted_ends_too() -> None:
    """What is left is below half of the minimum effect; the old level is the reference again."""
    n = 14 * DAY
    days = np.arange(n) / DAY
    found = follow(np.interp(days, [0, 2, 3, 6, 7, 9, 10], [0, 0, 0.0205, 0.0205, 0, 0, 0.0205]))
    assert [drift.ended for _, drift in found] == [False, True, False]
    assert found[1][1].reference == pytest.approx(0.0)
    assert found[2][1].before == pytest.approx(0.0)


def test_an_improvement_is_told_and_becomes_the_reference() -> None:
    """Nothing is open afterwards, so nothing ends."""
    n = 10 * DAY
    found = follow(np.interp(np.arange(n) / DAY, [0, 2, 4], [0, 0, -0.03]))
    assert [(drift.after < drift.before, drift.ended) for _, drift in found] == [(True, False)]


def test_without_rebase_the_reference_stays() -> None:
    """Every call gives the same beginning, and the size as it is now."""
    hours = Hours()
    found = [
        drift
        for hour in range(10 * DAY)
        if put_hour(hours, hour, 0.01 * hour / DAY) and (drift := hours.drift(MIN_SHIFT))
    ]
    assert {drift.before for drift in found} == {found[0].before}
    assert {drift.started_at_ns for drift in found} == {START_NS + DAY * HOUR_NS}
    assert found[-1].after - found[-1].before == pytest.approx(0.09, abs=0.001)


def test_the_season_is_the_median_of_the_days_before() -> None:
    """One odd day does not move it, and neither does the day that is asked about."""
    hours = Hours()
    levels = daily(5 * DAY)
    levels[2 * DAY : 3 * DAY] += 0.2
    for hour, level in enumerate(levels):
        if hour == DAY:
            assert hours.usual(START_NS + hour * HOUR_NS) is None
        put_hour(hours, hour, float(level))
    at_ns = START_NS + (5 * DAY + 6) * HOUR_NS + HOUR_NS // 2
    assert hours.usual(at_ns) == pytest.approx(0.03, abs=1e-5)
    assert hours.usual(at_ns - 4 * DAY * HOUR_NS) is None
    assert Hours().usual(at_ns) is None


def test_spikes_do_not_move_an_hour() -> None:
    """A tenth of the windows at ten times the time."""
    hours = Hours()
    for hour in range(3):
        for at in range(720):
            hours.add(START_NS + (hour * DAY * 3600 + at * 5) * SECOND, 2.3 if at % 10 == 0 else 0.001)
    hours.add(START_NS + 3 * DAY * HOUR_NS, 0.0)
    assert hours.usual(START_NS + 4 * DAY * HOUR_NS) == pytest.approx(0.001)


def test_an_hour_of_few_windows_does_not_count() -> None:
    """Not the mean of 59, and not the hour that is missing altogether."""
    hours = Hours()
    assert not put_hour(hours, 0, 0.0, windows=59)
    assert not put_hour(hours, 1, 0.0)
    assert put_hour(hours, 7, 0.0)
    assert len(hours) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_value_changes_nothing(value: float) -> None:
    """As if the window had not been."""
    hours = Hours()
    put_hour(hours, 0, 0.01)
    before = hours.state()
    assert not hours.add(START_NS + 2 * HOUR_NS, value)
    assert hours.state() == before


def test_windows_out_of_order_and_twice_change_nothing() -> None:
    """They have been judged without it."""
    hours = Hours()
    hours.add(START_NS, 0.01)
    before = hours.state()
    assert not hours.add(START_NS, 5.0)
    assert not hours.add(START_NS - HOUR_NS // 12, 5.0)
    assert hours.state() == before


def test_a_clock_that_is_put_back_goes_on_from_there() -> None:
    """Of hours that have not been yet nothing is kept; a drift after them is found as if it had always gone right."""
    levels = hour_levels(np.random.default_rng(5), 12 * DAY) + np.maximum(np.arange(12 * DAY) - 4 * DAY, 0) * 0.01 / DAY
    right, put_back = Hours(), Hours()
    ahead = [put_hour(put_back, 30 * DAY + hour, 0.0) for hour in range(5)]
    assert any(ahead)
    found = follow(levels, put_back)
    assert len(put_back) == 12 * DAY - 1
    assert found == follow(levels, right)


def test_a_constant_series_never_drifts() -> None:
    """Nor does the error of nothing divide by zero; what then drifts without noise is found."""
    assert follow(np.full(10 * DAY, 0.3)) == []
    assert follow(np.interp(np.arange(10 * DAY), [0, 72, 144], [0.3, 0.3, 0.33]))


def test_a_restart_at_any_moment_changes_nothing() -> None:
    """Also in the middle of an hour, and after a drift was reported."""
    rng = np.random.default_rng(5)
    n = 10 * DAY
    levels = np.interp(np.arange(n) / DAY, [0, 2, 5, 6, 8], [0, 0, 0.03, 0.03, 0]) + wandering(rng, n, 0.5, 0.002)
    straight, restarted = Hours(), Hours()
    reports = []
    for hour, level in enumerate(levels):
        for at in range(61):
            at_ns = START_NS + hour * HOUR_NS + at * 59 * SECOND
            value = float(level) + 0.001 * (at % 7)
            closed = straight.add(at_ns, value)
            assert restarted.add(at_ns, value) == closed
            if closed:
                assert straight.usual(at_ns) == restarted.usual(at_ns)
                drift = straight.drift(MIN_SHIFT)
                assert restarted.drift(MIN_SHIFT) == drift
                if drift:
                    reports.append(drift.ended)
                    straight.rebase(drift)
                    restarted.rebase(drift)
            if at == hour % 61:
                state = json.loads(json.dumps(restarted.state()))
                restarted = Hours()
                restarted.restore(state)
    assert reports == [False, True]
    assert restarted.state() == straight.state()


def test_foreign_states_are_refused() -> None:
    """Of another version, or of something else."""
    with pytest.raises(ValueError, match="version 99"):
        Hours().restore({**Hours().state(), "version": 99})
    with pytest.raises(KeyError):
        Hours().restore({})


def test_memory_stays_bounded() -> None:
    """Two weeks of hours and 720 values, whatever the length of a window; the median is of the whole hour."""
    hours = Hours()
    for hour in range(16 * DAY):
        put_hour(hours, hour, 0.0)
    for at in range(7200):
        hours.add(START_NS + 16 * DAY * HOUR_NS + at * HOUR_NS // 7200, at / 7200)
        assert len(hours.state()["values"]) <= 720
    hours.add(START_NS + 17 * DAY * HOUR_NS, 0.0)
    assert len(hours) == 14 * DAY
    assert hours.state()["hours"][-1][1] == pytest.approx(0.5, abs=0.002)
    assert len(json.dumps(hours.state())) < 30_000
