"""Incidents in a PostgreSQL that several daemons share."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, insert
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.incidents.incident import Act
from cyclewatch.daemon.incidents.service import LEASE_NS
from cyclewatch.daemon.store.models import SampleRow, SeriesRow
from incident_daemons import Daemons, pass_and_act_together
from made_incidents import SECOND, START_NS, finding
from postgres_server import PostgresServer


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(name="daemons")
def _daemons(server: PostgresServer) -> Iterator[Daemons]:
    daemons = Daemons(server.url(server.database()))
    yield daemons
    daemons.engine.dispose()


def test_a_life_from_beginning_to_end(daemons: Daemons) -> None:
    service = daemons.daemon()
    daemons.add(finding(), finding("r2", node="other", target="b"))
    with daemons.engine.begin() as connection:
        values = {"node": "node", "key": "k", "target": "server", "name": "engine.ttft_mean_s", "labels": {}}
        number = connection.execute(insert(SeriesRow).values(values).returning(SeriesRow.id)).scalar_one()
        rows = [{"series_id": number, "at_ns": START_NS + age * SECOND, "value": 0.2 + age / 100} for age in (-10, 10)]
        connection.execute(insert(SampleRow), rows)
    told = daemons.wait(service, 60)
    daemons.store.act(1, Act.ACKNOWLEDGE, "ada", "on it", daemons.clock.now_ns)
    told += daemons.wait(service, 10)
    daemons.end("r1")
    daemons.end("r2")
    told += daemons.wait(service, 3600, 60)
    assert [(one.state, one.by, one.targets) for one in told] == [
        (State.OPENED, "", 2),
        (State.ACKNOWLEDGED, "ada (on it)", 2),
        (State.RESOLVED, "", 2),
    ]
    (ttft,) = told[0].felt
    assert ttft.name == "TTFT"
    assert [ttft.before, ttft.after] == pytest.approx([100.0, 300.0])
    assert len(daemons.outbox()) == 6
    assert daemons.store.notes(1)[-1].why == "resolved"


def test_passes_beside_people_who_act_lose_nothing_of_what_they_did(daemons: Daemons) -> None:
    pass_and_act_together(daemons)


def test_another_daemon_takes_over_from_one_that_is_cut_off_in_the_middle(
    daemons: Daemons, server: PostgresServer
) -> None:
    """Its transaction is gone, its lease lapses, and what it did not tell is told once."""
    first, second = daemons.daemon("node:1"), daemons.daemon("node:2")
    daemons.add(finding())

    def cut_off(*arguments: Any) -> None:
        if arguments[2].startswith("INSERT INTO outbox"):
            event.remove(daemons.engine, "before_cursor_execute", cut_off)
            server.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{daemons.engine.url.database}' AND pid <> pg_backend_pid()"
            )

    event.listen(daemons.engine, "before_cursor_execute", cut_off)
    with pytest.raises(SQLAlchemyError):
        daemons.wait(first, 60)
    assert daemons.outbox() == []
    assert daemons.wait(second, 10) == []
    daemons.clock.now_ns += LEASE_NS
    (message,) = daemons.wait(second, 60)
    assert message.state is State.OPENED
    assert daemons.wait(first, 30) == []
