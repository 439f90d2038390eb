"""Other settings, taken over while a message is on its way."""

import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from alert_messages import MESSAGE
from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import Alerts, Sink
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerting import Alerting
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.alerts.routing import entries
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.outbox import put
from fake_http import Answer, HttpServer, http_server
from made_incidents import START_NS


def until_posted(server: HttpServer, count: int) -> list[str]:
    """States of what came; the time limit of the test ends what never comes."""
    while len(server.bodies) < count:
        time.sleep(0.01)
    return [json.loads(body)["state"] for body in server.bodies]


def test_what_is_on_its_way_is_not_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the reload does not wait for it: the service may take longer than the daemon can be without its turn."""
    monkeypatch.setattr("cyclewatch.daemon.alerting._STOP_S", 0.01)
    monkeypatch.setattr("cyclewatch.daemon.alerts.delivery.courier._LOOK_S", 0.01)
    engine = open_database(f"sqlite:///{tmp_path}/cyclewatch.db", create=True)
    answers = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        answers.wait()
        Answer()._send(handler)

    with http_server({"/chat": Answer(send=slow)}) as server:
        alerts = Alerts(sinks={"chat": Sink(type="webhook", url=f"{server.url}/chat")}, timeout_s=600)
        settings = Settings(state_dir=tmp_path, alerts=alerts)
        clock = ScaledClock(Now(0, START_NS), time.monotonic_ns(), 60)
        alerting = Alerting(settings, engine, "node", "boot", Metrics(), clock)

        def tell(number: int, state: State) -> None:
            message = replace(MESSAGE, state=state)
            with engine.begin() as connection:
                put(connection, entries(message, "unexplained", number, alerts, START_NS), START_NS)

        tell(1, State.OPENED)
        alerting.start()
        until_posted(server, 1)
        tell(2, State.RESOLVED)
        alerting.take_settings(settings.model_copy(update={"alerts": alerts.model_copy(update={"timeout_s": 60.0})}))
        time.sleep(0.3)
        assert len(server.bodies) == 1
        answers.set()
        assert until_posted(server, 2) == ["opened", "resolved"]
        alerting.stop()
    engine.dispose()
