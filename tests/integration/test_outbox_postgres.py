"""The outbox in a real PostgreSQL: each question that delivery asks, and what it leaves."""

import json
from collections.abc import Iterator

import pytest

from couriers import DAY_S, Lab, status
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.store.outbox_view import OutboxView
from postgres_server import PostgresServer


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


def test_messages_wait_are_told_together_given_up_and_sent_after_all(server: PostgresServer) -> None:
    lab = Lab(server.url(server.database()), "discord")
    lab.service.answers = lambda request: status(404) if b"incident 1:" in request.body else None
    lab.put("1", 1)
    lab.put("2", 1)
    lab.put("2", 1)
    lab.put("2", 2, State.RESOLVED)
    lab.put("3", 1, held_s=60)
    lab.put("4", 1, held_s=60)
    lab.put("5", 1, held_s=60)
    lab.put("5", 2, State.GROWN)
    lab.turn_for(100)
    standings = lab.standings()
    digest = next(key for key in standings if key.startswith("digest:"))
    assert standings == {
        "1:1:sink": "dead",
        "2:1:sink": "delivered",
        "2:2:sink": "delivered",
        "3:1:sink": "together",
        "4:1:sink": "together",
        "5:1:sink": "together",
        "5:2:sink": "delivered",
        digest: "delivered",
    }
    ((sink, pending, oldest_ns, dead),) = [
        (load.sink, load.pending, load.oldest_ns, load.dead) for load in lab.outbox.loads()
    ]
    assert (sink, pending, oldest_ns, dead) == ("sink", 0, 0, 1)
    view = OutboxView(lab.engine)
    assert [one.key for one in view.entries(dead=True)] == ["1:1:sink"]
    assert view.resend_dead(lab.hands.wall_ns) == 1
    lab.service.answers = lambda _: None
    lab.turn_for(10)
    assert lab.standings()["1:1:sink"] == "delivered"
    lab.hands.pass_s(DAY_S)
    assert lab.outbox.prune(["sink"], lab.hands.wall_ns, lab.hands.wall_ns) == 8
    lab.engine.dispose()


def test_what_is_open_is_sent_again(server: PostgresServer) -> None:
    lab = Lab(server.url(server.database()), "alertmanager")
    lab.put("1", 1)
    lab.turn_for(300)
    lab.put("1", 2, State.RESOLVED)
    lab.turn_for(10)
    summaries = [json.loads(request.body)[0]["annotations"]["summary"] for _, request in lab.service.posted]
    assert len(summaries) > 4
    assert summaries[-1].startswith("Resolved")
    lab.engine.dispose()
