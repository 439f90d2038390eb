"""Passes over a real database: what is stored, told and put into the outbox, and by whom."""

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from structlog.testing import capture_logs

from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import Felt, FirstCause, Message, Severity, State
from cyclewatch.daemon.incidents.incident import Act
from cyclewatch.daemon.incidents.service import LEASE_NS, IncidentService, holder_name
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.models import ChangeEventRow, RegressionRow, SampleRow, SeriesRow
from incident_daemons import SINKS, Daemons, pass_and_act_together
from made_incidents import MINUTE, SECOND, START_NS, finding


@pytest.fixture(name="empty", scope="module")
def _empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the newest schema: to make it takes longer than a test."""
    path = tmp_path_factory.mktemp("empty") / "a.db"
    open_database(f"sqlite:///{path}", create=True).dispose()
    return path


@pytest.fixture(name="daemons")
def _daemons(tmp_path: Path, empty: Path) -> Iterator[Daemons]:
    daemons = Daemons(f"sqlite:///{shutil.copy(empty, tmp_path / 'a.db')}")
    yield daemons
    daemons.engine.dispose()


def test_an_incident_and_its_messages_are_stored_together_for_every_sink(daemons: Daemons) -> None:
    service = daemons.daemon()
    daemons.add(finding())
    (message,) = daemons.wait(service, 60)
    assert (message.incident, message.state, message.command) == ("1", State.OPENED, "cyclewatch incidents show 1")
    assert message.cause == FirstCause(
        "gpu_power_cap", "the GPU's power limit holds its clock down (gpu3)", ("700 W before, 400 W after",)
    )
    assert "nvidia-smi" in message.next_step
    assert {row.key for row in daemons.outbox()} == {f"{message.key}:1:team", f"{message.key}:1:boss"}
    assert {row.thread for row in daemons.outbox()} == {message.key}
    assert daemons.put == 1
    assert [note.what for note in daemons.store.notes(1)] == ["opened", "told"]


def test_a_life_is_told_from_beginning_to_end(daemons: Daemons) -> None:
    service = daemons.daemon()
    daemons.add(finding())
    told = daemons.wait(service, 60)
    daemons.store.act(1, Act.ACKNOWLEDGE, "ada", "on it", daemons.clock.now_ns)
    told += daemons.wait(service, 10)
    daemons.end("r1")
    ended_ns = daemons.clock.now_ns
    told += daemons.wait(service, 3600, 60)
    assert [(one.state, one.by) for one in told] == [
        (State.OPENED, ""),
        (State.ACKNOWLEDGED, "ada (on it)"),
        (State.RESOLVED, ""),
    ]
    assert (told[-1].at_ns, told[-1].next_step) == (ended_ns, "")
    assert len({one.key for one in told}) == 1
    assert len(daemons.outbox()) == 6


def test_what_a_person_ends_is_told_with_who_and_why(daemons: Daemons) -> None:
    service = daemons.daemon()
    daemons.add(finding(), finding("r2", target="b", started_at_ns=START_NS - 900 * SECOND), causes=())
    daemons.wait(service, 60)
    daemons.store.act(1, Act.RESOLVE, "ada", "", daemons.clock.now_ns)
    daemons.store.act(2, Act.REBASE, "bob", "new model", daemons.clock.now_ns)
    told = daemons.wait(service, 5)
    assert {(one.state, one.by) for one in told} == {(State.RESOLVED, "ada"), (State.ACCEPTED, "bob (new model)")}


def test_what_was_announced_is_told_with_who_and_why(daemons: Daemons) -> None:
    service = daemons.daemon()
    daemons.store.expect("*", START_NS, START_NS + 60 * MINUTE, "ada", "SGLang 0.5.24", START_NS)
    daemons.add(finding(effect=0.4))
    (message,) = daemons.wait(service, 60)
    assert (message.state, message.severity, message.by) == (State.EXPECTED, Severity.INFO, "ada (SGLang 0.5.24)")


def test_it_says_what_users_felt_and_what_was_changed(daemons: Daemons) -> None:
    service = daemons.daemon()
    events = ("0.5.22", "0.5.23", START_NS - MINUTE), ("0.4", "0.5", START_NS - 60 * MINUTE)
    with daemons.engine.begin() as connection:
        for before, after, at_ns in events:
            values = {"target": "server", "kind": "version", "subject": "sglang", "before": before, "after": after}
            connection.execute(insert(ChangeEventRow).values(node="node", key=before, at_ns=at_ns, **values))
        for name, was, became in (
            ("engine.ttft_mean_s", 0.2, 0.25),
            ("engine.generation_tokens_per_s", 100.0, 80.0),
            ("engine.itl_mean_s", 0.01, None),
        ):
            series = {"node": "node", "key": f"server|{name}", "target": "server", "name": name, "labels": {}}
            number = connection.execute(insert(SeriesRow).values(series).returning(SeriesRow.id)).scalar_one()
            rows = [{"series_id": number, "at_ns": START_NS - age * SECOND, "value": was} for age in (5, 10)]
            rows += [{"series_id": number, "at_ns": START_NS - 700 * SECOND, "value": 9.0}]
            rows += [{"series_id": number, "at_ns": START_NS + 20 * SECOND, "value": became}] if became else []
            connection.execute(insert(SampleRow), rows)
    daemons.add(finding())
    (message,) = daemons.wait(service, 60)
    assert message.change == "SGLang 0.5.22 to 0.5.23"
    assert message.felt == (Felt("TTFT", 200.0, 250.0, "ms"), Felt("throughput", 100.0, 80.0, "tokens/s"))


def test_links_lead_to_the_dashboard_and_the_runbook(daemons: Daemons) -> None:
    settings = Incidents(dashboard="https://grafana.example.com/d/x?orgId=1", runbook="https://wiki.example.com/books/")
    daemons.add(finding(target="a b&c"))
    (message,) = daemons.wait(daemons.daemon(settings=settings), 60)
    began_ms = START_NS // 10**6
    assert message.links.dashboard.startswith(
        f"https://grafana.example.com/d/x?orgId=1&var-node=node&var-target=a+b%26c&from={began_ms - 1_800_000}&to="
    )
    assert message.links.runbook == "https://wiki.example.com/books/gpu_power_cap"


def test_improvements_are_no_incidents(daemons: Daemons) -> None:
    daemons.add(finding())
    with daemons.engine.begin() as connection:
        connection.execute(update(RegressionRow).values(direction="faster", state="noted"))
    assert daemons.wait(daemons.daemon(), 60) == []
    assert daemons.store.incidents(ended=True) == []


def test_what_ended_before_anybody_looked_is_history_after_an_hour(daemons: Daemons) -> None:
    daemons.add(finding(ended_at_ns=START_NS + MINUTE), finding("r2", target="b", ended_at_ns=START_NS + 50 * MINUTE))
    daemons.clock.now_ns = START_NS + 90 * MINUTE
    told = daemons.wait(daemons.daemon(), 60)
    assert [one.target for one in told] == ["b"]


def test_one_daemon_tells_until_its_lease_has_lapsed(daemons: Daemons) -> None:
    first, second = daemons.daemon("node:1"), daemons.daemon("node:2")
    daemons.add(finding())
    daemons.wait(first, 5)
    assert daemons.wait(second, 50) == []
    assert (first.holds_lease(), second.holds_lease()) == (True, False)
    daemons.clock.now_ns += LEASE_NS
    (message,) = daemons.wait(second, 60)
    assert message.state is State.OPENED
    assert (first.holds_lease(), second.holds_lease()) == (False, True)
    assert first.look() == []


def test_a_clock_that_is_put_back_makes_no_lease_longer(daemons: Daemons) -> None:
    """Others see the time that is right, and take over when the lease has lapsed."""
    service = daemons.daemon()
    service.look()
    assert service.holds_lease()
    daemons.clock.put_back_ns = 3600 * SECOND
    daemons.clock.now_ns += LEASE_NS
    assert not service.holds_lease()


def test_a_daemon_that_stops_lets_another_go_on_at_once(daemons: Daemons) -> None:
    first, second = daemons.daemon("node:1"), daemons.daemon("node:2")
    first.start()
    until_s = time.monotonic() + 30
    while not first.holds_lease() and time.monotonic() < until_s:
        time.sleep(0.01)
    assert first.stop(30)
    second.look()
    assert (first.holds_lease(), second.holds_lease()) == (False, True)


def test_a_restart_takes_its_own_lease_and_tells_nothing_twice(daemons: Daemons) -> None:
    daemons.add(finding())
    assert len(daemons.wait(daemons.daemon(), 60)) == 1
    again = daemons.daemon()
    assert daemons.wait(again, 60) == []
    assert again.holds_lease()
    assert holder_name("node", Path("/a")) == holder_name("node", Path("/a")) != holder_name("node", Path("/b"))


@pytest.mark.parametrize("statement", range(1, 14))
def test_a_pass_that_is_broken_off_anywhere_is_made_again(daemons: Daemons, statement: int) -> None:
    """Whatever statement is the last: then nothing of the pass is stored, and the next one tells it, once."""
    daemons.add(finding(), finding("r2", target="b"))
    count = 0

    def broken(*arguments: Any) -> None:
        nonlocal count
        if arguments[2].startswith(("INSERT", "UPDATE")):
            count += 1
            if count == statement:
                raise OperationalError(arguments[2], {}, Exception("killed"))

    event.listen(daemons.engine, "before_cursor_execute", broken)
    told = []
    for _ in range(24):
        daemons.clock.now_ns += 5 * SECOND
        with contextlib.suppress(SQLAlchemyError):
            told += daemons.daemon().look()
    event.remove(daemons.engine, "before_cursor_execute", broken)
    assert [one.targets for one in told] == [2]
    assert len(daemons.outbox()) == 2
    assert len(daemons.store.incidents()) == 1


def test_passes_beside_people_who_act_lose_nothing_of_what_they_did(daemons: Daemons) -> None:
    pass_and_act_together(daemons)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OperationalError("SELECT", {}, Exception("unable to open database file")), "incidents wait for the database"),
        (ValueError("a defect"), "a pass over the incidents failed; it is made again and again"),
    ],
)
def test_the_thread_says_once_that_passes_fail(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    service = daemons.daemon()
    away = threading.Event()
    away.set()
    passes = 0
    real = service.look

    def look() -> list[Message]:
        nonlocal passes
        passes += 1
        if away.is_set():
            raise error
        return real()

    monkeypatch.setattr(service, "look", look)
    with capture_logs() as logs:
        service.start()
        _until(lambda: passes > 3)
        away.clear()
        _until(lambda: any(line["event"] == "incidents go on" for line in logs))
        assert service.stop(30)
    said = [line["event"] for line in logs]
    assert said.count(sentence) == said.count("incidents go on") == 1


def _until(condition: Any) -> None:
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s, "it did not come about"
        time.sleep(0.01)


def test_prometheus_sees_what_stands_and_what_was_told(daemons: Daemons) -> None:
    metrics = Metrics()
    service = IncidentService(Incidents(), SINKS, daemons.engine, "node:1", metrics, daemons.clock)
    daemons.add(finding(effect=0.3))
    daemons.wait(service, 60)
    counts: Mapping[tuple[str, str], int] = metrics.state.incidents
    assert counts == {("open", "critical"): 1}
    value = metrics.registry.get_sample_value("cyclewatch_incident_messages_total", {"state": "opened"})
    assert value == 1
