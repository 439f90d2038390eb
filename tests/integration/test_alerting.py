"""From a stored regression to a chat and back: incidents, outbox and delivery together, sixty times as fast as real."""

import json
import time
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import Alerts, Sink
from cyclewatch.config.incidents import Incidents
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerting import Alerting
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.incidents.incident import Act
from cyclewatch.daemon.metrics import Metrics
from fake_http import Answer, HttpServer, http_server
from incident_daemons import Daemons
from made_incidents import START_NS, finding

_SPEED = 60.0
_TIMEOUT_S = 60


def states(server: HttpServer, count: int) -> list[tuple[str, str, str]]:
    """State, incident and who, of the first messages that arrive."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while len(server.bodies) < count and time.monotonic() < deadline_s:
        time.sleep(0.05)
    documents = [json.loads(body) for body in server.bodies]
    return [(one["state"], one["incident"], one["by"]) for one in documents]


def test_a_slowdown_reaches_a_chat_over_restarts_and_each_message_once(tmp_path: Path) -> None:
    daemons = Daemons(f"sqlite:///{tmp_path / 'cyclewatch.db'}")
    clock = ScaledClock(Now(0, START_NS), time.monotonic_ns(), _SPEED)
    daemons.add(finding())
    with http_server({"/chat": Answer()}) as server:
        sink = Sink(type="webhook", url=f"{server.url}/chat")
        incidents = Incidents(resolve_after_s=300)
        settings = Settings(state_dir=tmp_path, incidents=incidents, alerts=Alerts(sinks={"chat": sink}))

        def started() -> Alerting:
            alerting = Alerting(settings, daemons.engine, "node", "boot", Metrics(), clock)
            alerting.start()
            return alerting

        alerting = started()
        assert states(server, 1) == [("opened", "1", "")]
        alerting.stop()
        daemons.store.act(1, Act.ACKNOWLEDGE, "ada", "on it", clock.now().wall_ns)
        alerting = started()
        assert states(server, 2)[1:] == [("acknowledged", "1", "ada (on it)")]
        alerting.stop()
        daemons.clock.now_ns = clock.now().wall_ns
        daemons.end("r1")
        alerting = started()
        assert states(server, 3)[2:] == [("resolved", "1", "")]
        alerting.stop()
    daemons.engine.dispose()
