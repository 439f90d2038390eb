"""All couriers together: threads, stopping, and what keeps the outbox in order."""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select, update
from structlog.testing import capture_logs

from alert_messages import MESSAGE
from couriers import Lab
from cyclewatch.config.alerts import Alerts
from cyclewatch.daemon.alerts.delivery.service import Delivery
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.alerts.routing import entries
from cyclewatch.daemon.clock import SystemClock
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_models import AttemptRow, OutboxRow
from cyclewatch.daemon.store.outbox import put
from fake_http import Answer, http_server

SECRET = "pathSecretPathSecret"
KEY = "keySecretKeySecret"


def tell(engine: Engine, alerts: Alerts, key: str = "1", number: int = 1, state: State = State.OPENED) -> None:
    now_ns = time.time_ns()
    message = replace(MESSAGE, incident=key, key=key, state=state, at_ns=now_ns)
    with engine.begin() as connection:
        put(connection, entries(message, "unexplained", number, alerts, now_ns), now_ns)


def standings(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(OutboxRow.state).order_by(OutboxRow.id)).scalars())


def until(true: Callable[[], bool]) -> None:
    """Wait for it; the time limit of the test ends what never comes."""
    while not true():
        time.sleep(0.01)


@pytest.fixture(name="engine")
def _engine(tmp_path: Path) -> Engine:
    return open_database(f"sqlite:///{tmp_path}/cyclewatch.db", create=True)


def delivery(engine: Engine, alerts: Alerts, metrics: Metrics | None = None, **environ: str) -> Delivery:
    return Delivery(alerts, engine, lambda: True, SystemClock().now, "boot", metrics or Metrics(), environ)


def test_a_slow_sink_holds_up_no_other_and_the_end_does_not_wait_for_it(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, http_server({"/": Answer()}) as server:
        slow = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        sinks = {"slow": {"type": "webhook", "url": slow}, "good": {"type": "webhook", "url": f"{server.url}/"}}
        alerts = Alerts.model_validate({"sinks": sinks, "timeout_s": 600})
        running = delivery(engine, alerts)
        running.start()
        for number in range(5):
            tell(engine, alerts, str(number))
        running.wake()
        until(lambda: len(server.bodies) == 5)
        assert not running.stop(0.2)
    engine.dispose()


def test_it_stops_at_once_where_nothing_is_being_sent(engine: Engine) -> None:
    with http_server({"/": Answer()}) as server:
        alerts = Alerts.model_validate({"sinks": {"good": {"type": "webhook", "url": f"{server.url}/"}}})
        running = delivery(engine, alerts)
        running.start()
        assert running.stop(60)
    engine.dispose()


def test_nothing_that_stays_holds_a_secret(engine: Engine, tmp_path: Path) -> None:
    """Neither the database nor the log, though the service quotes them."""
    said = json.dumps({"code": 19001, "url": f"/hook/{SECRET}", "key": KEY}).encode()
    with http_server({f"/hook/{SECRET}": Answer(said)}) as server, capture_logs() as logged:
        alerts = Alerts.model_validate({"sinks": {"team": {"type": "feishu", "url": "env:URL", "key": "env:KEY"}}})
        running = delivery(engine, alerts, URL=f"{server.url}/hook/{SECRET}", KEY=KEY)
        tell(engine, alerts)
        running.start()
        until(lambda: standings(engine) == ["dead"])
        assert running.stop(60)
    engine.dispose()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode(errors="replace")
    assert "the address is wrong" in written
    for secret in (SECRET, KEY):
        assert secret not in written
        assert secret not in repr(logged)


def test_what_has_no_sink_any_more_is_given_up_and_what_waits_is_shown(engine: Engine) -> None:
    before = Alerts.model_validate({"sinks": {"gone": {"type": "webhook", "url": "http://127.0.0.1:9/"}}})
    after = Alerts.model_validate({"sinks": {"good": {"type": "slack", "url": "env:URL"}}})
    tell(engine, before)
    tell(engine, after)
    metrics = Metrics()
    running = delivery(engine, after, metrics)
    running.start()
    until(lambda: standings(engine) == ["dead", "pending"])
    assert running.stop(60)
    running._look()
    assert metrics.registry.get_sample_value("cyclewatch_outbox_pending", {"sink": "good"}) == 1
    assert metrics.registry.get_sample_value("cyclewatch_outbox_pending", {"sink": "gone"}) is None
    engine.dispose()


def test_the_outbox_does_not_grow_for_ever(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.put("1", 1)
    lab.turn_for(1)
    lab.put("2", 1)
    attempt = {"sink": "sink", "at_ns": 0, "boot": "b", "monotonic_ns": 0, "ended": True, "wait_ns": 0}
    with lab.engine.begin() as connection:
        connection.execute(insert(AttemptRow), [attempt] * 700)
    now_ns = lab.hands.wall_ns
    assert lab.outbox.prune(["sink"], now_ns - 10**12, now_ns - 10**12) == 0
    assert lab.outbox.prune(["sink"], now_ns + 1, now_ns + 1) == 1
    assert lab.standings() == {"2:1:sink": "pending"}
    with lab.engine.connect() as connection:
        assert len(connection.execute(select(AttemptRow.id)).all()) == 500
    lab.engine.dispose()


def test_what_another_release_has_written_is_given_up(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.put("1", 1)
    with lab.engine.begin() as connection:
        connection.execute(update(OutboxRow).values(message={"later": 1}))
    lab.put("2", 1)
    lab.turn_for(20)
    assert lab.standings() == {"1:1:sink": "dead", "2:1:sink": "delivered"}
    lab.engine.dispose()


def test_an_entry_is_put_once(tmp_path: Path) -> None:
    """However often it is told; what is held stays held."""
    lab = Lab(tmp_path)
    lab.put("1", 1)
    lab.put("1", 2, State.RESOLVED, held_s=60)
    lab.put("1", 1)
    assert lab.standings() == {"1:1:sink": "pending", "1:2:sink": "held"}
    lab.engine.dispose()
