import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.watching.backtest import replay
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.hours import Hours
from cyclewatch.detectors.watching.level_watch import Level
from cyclewatch.detectors.watching.shift_watch import Kind
from cyclewatch.detectors.watching.tracking import State

SECOND = 10**9
WINDOW_NS = 5 * SECOND
HOUR_WINDOWS = 720
DEFAULT = Parameters.of(Detection(), Windows())


def level(at_ns: int, log_ratio: float, tail: float = math.nan, doubt: tuple[float, ...] = ()) -> Level:
    return Level(at_ns, float(log_ratio), 0.002, 50.0, float(tail), 50, 50, doubt)


def wandering(windows: int, steps: dict[int, float], *, noise: float = 0.01, seed: int = 1) -> Floats:
    """Normal noise, and from each window in `steps` on so much more time."""
    values = np.random.default_rng(seed).normal(0, noise, windows)
    for window, effect in steps.items():
        values[window:] += np.log1p(effect)
    return values


def levels(windows: int, steps: dict[int, float]) -> list[Level]:
    return [level(number * WINDOW_NS, value) for number, value in enumerate(wandering(windows, steps))]


def test_a_step_is_found_where_the_minimum_effect_allows_it() -> None:
    """3 % with a minimum effect of 2 %, not with 5 %."""
    series = levels(HOUR_WINDOWS, {350: 0.03})
    (found,) = replay(series, DEFAULT).regressions
    assert (found.state, found.kind, found.ended_at_ns) == (State.OPEN, Kind.LEVEL, None)
    assert found.started_at_ns == pytest.approx(350 * WINDOW_NS, abs=5 * WINDOW_NS)
    assert 60 * SECOND <= found.detected_at_ns - found.started_at_ns <= 180 * SECOND
    assert found.effect == pytest.approx(0.03, abs=0.005)
    assert replay(series, replace(DEFAULT, min_effect=0.05)).regressions == ()


def test_a_regression_is_given_once_as_it_stood_last() -> None:
    """With its end, and detected when it was first."""
    (found,) = replay(levels(3 * HOUR_WINDOWS, {700: 0.05, 1400: -0.048}), DEFAULT).regressions
    assert found.state is State.RESOLVED
    assert found.ended_at_ns == pytest.approx(1400 * WINDOW_NS, abs=5 * WINDOW_NS)
    assert found.detected_at_ns < 750 * WINDOW_NS


def test_windows_of_the_baseline_are_not_judged() -> None:
    """An hour less ten minutes."""
    done = replay(levels(HOUR_WINDOWS, {}), DEFAULT)
    assert (done.windows, done.judged) == (720, 600)
    assert done.hours == pytest.approx(600 * 5 / 3600)


@pytest.mark.parametrize("windows", [0, 1, 50])
def test_too_short_a_series_has_nothing(windows: int) -> None:
    done = replay(levels(windows, {}), DEFAULT)
    assert (done.regressions, done.windows, done.judged, done.hours) == ((), windows, 0, 0.0)


def test_it_reads_a_series_as_it_comes() -> None:
    """Nothing is asked for before the window before it was judged: memory stays bounded."""
    ahead = []

    def source() -> Iterator[Level]:
        for number, one in enumerate(levels(300, {})):
            ahead.append(number)
            yield one

    assert replay(source(), DEFAULT).windows == len(ahead) == 300


def test_what_is_usual_at_this_hour_is_no_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """The season of the days before is asked, as the daemon asks it."""
    series = levels(HOUR_WINDOWS, {350: 0.03})
    monkeypatch.setattr(Hours, "usual", lambda _hours, _at_ns: 0.025)
    assert replay(series, DEFAULT).regressions == ()


def test_a_drift_is_found_too() -> None:
    """1 % a day is too slow to be a step; windows of half a minute."""
    length_ns, day = 30 * SECOND, 2880
    values = np.random.default_rng(3).normal(0, 0.005, 6 * day) + 0.01 / day * np.arange(6 * day)
    series = (level(number * length_ns, value) for number, value in enumerate(values))
    first, *_ = replay(series, Parameters.of(Detection(), Windows(length_s=30))).regressions
    assert first.kind is Kind.DRIFT
    assert 0.02 <= first.effect <= 0.05
    assert 2 * day * length_ns < first.detected_at_ns < 5 * day * length_ns


def test_a_slower_tail_is_found_too() -> None:
    """30 % where the levels stay, and with another least size it is none."""
    tails = wandering(HOUR_WINDOWS, {350: 0.3}, noise=0.02, seed=2)
    series = [replace(one, tail=0.5 + tail) for one, tail in zip(levels(HOUR_WINDOWS, {}), tails, strict=True)]
    (found,) = replay(series, DEFAULT).regressions
    assert found.kind is Kind.TAIL
    assert found.effect == pytest.approx(0.3, abs=0.02)
    assert found.started_at_ns == pytest.approx(350 * WINDOW_NS, abs=5 * WINDOW_NS)
    assert replay(series, replace(DEFAULT, min_tail_effect=0.4)).regressions == ()


def test_what_the_load_may_explain_is_no_regression() -> None:
    """The level came with a load of which the model may be as wrong as that; without doubts it is one."""
    series = levels(HOUR_WINDOWS, {350: 0.03})
    doubted = [replace(one, doubt=(0.02 * (number >= 350), 0.0)) for number, one in enumerate(series)]
    assert len(replay(series, DEFAULT).regressions) == 1
    assert replay(doubted, DEFAULT).regressions == ()
