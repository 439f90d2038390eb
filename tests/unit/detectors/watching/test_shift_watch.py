"""Watching one series as it comes: baseline, suspicion, confirmation, a better measure, and the end."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.shift_watch import VERSION, Change, Kind, ShiftWatch, Step

PARAMETERS = Parameters.of(Detection(), Windows())
LEARNED = PARAMETERS.reference_windows
"""120 windows of 5 s; a change must last 12, and an improvement 48."""

LASTING = PARAMETERS.persistence_windows
AT = 300
HEIGHT = 0.1
TRUTH = math.expm1(HEIGHT)


def noise(n: int, seed: int, phi: float = 0.0, sigma: float = 0.02) -> Floats:
    """First-order autoregression around 0, shape (n,)."""
    errors = np.random.default_rng(seed).normal(size=n + 300) * math.sqrt(1 - phi * phi)
    values: Floats = np.convolve(sigma * errors, phi ** np.arange(300.0))[300 : n + 300]
    return values


def bump(n: int, begin: int, end: int, height: float = HEIGHT) -> Floats:
    """`height` from `begin` to before `end`, shape (n,)."""
    values = np.zeros(n)
    values[begin:end] = height
    return values


def at_ns(number: int) -> int:
    return (number + 1) * PARAMETERS.window_ns


def index(ns: int) -> int:
    return ns // PARAMETERS.window_ns - 1


def feed(watch: ShiftWatch, values: Floats, first: int = 0) -> list[Step]:
    """Steps that `values` lead to, of which the first is that of window number `first`."""
    return [watch.update(at_ns(first + number), float(value)) for number, value in enumerate(values)]


def changes(steps: list[Step], *, again: bool = False) -> list[Change]:
    """What happened; with `again` what was measured anew."""
    return [step.change for step in steps if step.change is not None and step.change.measured_again is again]


def watched(values: Floats) -> tuple[ShiftWatch, list[Step]]:
    watch = ShiftWatch(PARAMETERS)
    return watch, feed(watch, values)


def restarted(watch: ShiftWatch) -> ShiftWatch:
    """A new watch that goes on from the saved state of another."""
    new = ShiftWatch(PARAMETERS, watch.kind)
    new.restore(json.loads(json.dumps(watch.state())))
    return new


def test_the_baseline_stands_after_its_length() -> None:
    watch, steps = watched(3 + noise(LEARNED, seed=0))
    assert [step.settled for step in steps] == [False] * (LEARNED - 1) + [True]
    assert {step.reason for step in steps[:-1]} == {"learning the baseline"}
    assert watch.settled
    assert watch.discarded == 0
    assert watch.level == pytest.approx(3, abs=0.01)


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_baseline_that_is_not_steady_is_learned_on(phi: float) -> None:
    """Started slowly for 40 windows: these are thrown away, and as many more are waited for."""
    for seed in range(4):
        watch, steps = watched(noise(400, seed, phi) + bump(400, 0, 40, 0.2))
        settled = [number for number, step in enumerate(steps) if step.settled]
        assert len(settled) == 1
        assert abs(settled[0] - (LEARNED - 1 + 40)) <= 2
        assert abs(watch.discarded - 40) <= 2
        assert watch.level == pytest.approx(0, abs=0.015)
        assert changes(steps) == []


def test_what_is_never_steady_is_taken_as_it_is() -> None:
    watch, steps = watched(noise(600, seed=1) + np.tile(np.repeat([0.0, 0.3], 30), 10))
    assert sum(step.settled for step in steps) == 1
    assert 2 * LEARNED <= watch.discarded < 3 * LEARNED


@pytest.mark.parametrize("phi", [0.0, 0.5])
@pytest.mark.parametrize("height", [HEIGHT, -HEIGHT])
def test_a_step_is_found_at_its_place(height: float, phi: float) -> None:
    for seed in range(5):
        watch, steps = watched(noise(AT + 100, seed, phi) + bump(AT + 100, AT, AT + 100, height))
        (change,) = changes(steps)
        assert change.direction is (Direction.SLOWER if height > 0 else Direction.FASTER)
        assert abs(index(change.started_at_ns) - AT) <= 1
        assert change.effect == pytest.approx(math.expm1(height), abs=0.02)
        assert change.ci[0] < change.effect < change.ci[1]
        assert change.before == pytest.approx(0, abs=0.015)
        assert change.after == pytest.approx(height, abs=0.02)
        assert change.probability > 0.99
        assert change.kind is Kind.LEVEL
        assert watch.level == pytest.approx(height, abs=0.02)


def test_a_step_is_found_as_soon_as_it_has_lasted() -> None:
    for seed in range(5):
        _, steps = watched(noise(AT + 50, seed) + bump(AT + 50, AT, AT + 50))
        number = next(number for number, step in enumerate(steps) if step.change)
        change = changes(steps)[0]
        assert AT + LASTING - 1 <= number <= AT + LASTING + 3
        assert change.detected_at_ns == at_ns(number) + PARAMETERS.window_ns
        assert change.windows_after == number - index(change.started_at_ns) + 1


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_noise_alone(phi: float) -> None:
    """12 series of an hour; 0.0003 false alarms an hour are allowed to each."""
    assert sum(bool(changes(watched(noise(720, seed, phi))[1])) for seed in range(12)) == 0


def test_a_change_too_small_to_matter_is_no_change() -> None:
    _, steps = watched(noise(700, seed=1, sigma=0.01) + bump(700, AT, 700, 0.012))
    assert changes(steps) == []
    assert any(step.reason.startswith("smaller than the minimum effect") for step in steps)


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_slowdown_that_makes_the_pace_unsteady_has_intervals_as_wide(phi: float) -> None:
    """Noise of 1 % before, 3 % after: 19 of 20 intervals hold the truth, with standard errors, and so do later ones."""
    missed, again_missed, measured_again = [], [], 0
    for seed in range(20):
        steady, unsteady = noise(AT, seed, phi, 0.01), HEIGHT + noise(200, 1000 + seed, phi, 0.03)
        _, steps = watched(np.concatenate([steady, unsteady]))
        change, again = changes(steps)[0], changes(steps, again=True)
        missed += [seed] * (not change.ci[0] <= TRUTH <= change.ci[1])
        again_missed += [seed for one in again if not one.ci[0] <= TRUTH <= one.ci[1]]
        measured_again += len(again)
    assert len(missed) <= 4, f"missed with seeds {missed}"
    assert len(again_missed) <= 0.15 * measured_again, f"missed again with seeds {again_missed}"


def test_a_slowdown_of_a_few_windows_is_measured_again() -> None:
    """Too few to tell their own noise: that of the baseline is taken."""
    watch = ShiftWatch(replace(PARAMETERS, persistence_windows=1))
    steps = feed(watch, noise(AT + 50, 3, 0.5, 0.005) + bump(AT + 50, AT, AT + 50, 0.5))
    again = changes(steps, again=True)
    assert len(changes(steps)) == 1
    assert again[0].windows_after == 6
    assert all(one.ci[0] < one.effect < one.ci[1] for one in again)


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_the_effect_gets_better_as_it_lasts(phi: float) -> None:
    """Measured anew whenever the windows have doubled, each time with the truth in some 19 of 20 intervals."""
    early, late, held, total = [], [], 0, 0
    for seed in range(12):
        _, steps = watched(noise(AT + 200, seed, phi) + bump(AT + 200, AT, AT + 200))
        (change,), again = changes(steps), changes(steps, again=True)
        assert len(again) >= 3
        for earlier, later in pairwise([change, *again]):
            assert later.windows_after >= 2 * earlier.windows_after
            assert later.detected_at_ns > earlier.detected_at_ns
        widths = [one.ci[1] - one.ci[0] for one in (change, *again)]
        assert widths[-1] < widths[0]  # that of the first is told by the noise of a few windows
        assert all(later < earlier for earlier, later in pairwise(widths[1:]))
        for one in again:
            assert one.direction is Direction.SLOWER
            assert one.started_at_ns == change.started_at_ns
            assert (one.before, one.probability, one.kind) == (change.before, change.probability, change.kind)
            assert one.ci[0] < one.effect < one.ci[1]
            held += one.ci[0] <= TRUTH <= one.ci[1]
            total += 1
        early.append(abs(change.effect - TRUTH))
        late.append(abs(again[-1].effect - TRUTH))
    assert held >= 0.85 * total
    assert np.mean(late) < 0.7 * np.mean(early)


def test_the_effect_gets_better_after_a_suspicion() -> None:
    """The noise goes down as the step comes, so that its first 12 windows tell of too little, and all after of more."""
    _, steps = watched(noise(AT + 200, 7, 0.5) + bump(AT + 200, AT, AT + 200))
    assert len(changes(steps)) == 1
    assert len(changes(steps, again=True)) >= 1


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_the_end_is_found(phi: float) -> None:
    """Noise that wanders may leave something over, the end of which is told too."""
    for seed in range(5):
        watch, steps = watched(noise(600, seed, phi) + bump(600, AT, 450))
        slower, faster, *rest = changes(steps)
        assert (slower.direction, faster.direction) == (Direction.SLOWER, Direction.FASTER)
        assert [one.direction for one in rest] == [Direction.FASTER] * len(rest)
        assert len(rest) <= (1 if phi else 0)
        assert abs(index(faster.started_at_ns) - 450) <= 1
        assert index(faster.detected_at_ns) <= 450 + LASTING + 3
        assert faster.effect == pytest.approx(math.expm1(-HEIGHT), abs=0.035)
        assert watch.level == pytest.approx(0, abs=0.025)


def test_nothing_is_measured_after_the_end() -> None:
    _, steps = watched(noise(900, seed=2) + bump(900, AT, 450))
    end = next(number for number, step in enumerate(steps) if step.change and step.change.direction is Direction.FASTER)
    assert changes(steps[end + 1 :], again=True) == []


def test_a_gradual_end_is_an_end() -> None:
    fading = HEIGHT * np.clip((480 - np.arange(700)) / 80, 0, 1) * (np.arange(700) >= AT)
    watch, steps = watched(noise(700, seed=3) + fading)
    directions = [change.direction for change in changes(steps)]
    assert (directions[0], directions[-1]) == (Direction.SLOWER, Direction.FASTER)
    assert watch.level < 0.02


def test_a_second_slowdown_after_the_end_is_another() -> None:
    _, steps = watched(noise(800, seed=4) + bump(800, AT, 400) + bump(800, 550, 800))
    found = changes(steps)
    assert [change.direction for change in found] == [Direction.SLOWER, Direction.FASTER, Direction.SLOWER]
    assert abs(index(found[2].started_at_ns) - 550) <= 1


def test_a_slowdown_that_grows_is_told_again() -> None:
    _, steps = watched(noise(600, seed=5) + bump(600, AT, 600) + bump(600, 420, 600))
    found = changes(steps)
    assert [change.direction for change in found] == [Direction.SLOWER, Direction.SLOWER]
    assert abs(index(found[1].started_at_ns) - 420) <= 1
    assert found[1].before == pytest.approx(HEIGHT, abs=0.02)


@pytest.mark.parametrize("height", [HEIGHT, 1.0])
@pytest.mark.parametrize("length", [1, 4, 8])
def test_what_is_over_before_it_must_have_lasted_is_no_change(length: int, height: float) -> None:
    assert length < LASTING
    steps = [watched(noise(200, seed) + bump(200, 160, 160 + length, height))[1] for seed in range(8)]
    assert sum(bool(changes(one)) for one in steps) <= 1


def test_an_improvement_becomes_the_new_normal() -> None:
    for seed in range(3):
        watch, steps = watched(noise(700, seed) - bump(700, AT, 500))
        better, worse = changes(steps)
        assert (better.direction, worse.direction) == (Direction.FASTER, Direction.SLOWER)
        assert better.windows_after >= 4 * LASTING
        assert abs(index(worse.started_at_ns) - 500) <= 1
        assert worse.before == pytest.approx(-HEIGHT, abs=0.015)
        assert watch.level == pytest.approx(0, abs=0.015)


def test_an_improvement_is_in_no_hurry() -> None:
    _, steps = watched(noise(AT + 100, seed=1) - bump(AT + 100, AT, AT + 20))
    assert changes(steps) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_passed_over(bad: float) -> None:
    values = noise(AT + 60, seed=1) + bump(AT + 60, AT, AT + 60)
    gaps = [0, 5, 100, 119, 120, 250, AT, AT + 4]
    disturbed, plain = values.copy(), ShiftWatch(PARAMETERS)
    disturbed[gaps] = bad
    watch, steps = watched(disturbed)
    assert {steps[gap].reason for gap in gaps} == {"no value"}
    kept = [plain.update(at_ns(number), float(values[number])) for number in range(len(values)) if number not in gaps]
    assert [step for number, step in enumerate(steps) if number not in gaps] == kept
    assert watch.state() == plain.state()
    assert len(changes(steps)) == 1


def test_windows_out_of_order_are_left_out() -> None:
    watch, _ = watched(noise(200, seed=1))
    before = json.dumps(watch.state())
    for late in (at_ns(199), at_ns(198), at_ns(100)):
        assert watch.update(late, 9.0) == Step(reason="window out of order")
    assert json.dumps(watch.state()) == before


@pytest.mark.parametrize("seed", range(4))
def test_restarts_at_random_change_no_verdict(seed: int) -> None:
    """Through a baseline that is learned on, a step, its measures and its end."""
    values = noise(700, seed, 0.5) + bump(700, 0, 30, 0.2) + bump(700, AT, 480)
    straight, expected = watched(values)
    assert {change.direction for change in changes(expected)} == {Direction.SLOWER, Direction.FASTER}
    random = np.random.default_rng(seed)
    cuts = [0, *sorted(int(one) for one in random.choice(np.arange(1, 700), 25, replace=False)), 700]
    watch, steps = ShiftWatch(PARAMETERS), list[Step]()
    for first, end in pairwise(cuts):
        watch = restarted(watch)
        steps += feed(watch, values[first:end], first)
    assert steps == expected
    assert watch.state() == straight.state()


def test_a_batch_is_the_same_as_one_by_one() -> None:
    """One by one: with the state saved and taken up by a new watch at every window."""
    values = noise(420, seed=6) + bump(420, AT, 380)
    _, expected = watched(values)
    watch, steps = ShiftWatch(PARAMETERS), list[Step]()
    for number, value in enumerate(values):
        watch = restarted(watch)
        steps.append(watch.update(at_ns(number), float(value)))
    assert steps == expected


def test_a_state_of_another_version_is_refused() -> None:
    state = ShiftWatch(PARAMETERS).state() | {"version": VERSION + 1}
    with pytest.raises(ValueError, match=f"version {VERSION + 1}, this release reads {VERSION}"):
        ShiftWatch(PARAMETERS).restore(state)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(KeyError):
        ShiftWatch(PARAMETERS).restore({"version": VERSION})


def test_a_state_without_a_baseline_undoes_one() -> None:
    watch, _ = watched(noise(300, seed=1))
    watch.restore(ShiftWatch(PARAMETERS).state())
    assert not watch.settled


def test_a_suspicion_that_nothing_comes_of_is_dropped() -> None:
    """What is too small to matter is taken for normal bit by bit, 64 windows at a time, and nothing is reported."""
    watch, steps = watched(noise(700, seed=1, sigma=0.002) + bump(700, AT, 700, 0.015))
    assert changes(steps) == []
    suspected = [number for number, step in enumerate(steps) if step.suspicion]
    assert suspected[0] <= AT + 3
    quiet = next(number for number in range(AT + 10, 700) if steps[number].suspicion is None)
    assert quiet - suspected[0] == 64
    assert suspected[-1] < 700 - 64
    assert watch.level == pytest.approx(0.015, abs=0.008)


@pytest.mark.parametrize("height", [0.05, 0.3])
def test_what_is_too_small_to_matter_hides_nothing(height: float) -> None:
    """It has lasted for 500 windows when the large one comes, which should be found in 12 windows and not in 200."""
    values = noise(900, seed=1, sigma=0.005) + bump(900, AT, 900, 0.015) + bump(900, 800, 900, height)
    assert [abs(index(change.started_at_ns) - 800) <= 1 for change in changes(watched(values)[1])] == [True]


def test_the_kind_is_told_with_the_change() -> None:
    watch = ShiftWatch(PARAMETERS, Kind.TAIL)
    found = [step.change for step in feed(watch, noise(360, seed=1) + bump(360, AT, 360)) if step.change]
    assert {change.kind for change in found} == {Kind.TAIL}


def test_a_shift_that_came_with_a_doubtful_load_waits_until_another_load_tells() -> None:
    """The same level under the load before: a slowdown. Back at the level of before: it was the load."""
    high = np.arange(LEARNED + 260) >= LEARNED + 100
    values = noise(LEARNED + 260, seed=3, sigma=0.01) + 0.05 * high
    for stays in (True, False):
        watch = ShiftWatch(PARAMETERS)
        reasons, found = set(), []
        for number, value in enumerate(values):
            loaded = high[number] and number < LEARNED + 180
            step = watch.update(
                at_ns(number),
                float(value) if loaded or stays else float(value - 0.05 * high[number]),
                doubt=(0.03 * loaded,),
            )
            reasons.add(step.reason)
            found += [step.change] if step.change else []
            if number == LEARNED + 179:
                assert not found
        assert "explained by the load after all" in reasons
        assert len([change for change in found if not change.measured_again]) == int(stays)


@pytest.mark.parametrize(("lasts", "slower"), [(100, False), (PARAMETERS.history_windows, True)])
def test_the_end_of_a_short_improvement_is_no_slowdown(lasts: int, slower: bool) -> None:
    """Back where it was: noted. What has been normal for hours and is no more: a slowdown."""
    at = LEARNED + 100
    _, steps = watched(noise(at + lasts + 100, seed=8) - bump(at + lasts + 100, at, at + lasts))
    faster, back = changes(steps)
    assert faster.direction is Direction.FASTER
    assert back.direction is Direction.SLOWER
    assert back.way_back is not slower


def test_a_slowdown_beyond_the_level_before_an_improvement_is_one() -> None:
    """It got faster, and soon slower than it had ever been."""
    at = LEARNED + 100
    values = noise(at + 200, seed=10) - bump(at + 200, at, at + 100) + bump(at + 200, at + 100, at + 200)
    _, steps = watched(values)
    _, slower = changes(steps)
    assert slower.direction is Direction.SLOWER
    assert not slower.way_back


def test_an_improvement_that_ends_in_two_steps_ends_twice() -> None:
    at = LEARNED + 100
    values = noise(at + 300, seed=11) - bump(at + 300, at, at + 200) - bump(at + 300, at, at + 100)
    _, steps = watched(values)
    assert [change.way_back for change in changes(steps)] == [False, True, True]
