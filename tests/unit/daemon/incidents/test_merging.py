"""Incidents that turn out to be one: by causes that become known later."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from cyclewatch.daemon.alerts.message import FirstCause, State
from cyclewatch.daemon.incidents.acting import ActError
from cyclewatch.daemon.incidents.incident import Act, IncidentState
from cyclewatch.daemon.store.models import RegressionRow
from cyclewatch.daemon.triage.documents import incident_detail
from incident_daemons import CAUSE, Daemons
from incident_world import World
from made_incidents import HEAT, MINUTE, POWER, SECOND, START_NS, finding

NODES = 20


def fleet(apart_s: float = 2.0) -> World:
    """Servers of as many nodes that became slower together, told of as unexplained: an incident each."""
    world = World()
    for number in range(NODES):
        began_ns = START_NS + int(number * apart_s * SECOND)
        world.put(finding(f"r{number}", node=f"n{number}", started_at_ns=began_ns, cause=None))
    world.wait(120)
    assert len(world.standing) == NODES
    return world


def explain(world: World, cause: FirstCause | None, *keys: str) -> None:
    for key in keys or tuple(world.findings):
        world.put(replace(world.findings[key], cause=cause))


def test_what_one_cause_explains_later_goes_on_as_one_incident() -> None:
    """The others are told to be one with it, once; it is told to have grown, once; and its end is one message."""
    world = fleet()
    world.told.clear()
    explain(world, POWER)
    world.wait(300)
    (one,) = world.standing
    assert one.number == 1
    assert one.targets == NODES
    assert {other.merged_into for other in world.incidents.values() if other is not one} == {1}
    assert sorted(world.states_told) == sorted([State.MERGED] * (NODES - 1) + [State.GROWN])
    world.told.clear()
    for key in list(world.findings):
        world.end(key)
    world.wait(4 * 3600, 60)
    assert world.states_told == [State.RESOLVED]
    assert world.standing == []


def test_causes_that_become_known_one_after_the_other_are_merged_as_they_do() -> None:
    world = fleet()
    world.told.clear()
    for key in list(world.findings):
        explain(world, POWER, key)
        world.wait(60)
    assert len(world.standing) == 1
    assert world.states_told.count(State.MERGED) == NODES - 1
    # Its cause, and four and sixteen times the servers.
    assert world.states_told.count(State.GROWN) == 3


@pytest.mark.parametrize("causes", [(POWER, HEAT), (None, None), (POWER, None)])
def test_what_has_another_cause_or_none_stays_apart(causes: tuple[FirstCause | None, ...]) -> None:
    world = World()
    world.put(*(finding(f"r{number}", node=f"n{number}", cause=cause) for number, cause in enumerate(causes)))
    world.wait(600)
    assert len(world.standing) == 2


def test_what_began_at_another_time_stays_apart() -> None:
    world = fleet(apart_s=10 * 60)
    explain(world, POWER)
    world.wait(600)
    assert len(world.standing) == NODES


def test_what_is_over_or_quiet_is_not_merged() -> None:
    world = fleet()
    world.end("r0")
    world.wait(10)
    explain(world, POWER)
    world.wait(60)
    assert {one.number for one in world.standing} == {1, 2}


def test_a_cause_that_comes_and_goes_merges_once() -> None:
    world = fleet()
    for _ in range(100):
        explain(world, POWER)
        world.wait(60)
        explain(world, HEAT, "r1")
        explain(world, None, "r0", "r2")
        world.wait(60)
    assert len(world.standing) == 1
    assert world.states_told.count(State.MERGED) == NODES - 1
    assert len(world.told) <= 2 * NODES + 1


def test_what_comes_back_comes_back_to_the_incident_that_has_it() -> None:
    world = fleet()
    explain(world, POWER)
    world.wait(60)
    for key in list(world.findings):
        world.end(key)
    world.wait(3600, 60)
    world.put(finding("again", node="n7", started_at_ns=world.now_ns))
    world.wait(60)
    (one,) = world.standing
    assert (one.number, one.returns) == (1, 1)


@pytest.mark.parametrize("act", Act)
def test_one_that_was_merged_cannot_be_acted_on(act: Act) -> None:
    world = fleet()
    explain(world, POWER)
    world.wait(60)
    key = next(key for key, one in world.incidents.items() if one.state is IncidentState.MERGED)
    with pytest.raises(ActError, match="is one with incident 1: act on that one"):
        world.act(key, act)


def test_it_is_stored_and_told_in_one_pass_and_shown(tmp_path: Path) -> None:
    daemons = Daemons(f"sqlite:///{tmp_path / 'cyclewatch.db'}")
    service = daemons.daemon()
    daemons.add(*(finding(f"r{number}", node=f"n{number}") for number in range(2)), causes=())
    daemons.wait(service, 120)
    with daemons.engine.begin() as connection:
        connection.execute(update(RegressionRow).values(causes=[CAUSE]))
    (told,) = daemons.wait(service, 5)
    assert (told.state, told.incident, told.by) == (State.MERGED, "2", "incident 1")
    assert told.next_step == "go on with that one: cyclewatch incidents show 1"
    # What was not sent yet is told with it.
    of_two = [(row.key.split(":")[1:], row.state) for row in daemons.outbox() if row.thread == told.key]
    assert sorted(of_two) == [
        (["1", "boss"], "together"),
        (["1", "team"], "together"),
        (["2", "boss"], "pending"),
        (["2", "team"], "pending"),
    ]
    shown = daemons.store.view(2, START_NS + 5 * MINUTE)
    assert shown is not None
    document = incident_detail(shown)
    assert (document.state, document.merged_into) == (IncidentState.MERGED, 1)
    assert [(note.what, note.why) for note in document.notes][-2:] == [
        ("merged", "into incident 1"),
        ("told", "merged"),
    ]
    assert ("merged", "incident 2 into this") in [(note.what, note.why) for note in daemons.store.notes(1)]
    with pytest.raises(ActError, match="is one with incident 1"):
        daemons.store.act(2, Act.REOPEN, "ada", "", START_NS + 5 * MINUTE)
    daemons.engine.dispose()
