import json
from dataclasses import replace

import pytest

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.series import Change
from cyclewatch.detectors.watching.tracking import State, Tracker

PARAMETERS = Parameters.of(Detection(min_effect=0.02), Windows())
SECOND = 10**9


def _change(at_s: int, before: float, after: float) -> Change:
    return Change(
        direction=Direction.SLOWER if after > before else Direction.FASTER,
        started_at_ns=at_s * SECOND,
        detected_at_ns=(at_s + 40) * SECOND,
        before=before,
        after=after,
        effect=after - before,
        ci=(after - before - 0.01, after - before + 0.01),
        probability=0.9999,
        windows_after=8,
    )


@pytest.fixture(name="tracker")
def _tracker() -> Tracker:
    return Tracker("server|tp0|decode|abc", PARAMETERS)


def test_a_slowdown_opens_and_its_end_resolves_the_same_regression(tracker: Tracker) -> None:
    """One regression with a beginning and an end."""
    opened = tracker.update(_change(100, 0.0, 0.26))
    ended = tracker.update(_change(300, 0.26, 0.01))
    assert (opened.state, ended.state) == (State.OPEN, State.RESOLVED)
    assert opened.key == ended.key
    assert ended.ended_at_ns == 300 * SECOND
    assert tracker.open is None


def test_a_second_step_makes_the_open_regression_larger(tracker: Tracker) -> None:
    """No second message for the same slowdown."""
    opened = tracker.update(_change(100, 0.0, 0.1))
    grown = tracker.update(_change(200, 0.1, 0.25))
    assert grown.key == opened.key
    assert grown.state is State.OPEN
    assert grown.effect == pytest.approx(0.284, abs=0.001)


def test_a_partial_recovery_leaves_it_open(tracker: Tracker) -> None:
    """Half of it is still there."""
    tracker.update(_change(100, 0.0, 0.2))
    assert tracker.update(_change(200, 0.2, 0.1)).state is State.OPEN


def test_an_improvement_is_noted_and_nothing_is_open(tracker: Tracker) -> None:
    """It is the new normal."""
    assert tracker.update(_change(100, 0.0, -0.1)).state is State.NOTED
    assert tracker.open is None


def test_the_same_change_has_the_same_key_after_a_restart(tracker: Tracker) -> None:
    """So that the store neither loses nor doubles it."""
    other = Tracker("server|tp0|decode|abc", PARAMETERS)
    assert tracker.update(_change(100, 0.0, 0.2)).key == other.update(_change(100, 0.0, 0.2)).key


def test_state_survives_json(tracker: Tracker) -> None:
    """Saved and restored: the open regression is equal."""
    tracker.update(_change(100, 0.0, 0.2))
    other = Tracker("server|tp0|decode|abc", PARAMETERS)
    other.restore(json.loads(json.dumps(tracker.state())))
    assert other.open == tracker.open


def test_an_improvement_that_goes_again_has_an_end_and_opens_nothing(tracker: Tracker) -> None:
    """Also in two parts, and after a restart in between."""
    tracker.update(_change(100, 0.0, -0.1))
    partly = tracker.update(replace(_change(400, -0.1, -0.05), way_back=True))
    assert (partly.state, partly.ended_at_ns, tracker.open) == (State.NOTED, 400 * SECOND, None)
    again = Tracker("server|tp0|decode|abc", PARAMETERS)
    again.restore(json.loads(json.dumps(tracker.state())))
    ended = again.update(replace(_change(500, -0.05, 0.0), way_back=True))
    assert (ended.key, ended.state, ended.ended_at_ns, again.open) == (partly.key, State.NOTED, 500 * SECOND, None)
