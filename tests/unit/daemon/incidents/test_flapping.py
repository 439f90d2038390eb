"""A shift that comes and goes all day, and many servers at once: few messages."""

from dataclasses import replace

import pytest

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.watch import SeriesKey, SeriesWatch
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching import tracking
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.windows import cells_of
from incident_world import World
from made_incidents import HEAT, MINUTE, POWER, SECOND, START_NS, finding
from simulated import WINDOW_NS, server

DAY_S = 86_400
FOUND_AFTER_S = 60.0
"""How long the detector takes to confirm a shift, or its end."""


def flapping(period_s: float) -> World:
    """A day in which a server is slower in the first half of each period, and what was told by the night after."""
    world, length_ns = World(), int(period_s * SECOND)
    for number in range(int(DAY_S / period_s)):
        began_ns = START_NS + number * length_ns
        one = finding(f"r{number}", started_at_ns=began_ns)
        for at_ns, found in (began_ns, one), (began_ns + length_ns // 2, None):
            world.wait((at_ns - world.now_ns) / SECOND + FOUND_AFTER_S, 30)
            world.put(found or replace(one, ended_at_ns=at_ns))
            world.look()
    world.wait(DAY_S / 4, 60)
    return world


@pytest.mark.parametrize("minutes", [2, 4, 6, 10, 20, 40])
def test_what_comes_and_goes_every_few_minutes_all_day_is_two_messages(minutes: int) -> None:
    world = flapping(minutes * 60)
    assert world.states_told == [State.OPENED, State.RESOLVED]
    (one,) = world.incidents.values()
    assert len(one.members) == 1


@pytest.mark.parametrize(("minutes", "most"), [(60, 4), (120, 6), (240, 8), (480, 6)])
def test_what_comes_and_goes_every_few_hours_is_told_less_often_than_it_does(minutes: int, most: int) -> None:
    """At longer periods each is an event of its own, and told as such."""
    assert len(flapping(minutes * 60).told) <= most


def test_the_real_detector_and_a_shift_of_every_ten_minutes_make_one_message_until_it_ends() -> None:
    """Two hours of 15 % more for five minutes, and five minutes without."""
    lead, hours = 240, 2
    settings = Settings()
    watch = SeriesWatch(
        SeriesKey("server", "tp0", "decode", "f00d"), Parameters.of(settings.detection, settings.windows)
    )
    shifts = range(lead, lead + hours * 720, 60)
    slower = {window: 1.15 if number % 2 == 0 else 1.0 for number, window in enumerate(shifts)}
    world, keys = World(), set[str]()
    for window, records in server(shifts.stop, seed=3, slower=slower, cycles_a_window=20):
        at_ns = START_NS + window * WINDOW_NS
        world.now_ns = at_ns + WINDOW_NS
        _, found = watch.update(at_ns, records, list(cells_of(Phase.DECODE, records)))
        for regression in (one.regression for one in found):
            if regression.state is not tracking.State.NOTED:
                keys.add(regression.key)
                times = {"started_at_ns": regression.started_at_ns, "ended_at_ns": regression.ended_at_ns}
                world.put(finding(regression.key, effect=regression.effect, ci=regression.ci, **times))
        world.look()
    assert len(keys) >= 10
    assert world.states_told == [State.OPENED]
    world.wait(DAY_S / 4, 60)
    assert world.states_told == [State.OPENED, State.RESOLVED]


def many(count: int, over_s: float, **changes: object) -> World:
    """So many servers of one node become slower, and are found one after the other within `over_s`."""
    world = World()
    for number in range(count):
        world.wait(START_NS / SECOND + number * over_s / count - world.now_ns / SECOND, 5)
        world.put(finding(f"r{number}", target=f"t{number}", **changes))
        world.look()
    world.wait(600)
    return world


@pytest.mark.parametrize("over_s", [0, 10, 90])
def test_two_hundred_servers_of_one_cause_are_one_incident_and_one_message_with_their_count(over_s: float) -> None:
    world = many(200, over_s)
    (one,) = world.incidents.values()
    assert one.targets == 200
    assert world.states_told == [State.OPENED]
    assert one.told is not None
    assert one.told.targets == 200


def test_two_hundred_servers_of_many_nodes_too() -> None:
    world = World()
    world.put(*(finding(f"r{number}", node=f"n{number % 25}", target=f"t{number // 25}") for number in range(200)))
    world.wait(600)
    (one,) = world.incidents.values()
    assert one.targets == 200
    assert world.states_told == [State.OPENED]


def test_two_causes_at_once_stay_two_incidents() -> None:
    world = World()
    world.put(
        *(finding(f"p{number}", target=f"p{number}", cause=POWER) for number in range(20)),
        *(finding(f"h{number}", target=f"h{number}", cause=HEAT) for number in range(30)),
    )
    world.wait(600)
    assert sorted(one.targets for one in world.incidents.values()) == [20, 30]
    assert world.states_told == [State.OPENED] * 2


def test_what_comes_in_for_long_is_told_before_all_of_it_is_there_and_once_more_when_much_more_is() -> None:
    """A server every ten seconds for half an hour: 12 in the first message, four times as many in the next."""
    world = many(180, 30 * 60)
    told = [(state, (at_ns - START_NS) // MINUTE) for _, state, at_ns in world.told]
    assert told == [(State.OPENED, 2), (State.GROWN, 7)]
