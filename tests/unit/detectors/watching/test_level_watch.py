"""Watching levels for days: what a large step was first told wrong by is no drift afterwards."""

import json
import math

import numpy as np
import pytest

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.level_watch import Level, LevelWatch
from cyclewatch.detectors.watching.shift_watch import Change, Kind

WINDOW_S = 30
PARAMETERS = Parameters.of(Detection(), Windows(length_s=WINDOW_S))
HOUR = 3600 // WINDOW_S
SLOW = (48 * HOUR, 49 * HOUR)
STEP = math.log(1.3)


def levels(seed: int, hours: int) -> Floats:
    """Medians of 20 cycles that are noisy by 3 %, 30 % slower for an hour; shape (windows,)."""
    random = np.random.default_rng(seed)
    values: Floats = np.median(random.normal(0, 0.03, (hours * HOUR, 20)), axis=1)
    values[slice(*SLOW)] += STEP
    return values


def feed(watch: LevelWatch, values: Floats, first: int = 0) -> list[Change]:
    found: list[Change] = []
    for number, value in enumerate(values.tolist(), first):
        level = Level(at_ns(number), value, 0.008, 20, math.nan, 20, 20)
        found += watch.update(level).changes
    return found


def at_ns(number: int) -> int:
    return (number + 1) * PARAMETERS.window_ns


@pytest.mark.parametrize("seed", [0, 1, 2, 7])
def test_a_large_step_of_few_windows_is_told_in_its_size_and_soon_measured_again(seed: int) -> None:
    """Two windows of it are outliers to the test, and must not be told as a small shift that began long before."""
    found = feed(LevelWatch(PARAMETERS), levels(seed, 49)[: SLOW[0] + 12])
    assert found[0].after > STEP / 2
    assert abs(found[0].started_at_ns - at_ns(SLOW[0])) <= 3 * PARAMETERS.window_ns
    assert found[0].before == pytest.approx(0, abs=0.01)
    assert found[-1].after == pytest.approx(STEP, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_after_a_slow_hour_days_are_as_they_were(seed: int) -> None:
    found = feed(LevelWatch(PARAMETERS), levels(seed, 120))
    assert [one.direction.value for one in found if not one.measured_again] == ["slower", "faster"]
    assert [one.kind for one in found if one.kind is Kind.DRIFT] == []


def test_what_is_known_of_the_last_step_is_saved() -> None:
    values, cut = levels(1, 51), SLOW[0] + 4
    whole, before, after = LevelWatch(PARAMETERS), LevelWatch(PARAMETERS), LevelWatch(PARAMETERS)
    feed(whole, values)
    feed(before, values[:cut])
    after.restore(json.loads(json.dumps(before.state())))
    feed(after, values[cut:], cut)
    assert after.state() == whole.state()
