import json
from collections.abc import Iterable

import numpy as np
import pytest

from cyclewatch.collectors.records import Records
from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.series import Change, SeriesDetector
from cyclewatch.detectors.windows import summarise
from simulated import WINDOW_NS, cycles, server

SECOND = 10**9
PARAMETERS = Parameters.of(Detection(reference_s=300, min_effect=0.05), Windows())


def _feed(detector: SeriesDetector, windows: Iterable[tuple[int, Records]]) -> list[Change]:
    changes: list[Change] = []
    for number, records in windows:
        window = summarise(number, records)
        verdict = detector.update(number * WINDOW_NS, window.cycles[Phase.DECODE], window.cells)
        changes.extend(change for change in verdict.changes if not change.measured_again)
    return changes


def _detector() -> SeriesDetector:
    return SeriesDetector(Phase.DECODE, PARAMETERS)


@pytest.mark.parametrize("seed", range(5))
def test_a_lasting_slowdown_is_found_with_its_size_and_place(seed: int) -> None:
    """15 % from window 90 on: one change, within five windows, effect within a quarter."""
    (change,) = _feed(_detector(), server(150, seed=seed, slower={90: 1.15}))
    assert change.direction is Direction.SLOWER
    assert abs(change.started_at_ns // WINDOW_NS - 90) <= 5
    assert change.effect == pytest.approx(0.15, rel=0.25)


@pytest.mark.parametrize("seed", range(5))
def test_its_end_is_found_too(seed: int) -> None:
    """Slower and back: two changes of opposite direction."""
    changes = _feed(_detector(), server(220, seed=seed, slower={90: 1.2, 150: 1.0}))
    assert [change.direction for change in changes] == [Direction.SLOWER, Direction.FASTER]


def test_load_swings_are_no_change() -> None:
    """The batch walks between 4 and 12: cycles move by 30 %, the level does not."""
    random = np.random.default_rng(7)
    sizes = np.clip(8 + np.cumsum(random.integers(-1, 2, 300)), 4, 12)
    assert not _feed(_detector(), server(300, seed=7, batch_sizes=sizes))


def test_a_load_never_seen_gets_no_verdict_and_is_learned() -> None:
    """From 4 requests to 12 and back: nothing is reported, and 12 is known after half a reference."""
    detector = _detector()
    sizes = [4] * 80 + [12] * 60 + [4] * 40
    changes = _feed(detector, server(180, seed=8, batch_sizes=sizes))
    assert not changes
    assert 12 in detector.model.offsets


def test_a_slowdown_is_found_at_a_load_learned_later() -> None:
    """The offset of a later load is as good as one of the reference."""
    sizes = [4] * 80 + [12] * 120
    (change,) = _feed(_detector(), server(200, seed=9, batch_sizes=sizes, slower={150: 1.2}))
    assert change.effect == pytest.approx(0.2, rel=0.3)


@pytest.mark.parametrize("cut", [10, 59, 60, 95, 101])
def test_a_restart_in_mid_stream_changes_no_verdict(cut: int) -> None:
    """State saved as JSON after `cut` windows and restored into a new detector: the same changes."""
    windows = list(server(150, seed=3, slower={90: 1.15}))
    expected = _feed(_detector(), windows)
    first = _detector()
    found = _feed(first, windows[:cut])
    second = _detector()
    second.restore(json.loads(json.dumps(first.state())))
    assert found + _feed(second, windows[cut:]) == expected


def test_windows_out_of_order_or_twice_are_left_out() -> None:
    """Time must go forward; what does not is named and has no effect."""
    detector = _detector()
    window = summarise(0, cycles(50))
    detector.update(WINDOW_NS, window.cycles[Phase.DECODE], window.cells)
    state = detector.state()
    verdict = detector.update(WINDOW_NS, window.cycles[Phase.DECODE], window.cells)
    assert verdict.reason == "window out of order"
    assert detector.state() == state


@pytest.mark.parametrize("put_back", [1, 12])
def test_a_clock_that_is_put_back_stops_no_judging(put_back: int) -> None:
    """By hours: what follows is judged at once, and not only when the clock has caught up."""
    windows = server(150, seed=3, slower={90: 1.15})
    hours = put_back * 3600 * SECOND // WINDOW_NS
    moved = [(20_000 + number - (hours if number >= 75 else 0), records) for number, records in windows]
    (change,) = _feed(_detector(), moved)
    assert change.started_at_ns // WINDOW_NS == pytest.approx(20_000 - hours + 90, abs=5)
    assert change.effect == pytest.approx(0.15, rel=0.25)


def test_constant_cycles_are_no_change() -> None:
    """No noise at all: sigma has a floor, nothing is found, nothing divides by zero."""
    detector = _detector()
    windows = ((number, cycles(50, first_end_ns=number * WINDOW_NS + 1)) for number in range(200))
    assert not _feed(detector, windows)


def test_a_state_of_another_version_is_refused() -> None:
    """An upgrade must not guess."""
    with pytest.raises(ValueError, match="version 99"):
        _detector().restore({**_detector().state(), "version": 99})


def test_a_slowdown_that_fades_is_over_when_the_old_level_holds() -> None:
    """16 slow windows, then a gradual return: ended by what the last windows show, not by a test for a step."""
    factors = {90: 1.4, 106: 1.2, 107: 1.15, 108: 1.1, 110: 1.06, 112: 1.03, 114: 1.0}
    opened, *rest = _feed(_detector(), server(150, seed=11, slower=factors))
    assert opened.direction is Direction.SLOWER
    assert {change.direction for change in rest} == {Direction.FASTER}
    assert abs(rest[-1].after - opened.before) < 1.5 * PARAMETERS.min_shift
    assert rest[-1].detected_at_ns // WINDOW_NS <= 130


def test_half_of_a_slowdown_left_is_not_its_end() -> None:
    """From 40 % to 20 %: it goes on."""
    changes = _feed(_detector(), server(140, seed=12, slower={90: 1.4, 110: 1.2}))
    assert changes[0].direction is Direction.SLOWER
    assert sum(change.after - change.before for change in changes) == pytest.approx(np.log(1.2), abs=0.05)


def test_a_baseline_does_not_learn_a_slowdown_that_was_ending() -> None:
    """The first 20 of 60 windows were 40 % slower: they are left out, and the next slowdown is found."""
    detector = _detector()
    changes = _feed(detector, server(160, seed=13, slower={0: 1.4, 20: 1.0, 120: 1.3}))
    assert [change.direction for change in changes] == [Direction.SLOWER]
    assert changes[0].effect == pytest.approx(0.3, rel=0.25)


def test_a_reference_that_is_never_steady_stands_in_the_end() -> None:
    """Steps every ten windows: after two discarded lengths it is taken as it is."""
    detector = _detector()
    _feed(detector, server(400, seed=14, slower={at: 1.0 + 0.3 * (at // 10 % 2) for at in range(0, 400, 10)}))
    assert detector.settled
