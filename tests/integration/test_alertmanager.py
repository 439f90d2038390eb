"""A real Alertmanager receives, groups and resolves: Debian's prometheus-alertmanager, or any on the PATH."""

import contextlib
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from alert_messages import HOSTILE, MESSAGE, sender
from cyclewatch.daemon.alerts.deliver import deliver
from cyclewatch.daemon.alerts.exchange import Delivered, Refused
from cyclewatch.daemon.alerts.message import Message, Severity, State
from cyclewatch.daemon.alerts.post import HttpPoster
from fake_http import Answer, HttpServer, closed_port, http_server

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Alertmanager on the PATH: install prometheus-alertmanager")


class Alertmanager:
    """One that runs, and what it has told its receiver."""

    def __init__(self, url: str, receiver: HttpServer) -> None:
        self.url = url
        self._receiver = receiver

    def send(self, message: Message) -> object:
        """Send it as an open incident is sent: at this moment."""
        one = sender("alertmanager", self.url)
        way = HttpPoster({"127.0.0.1"}, 20.0, ssl.create_default_context())
        return deliver(one, message, way, time.time_ns())

    def alerts(self) -> list[dict[str, Any]]:
        alerts: list[dict[str, Any]] = httpx.get(f"{self.url}/api/v2/alerts", trust_env=False).json()
        return alerts

    def told(self) -> list[tuple[str, int]]:
        """Status and number of alerts of each notification so far."""
        notes = [json.loads(body) for body in self._receiver.bodies]
        return [(note["status"], len(note["alerts"])) for note in notes]


@pytest.fixture(name="manager")
def _manager(tmp_path: Path) -> Iterator[Alertmanager]:
    assert PROGRAM is not None
    log = tmp_path / "log"
    with http_server({"/": Answer()}) as receiver, log.open("wb") as output:
        (tmp_path / "alertmanager.yml").write_text(
            f"""
route: {{receiver: test, group_by: [alertname], group_wait: 1s, group_interval: 1s}}
receivers: [{{name: test, webhook_configs: [{{url: '{receiver.url}/'}}]}}]
"""
        )
        port = closed_port()
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={tmp_path}/alertmanager.yml",
                f"--storage.path={tmp_path}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: _ready(url) or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield Alertmanager(url, receiver)
        finally:
            process.terminate()
            process.wait()


def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
    return False


def until(true: Callable[[], bool]) -> None:
    """Wait for it; the time limit of the test ends what never comes."""
    while not true():
        time.sleep(0.05)


def test_incidents_are_received_grouped_and_resolved(manager: Alertmanager) -> None:
    """Two of them, one notification; sent again they stay two; resolved, it says so."""
    now_ns = time.time_ns()
    one = replace(MESSAGE, started_at_ns=now_ns - 60 * 10**9, at_ns=now_ns)
    other = replace(one, incident="13", key="cyclewatch/gpu-node-7/13", target="127.0.0.1:30001")
    assert manager.send(one) == Delivered()
    assert manager.send(other) == Delivered()
    until(lambda: ("firing", 2) in manager.told())
    grown = replace(one, state=State.GROWN, effect=0.4, ci=(0.38, 0.42))
    assert manager.send(grown) == Delivered()
    assert len(manager.alerts()) == 2
    (shown,) = (alert for alert in manager.alerts() if alert["labels"]["incident"] == one.key)
    assert shown["annotations"]["summary"].startswith("Now 40.0% slower")
    assert shown["generatorURL"] == MESSAGE.links.page
    for message in (grown, other):
        manager.send(replace(message, state=State.RESOLVED, at_ns=time.time_ns()))
    until(lambda: manager.told()[-1] == ("resolved", 2))


def test_a_risen_severity_ends_the_alert_of_the_old_one(manager: Alertmanager) -> None:
    """In the same request: nobody is left with two alerts of one incident. What follows goes on from there."""
    now_ns = time.time_ns()
    one = replace(MESSAGE, started_at_ns=now_ns - 60 * 10**9, at_ns=now_ns)
    assert manager.send(one) == Delivered()
    until(lambda: ("firing", 1) in manager.told())
    grown = replace(
        one, state=State.GROWN, severity=Severity.CRITICAL, risen_from=Severity.WARNING, at_ns=time.time_ns()
    )
    assert manager.send(grown) == Delivered()
    until(lambda: severities(manager) == ["critical"])
    assert manager.send(grown) == Delivered()  # as it is sent again
    assert manager.send(replace(grown, state=State.ACKNOWLEDGED, risen_from=None)) == Delivered()
    assert severities(manager) == ["critical"]
    accepted = replace(grown, state=State.ACCEPTED, risen_from=None, at_ns=time.time_ns())
    assert manager.send(accepted) == Delivered()
    until(lambda: severities(manager) == [])


def severities(manager: Alertmanager) -> list[str]:
    """Of the alerts that burn."""
    return [alert["labels"]["severity"] for alert in manager.alerts()]


def test_what_was_announced_is_no_alert(manager: Alertmanager) -> None:
    now_ns = time.time_ns()
    announced = replace(MESSAGE, state=State.EXPECTED, severity=Severity.INFO, started_at_ns=now_ns, at_ns=now_ns)
    assert manager.send(announced) == Delivered()
    assert severities(manager) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_message_holds_it_is_taken(manager: Alertmanager, name: str) -> None:
    """Labels of any text, ends and beginnings in any order."""
    assert manager.send(HOSTILE[name]) == Delivered()
    assert manager.send(replace(HOSTILE[name], state=State.RESOLVED)) == Delivered()


def test_another_address_is_refused(manager: Alertmanager) -> None:
    """A wrong prefix: HTTP 404, which no repetition mends."""
    outcome = Alertmanager(f"{manager.url}/wrong", manager._receiver).send(MESSAGE)
    assert isinstance(outcome, Refused)
