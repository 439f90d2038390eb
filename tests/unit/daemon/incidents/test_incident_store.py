"""What people do about incidents, in a real database."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from cyclewatch.daemon.alerts.message import Severity
from cyclewatch.daemon.incidents.acting import ActError
from cyclewatch.daemon.incidents.incident import Act, Incident, IncidentState, Note, Told
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_rows import write_incident, write_notes
from cyclewatch.daemon.store.incidents import IncidentStore
from made_incidents import MEMBER, MINUTE, SECOND, START_NS, incident, keep_regressions

NOW_NS = START_NS + 10 * MINUTE


@pytest.fixture(name="engine")
def _engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'a.db'}", create=True)
    yield engine
    engine.dispose()


@pytest.fixture(name="store")
def _store(engine: Engine) -> IncidentStore:
    return IncidentStore(engine)


def kept(engine: Engine, one: Incident) -> int:
    with engine.begin() as connection:
        return write_incident(connection, one)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(ActError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_incident_comes_back_as_it_was_stored(engine: Engine, store: IncidentStore) -> None:
    told = Told(2, NOW_NS, IncidentState.OPEN, Severity.CRITICAL, 0.3, 2, "gpu_power_cap")
    full = incident(
        told=told,
        change="SGLang 0.5.22 to 0.5.23",
        quiet_since_ns=NOW_NS,
        members=(MEMBER, replace(MEMBER, rank="tp1")),
    )
    bare = incident(key="k2", cause=None, state=IncidentState.RESOLVED, ended_at_ns=NOW_NS)
    numbers = [kept(engine, full), kept(engine, bare)]
    assert store.incident(numbers[0]) == replace(full, number=numbers[0])
    assert store.incidents() == [replace(full, number=numbers[0])]
    assert store.incidents(ended=True) == [replace(bare, number=numbers[1]), replace(full, number=numbers[0])]
    assert store.incidents(ended=True, limit=1) == [replace(bare, number=numbers[1])]
    assert store.incidents(ended=True, before=numbers[1]) == [replace(full, number=numbers[0])]


def test_the_regressions_of_an_incident_have_numbers_as_far_as_they_are_kept(
    engine: Engine, store: IncidentStore
) -> None:
    with engine.begin() as connection:
        keep_regressions(connection, "another", "r1")
    gone = replace(MEMBER, regression="gone", rank="tp1")
    number = kept(engine, incident(members=(MEMBER, gone)))
    view = store.view(number, NOW_NS)
    assert view is not None
    assert view.numbers == {"r1": 2}
    assert view.incident == store.incident(number)


def test_what_is_stored_again_replaces_what_was_and_a_series_stays_one_member(
    engine: Engine, store: IncidentStore
) -> None:
    number = kept(engine, incident())
    back = replace(MEMBER, regression="r2", started_at_ns=NOW_NS, effect=0.2)
    altered = incident(number=number, effect=0.2, members=(back, replace(MEMBER, target="other")))
    assert kept(engine, altered) == number
    (stored,) = store.incidents()
    assert set(stored.members) == set(altered.members)
    assert stored.effect == 0.2
    assert stored.targets == 2


def test_an_act_is_kept_with_who_when_and_why(engine: Engine, store: IncidentStore) -> None:
    number = kept(engine, incident())
    with engine.begin() as connection:
        write_notes(connection, number, [Note(START_NS, "opened")])
    done = store.act(number, Act.ACKNOWLEDGE, "ada", "looking", NOW_NS)
    assert done.state is IncidentState.ACKNOWLEDGED
    assert store.incident(number) == done
    assert store.notes(number) == [Note(START_NS, "opened"), Note(NOW_NS, "acknowledge", "ada", "looking")]


def test_what_stays_is_accepted_with_its_size(engine: Engine, store: IncidentStore) -> None:
    over = replace(MEMBER, rank="tp1", ended_at_ns=NOW_NS)
    number = kept(engine, incident(members=(MEMBER, over)))
    done = store.act(number, Act.REBASE, "ada", "", NOW_NS)
    assert (done.state, done.ended_at_ns) == (IncidentState.REBASED, NOW_NS)
    assert [member.accepted_effect for member in done.members] == [MEMBER.effect, None]
    again = store.act(number, Act.REOPEN, "ada", "no, it is not", NOW_NS + SECOND)
    assert (again.state, again.ended_at_ns, again.quiet_since_ns) == (IncidentState.OPEN, None, None)
    assert [member.accepted_effect for member in again.members] == [None, None]


def test_what_is_reopened_when_all_is_over_begins_to_be_quiet(engine: Engine, store: IncidentStore) -> None:
    over = replace(MEMBER, ended_at_ns=START_NS)
    number = kept(engine, incident(state=IncidentState.RESOLVED, ended_at_ns=START_NS, members=(over,)))
    assert store.act(number, Act.REOPEN, "ada", "", NOW_NS).quiet_since_ns == NOW_NS


@pytest.mark.parametrize(
    ("state", "act", "sentence"),
    [
        (IncidentState.ACKNOWLEDGED, Act.ACKNOWLEDGE, "incident 1 is acknowledged already"),
        (IncidentState.RESOLVED, Act.ACKNOWLEDGE, "incident 1 is resolved: reopen it first"),
        (IncidentState.RESOLVED, Act.RESOLVE, "incident 1 is resolved: reopen it first"),
        (IncidentState.REBASED, Act.REBASE, "incident 1 is rebased: reopen it first"),
        (IncidentState.OPEN, Act.REOPEN, "incident 1 is open: there is nothing to reopen"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    engine: Engine, store: IncidentStore, state: IncidentState, act: Act, sentence: str
) -> None:
    number = kept(engine, incident(state=state))
    assert refusal(lambda: store.act(number, act, "ada", "", NOW_NS)) == sentence
    assert store.notes(number) == []


def test_nothing_is_reopened_whose_series_another_incident_has(engine: Engine, store: IncidentStore) -> None:
    number = kept(engine, incident(state=IncidentState.REBASED, ended_at_ns=NOW_NS))
    other = kept(engine, incident(key="k2"))
    sentence = f"incident {other} tells of the same now: act on that one"
    assert refusal(lambda: store.act(number, Act.REOPEN, "ada", "", NOW_NS)) == sentence


@pytest.mark.parametrize("number", [0, -1, 7, 2**63, 10**30])
def test_a_number_that_is_none_is_no_incident(store: IncidentStore, number: int) -> None:
    assert store.incident(number) is None
    assert store.notes(number) == []
    assert f"there is no incident {number}" in refusal(lambda: store.act(number, Act.RESOLVE, "ada", "", NOW_NS))
    assert f"there is no silence {number}:" in refusal(lambda: store.end_silence(number, "ada", NOW_NS))
    assert store.view(number, NOW_NS) is None
    assert f"there is no expectation {number}:" in refusal(lambda: store.end_expectation(number, "ada", NOW_NS))


def test_silences_hold_until_they_are_over_or_ended(store: IncidentStore) -> None:
    first = store.silence("gpu-*", "*", NOW_NS, NOW_NS + MINUTE, "ada", "moving racks", NOW_NS)
    second = store.silence("*", "network", NOW_NS + MINUTE, NOW_NS + 2 * MINUTE, "ada", "", NOW_NS)
    assert store.silences(NOW_NS) == [second, first]
    assert store.silences(NOW_NS, limit=1) == [second]
    assert store.silences(NOW_NS, before=second.number) == [first]
    assert store.silences(NOW_NS + MINUTE) == [second]
    ended = store.end_silence(second.number, "bob", NOW_NS + MINUTE)
    assert ended == replace(second, until_ns=NOW_NS + MINUTE, why="(ended by bob)")
    assert store.silences(NOW_NS + MINUTE) == []
    assert store.silences(NOW_NS + MINUTE, over=True) == [ended, first]
    assert "over already" in refusal(lambda: store.end_silence(second.number, "bob", NOW_NS + MINUTE))


def test_announced_changes_hold_until_they_are_over_or_ended(store: IncidentStore) -> None:
    first = store.expect("*", NOW_NS - MINUTE, NOW_NS + MINUTE, "ada", "0.5.24", NOW_NS)
    assert store.expectations(NOW_NS) == [first]
    ended = store.end_expectation(first.number, "ada", NOW_NS + SECOND)
    assert ended == replace(first, until_ns=NOW_NS + SECOND, why="0.5.24 (ended by ada)")
    assert store.expectations(NOW_NS + SECOND) == []
    assert store.expectations(NOW_NS + SECOND, over=True) == [ended]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": " \n"}, "target is empty: * stands for any"),
        ({"target": "x" * 129}, "target is longer than 128 characters: shorten it"),
        ({"cause": ""}, "cause is empty: * stands for any"),
        ({"cause": "x" * 65}, "cause is longer than 64 characters: shorten it"),
        ({"who": "\x00"}, "who is empty: say who does it"),
        ({"why": "x" * 2001}, "why is longer than 2000 characters: shorten it"),
        ({"until_ns": NOW_NS - 1}, "the time is over already: let it end later than now"),
        ({"until_ns": NOW_NS - MINUTE}, "the time must end after it begins, and before the year 2262"),
        ({"until_ns": 2**63}, "the time must end after it begins, and before the year 2262"),
        ({"from_ns": -1}, "the time must end after it begins, and before the year 2262"),
    ],
)
def test_what_no_silence_can_be_is_said(store: IncidentStore, changes: dict[str, Any], sentence: str) -> None:
    values = {
        "target": "*",
        "cause": "*",
        "from_ns": NOW_NS - MINUTE,
        "until_ns": NOW_NS + MINUTE,
        "who": "ada",
        "why": "",
        "now_ns": NOW_NS,
        **changes,
    }
    assert refusal(lambda: store.silence(**values)) == sentence
    assert store.silences(0, over=True) == []


def test_two_people_who_act_at_once_do_so_one_after_the_other(engine: Engine, store: IncidentStore) -> None:
    number = kept(engine, incident())
    begin, sentences = threading.Barrier(8), list[str]()

    def acknowledge() -> None:
        begin.wait()
        try:
            store.act(number, Act.ACKNOWLEDGE, "ada", "", NOW_NS)
        except ActError as error:
            sentences.append(str(error))

    threads = [threading.Thread(target=acknowledge) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sentences == [f"incident {number} is acknowledged already"] * 7
    assert len(store.notes(number)) == 1
