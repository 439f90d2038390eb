"""A thousand incidents to services that misbehave as the real ones do, by a delivery that is killed again and again.

What must hold is read off what the services saw, by their own clock. `-m story` kills it more often.
"""

import contextlib
import json
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select

from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_models import OutboxRow
from delivery_process import planned
from fake_http import Answer, http_server

TESTS = Path(__file__).parents[1]
TLS = TESTS / "fixtures/tls"
SECRET = "pathSecretPathSecret"
KEY = "keySecretKeySecret"
INCIDENTS = 1000
RATES = {
    "slack": [(20, 1.0)],
    "discord": [(10, 0.5), (60, 3.5)],
    "teams": [(25, 1.0)],
    "feishu": [(10, 0.5), (60, 3.5)],
    "dingtalk": [(40, 2.0)],
    "pagerduty": [(60, 3.0)],
    "alertmanager": [],
    "webhook": [],
}
TIMEOUT_S = 2.0
GOOD = b'{"code": 0, "errcode": 0}'


@dataclass(frozen=True)
class Seen:
    """One request as the service saw it."""

    at_s: float
    incident: int
    number: int
    content: str
    taken: bool


@dataclass
class Service:
    """One that fails in its own ways, about one time in eight."""

    kind: str
    chance: random.Random
    seen: list[Seen] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        at_s = time.monotonic()
        body: bytes = handler.body  # type: ignore[attr-defined]
        if len(body) < int(handler.headers["Content-Length"]):
            return  # killed while it was sending
        with self.lock:
            fault = self.chance.choice(FAULTS) if self.chance.random() < 0.125 else _taken
            incident, number = told(self.kind, body)
            content = f"{handler.headers.get('webhook-id')} {without_time(body)}"
            self.seen.append(Seen(at_s, incident, number, content, taken=fault is _taken))
        fault(handler, self)


def _taken(handler: BaseHTTPRequestHandler, service: Service) -> None:
    Answer(GOOD)._send(handler)


def _too_many(handler: BaseHTTPRequestHandler, service: Service) -> None:
    Answer(b'{"retry_after": 0.2}', 429, headers=(("Retry-After", "0.2"),))._send(handler)


def _too_many_for_nobody_knows_how_long(handler: BaseHTTPRequestHandler, service: Service) -> None:
    Answer(b"slow down", 429)._send(handler)


def _broken(handler: BaseHTTPRequestHandler, service: Service) -> None:
    Answer(f"<html>{handler.path}</html>".encode(), service.chance.choice((500, 502, 503, 504)))._send(handler)


def _well_but_not(handler: BaseHTTPRequestHandler, service: Service) -> None:
    """HTTP 200 with an error code, where that is how the service says it."""
    if service.kind in {"feishu", "dingtalk"}:
        Answer(b'{"code": 11232, "errcode": -1, "msg": "frequency limited"}')._send(handler)
    else:
        _broken(handler, service)


def _reset(handler: BaseHTTPRequestHandler, service: Service) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def _half(handler: BaseHTTPRequestHandler, service: Service) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def _slow(handler: BaseHTTPRequestHandler, service: Service) -> None:
    """Longer than anybody waits, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b".")
            time.sleep(0.05)


FAULTS = (
    *(_too_many, _too_many_for_nobody_knows_how_long, _broken, _well_but_not, _reset, _half) * 4,
    _slow,
)


def told(kind: str, body: bytes) -> tuple[int, int]:
    """Incident and number of what was sent."""
    if found := re.search(rb"m(\d)i(\d+)e", body):
        return int(found[2]), int(found[1])
    assert kind == "pagerduty"
    event = json.loads(body)
    assert event["event_action"] == "resolve"
    return int(event["dedup_key"].removeprefix("incident-")), 3


def without_time(body: bytes) -> str:
    """What may differ when a message is sent again: the instant in signatures, and when an alert is forgotten."""
    return re.sub(r'"(timestamp|sign|endsAt)":"[^"]*"', "", body.decode())


@contextlib.contextmanager
def services(seed: int) -> Iterator[tuple[dict[str, Service], dict[str, str]]]:
    """All of them, and their addresses; the webhook's speaks TLS with a certificate of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost-key.pem")
    running: dict[str, Service] = {}
    urls: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for index, kind in enumerate(RATES):
            service = running[kind] = Service(kind, random.Random(seed + index))
            path = "/api/v2/alerts" if kind == "alertmanager" else f"/{SECRET}"
            tls = context if kind == "webhook" else None
            server = stack.enter_context(http_server({path: Answer(send=service.answer)}, tls))
            urls[kind] = server.url.replace("127.0.0.1", "localhost") + ("" if kind == "alertmanager" else path)
        yield running, urls


def settings(urls: dict[str, str]) -> dict[str, Any]:
    """A sink of each type, told of its own target alone; secrets in the environment."""
    sinks: dict[str, Any] = {}
    for kind in RATES:
        sinks[kind] = {"type": kind, "url": urls[kind] if kind == "alertmanager" else f"env:{kind.upper()}_URL"}
        if kind in {"feishu", "dingtalk", "pagerduty", "webhook"}:
            sinks[kind]["key"] = "env:SINK_KEY"
    routes = [{"target": kind, "sinks": [kind]} for kind in RATES]
    return {"sinks": sinks, "routes": routes, "timeout_s": TIMEOUT_S}


def in_state(url: str, state: str) -> set[tuple[int, int]]:
    """Incident and number of the entries that stand so."""
    engine = create_engine(url)
    with engine.connect() as connection:
        keys = connection.execute(select(OutboxRow.key).where(OutboxRow.state == state)).scalars().all()
    engine.dispose()
    return {
        (int(incident), int(number))
        for incident, number, _ in (key.removeprefix("incident-").split(":") for key in keys)
    }


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.story)])
def test_nothing_is_lost_or_told_out_of_order_and_no_rate_is_exceeded(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("CYCLEWATCH_TEST_SEED", random.SystemRandom().randrange(2**31)))
    print(f"seed {seed}: CYCLEWATCH_TEST_SEED={seed}")
    database = f"sqlite:///{tmp_path}/cyclewatch.db"
    open_database(database, create=True).dispose()
    plan = list(planned(INCIDENTS, list(RATES), seed))
    chance = random.Random(seed)
    log = tmp_path / "log"
    with services(seed) as (running, urls), log.open("ab") as output:
        alerts = settings(urls)
        work = {
            "database": database,
            "alerts": alerts,
            "incidents": INCIDENTS,
            "seed": seed,
            "rates": RATES,
            "first_wait_s": 0.05,
        }
        secrets = {f"{kind.upper()}_URL": url for kind, url in urls.items()} | {"SINK_KEY": KEY}
        for life in range(kills + 1):
            if life == kills // 2:  # until now nobody vouched for the webhook's certificate
                alerts["ca_file"] = str(TLS / "localhost.pem")
            (tmp_path / "work.json").write_text(json.dumps(work))
            process = subprocess.Popen(
                [sys.executable, TESTS / "delivery_process.py", tmp_path / "work.json"],
                env={**os.environ, **secrets, "PYTHONPATH": str(TESTS)},
                stdout=output,
                stderr=output,
            )
            try:
                if life < kills:
                    time.sleep(chance.uniform(1.2, 3.5))
                    assert process.poll() is None, log.read_text()
                else:
                    while len(in_state(database, "delivered") | in_state(database, "together")) < len(plan):
                        assert process.poll() is None, log.read_text()
                        time.sleep(0.2)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
    messages = {(int(message.incident), number_of(message.command)) for _, message in plan}
    for kind, service in running.items():
        check_order(service.seen)
        check_duplicates(service.seen)
        check_rates(service.seen, RATES[kind])
    taken = {(one.incident, one.number) for service in running.values() for one in service.seen if one.taken}
    with_the_end = in_state(database, "together")
    assert taken | with_the_end == messages
    assert {(incident, 3) for incident, _ in with_the_end} <= taken
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert SECRET.encode() not in written
    assert KEY.encode() not in written
    requests = sum(len(service.seen) for service in running.values())
    print(f"{len(plan)} messages of {INCIDENTS} incidents in {requests} requests, killed {kills} times")
    print(f"{len(with_the_end)} of them were told with the end of their incident")


def number_of(command: str) -> int:
    return int(command[1])


def check_order(seen: list[Seen]) -> None:
    """A message is never followed by one that came before it in its incident, however often each is sent."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for one in seen:
        numbers[one.incident].append(one.number)
    assert [told for told in numbers.values() if told != sorted(told)] == []


def check_duplicates(seen: list[Seen]) -> None:
    """What is sent again is the same message under the same key, and no other message has it."""
    contents: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in seen:
        contents[one.incident, one.number].add(one.content)
    assert [content for content in contents.values() if len(content) > 1] == []
    assert len(set.union(*contents.values())) == len(contents)


def check_rates(seen: list[Seen], rates: list[tuple[int, float]]) -> None:
    at_s = sorted(one.at_s for one in seen)
    for count, seconds in rates:
        shortest = min(later - first for first, later in zip(at_s, at_s[count:], strict=False))
        assert shortest >= seconds
