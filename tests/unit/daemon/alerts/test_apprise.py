"""Messages by apprise: what leaves this machine, what does not, and that no secret is told."""

import base64
import json
import logging
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from alert_messages import MESSAGE, NOW_NS, SECRET_PATH, SECRETS
from cyclewatch.config.alerts import Alerts
from cyclewatch.daemon.alerts.apprise_program import Guard
from cyclewatch.daemon.alerts.deliver import deliver
from cyclewatch.daemon.alerts.exchange import Delivered, Outcome, Refused, Retry
from cyclewatch.daemon.alerts.message import Picture, State
from cyclewatch.daemon.alerts.sinks import SinkError, poster_for, sender_for
from cyclewatch.daemon.alerts.text import text_of
from fake_http import Answer, closed_port, http_server

TLS = Path(__file__).parents[3] / "fixtures/tls"
PATH = f"/{SECRET_PATH}"


def settings(**options: Any) -> Alerts:
    sink = {"type": "apprise", "url": "env:ADDRESS"}
    return Alerts.model_validate({"sinks": {"team": sink}, "allowed_hosts": ["127.0.0.1"], **options})


def sent(address: str, picture: Picture | None = None, **options: Any) -> Outcome:
    """What comes of one message to that address, as the daemon sends it."""
    alerts, environ = settings(**{"timeout_s": 60, **options}), {"ADDRESS": address}
    sender = sender_for("team", alerts, environ)
    return deliver(sender, MESSAGE, poster_for(sender, alerts, environ), NOW_NS, picture)


@pytest.fixture(autouse=True)
def _no_secret_is_told(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    told = "".join((caplog.text, *capfd.readouterr()))
    assert not [secret for secret in SECRETS if secret in told]


def reason(outcome: Outcome) -> str:
    assert not isinstance(outcome, Delivered)
    assert not [secret for secret in SECRETS if secret in repr(outcome)]
    return outcome.reason


def test_the_message_arrives() -> None:
    """Title, lines, the command, and the severity as apprise has it."""
    with http_server({PATH: Answer()}) as server:
        assert sent(f"json://127.0.0.1:{server.port}{PATH}") == Delivered()
    (body,) = server.bodies
    document, text = json.loads(body), text_of(MESSAGE)
    assert (document["title"], document["type"]) == (text.title, "warning")
    assert document["message"].splitlines()[:6] == [*map(str, text.lines), text.where]


def test_the_picture_arrives_with_it() -> None:
    with http_server({PATH: Answer()}) as server:
        assert sent(f"json://127.0.0.1:{server.port}{PATH}", Picture(b"a picture", "a curve")) == Delivered()
    (body,) = server.bodies
    (file,) = json.loads(body)["attachments"]
    assert (file["filename"], file["mimetype"]) == ("timeline.png", "image/png")
    assert base64.b64decode(file["base64"]) == b"a picture"


def test_a_service_that_does_not_take_the_picture_gets_the_message_without() -> None:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(413 if b"timeline.png" in server.bodies[-1] else 200)
        handler.end_headers()

    with http_server({PATH: Answer(send=send)}) as server:
        assert sent(f"json://127.0.0.1:{server.port}{PATH}", Picture(b"a picture", "a curve")) == Delivered()
    assert [b"timeline.png" in body for body in server.bodies] == [True, False]


def test_what_the_service_does_not_take_is_tried_again() -> None:
    with http_server({PATH: Answer(status=500)}) as server:
        outcome = sent(f"json://127.0.0.1:{server.port}{PATH}")
    assert isinstance(outcome, Retry)
    assert reason(outcome).startswith("apprise://json/***: the service has not taken it")


def test_other_hosts_are_not_spoken_to() -> None:
    with http_server({PATH: Answer()}) as server:
        outcome = sent(f"json://127.0.0.1:{server.port}{PATH}", allowed_hosts=["example.com"])
        assert server.requests == []
    assert isinstance(outcome, Refused)
    assert "messages may not go there: add it to alerts.allowed_hosts" in reason(outcome)


def test_the_hosts_of_a_fixed_service_are_named() -> None:
    """They are not in the address."""
    outcome = sent("tgram://123456789:abcdefg_hijklmnop/12315544/")
    assert reason(outcome) == "api.telegram.org: messages may not go there: add it to alerts.allowed_hosts"


def test_redirects_are_not_followed_whatever_the_address_says() -> None:
    with http_server({"/": Answer()}) as elsewhere:
        location = ("Location", f"{elsewhere.url}/")
        with http_server({f"{PATH}": Answer(status=307, headers=(location,))}) as server:
            outcome = sent(f"json://127.0.0.1:{server.port}{PATH}?redirect=yes")
        assert isinstance(outcome, Retry)
        assert len(server.requests) == 1
        assert elsewhere.requests == []


def test_tls_is_verified_whatever_the_address_says() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost-key.pem")
    with http_server({PATH: Answer()}, context) as server:
        address = f"jsons://127.0.0.1:{server.port}{PATH}?verify=no"
        assert isinstance(sent(address), Retry)
        assert server.bodies == []
        assert sent(address, ca_file=str(TLS / "localhost.pem")) == Delivered()


def test_the_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    with http_server({PATH: Answer()}) as server:
        assert sent(f"json://127.0.0.1:{server.port}{PATH}") == Delivered()


def test_a_service_that_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        outcome = sent(f"json://127.0.0.1:{silent.getsockname()[1]}{PATH}?rto=3600", timeout_s=2)
    assert reason(outcome) == "apprise://json/***: not taken within 2 s (alerts.timeout_s)"


def test_an_address_that_apprise_does_not_know() -> None:
    assert "does not know such an address" in reason(sent(f"nosuchthing://{SECRET_PATH}"))


@pytest.mark.parametrize("address", ["hello", "https//x", "://x", f"json://a b{PATH}"])
def test_what_is_no_address_is_said_without_it(address: str) -> None:
    with pytest.raises(SinkError) as caught:
        sent(address)
    assert str(caught.value) == "sink team: its url is no address of apprise: write SCHEMA://..."


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(SinkError, match=r"apprise is not installed: pip install 'cyclewatch\[apprise\]'"):
        sent(f"json://127.0.0.1{PATH}")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"allowed_hosts": []}, "name those of all sinks in allowed_hosts"),
        ({"proxy": "http://127.0.0.1:3128"}, "cannot use a proxy"),
        (
            {"sinks": {"team": {"type": "apprise", "url": f"json://127.0.0.1{PATH}"}}},
            "the address of apprise is a secret",
        ),
    ],
)
def test_settings_that_cannot_be_held_are_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        settings(**options)


def test_what_is_over_is_a_success() -> None:
    sender = sender_for("team", settings(), {"ADDRESS": f"json://127.0.0.1{PATH}"})
    kinds = {
        state: json.loads(sender.payload(replace(MESSAGE, state=state), NOW_NS).body)["notify_type"]
        for state in (State.OPENED, State.RESOLVED)
    }
    assert kinds == {State.OPENED: "warning", State.RESOLVED: "success"}
    assert sender.destination.shown == "apprise://json/***"


def test_the_guard_lets_only_allowed_names_out() -> None:
    guard = Guard({"a.example", "10.0.0.1"})
    guard("socket.getaddrinfo", ("A.example.", 443, 0, 0, 0))
    guard("socket.connect", (None, ("192.0.2.1", 443)))
    guard("socket.connect", (None, ("fe80::1%eth0", 443, 0, 0)))
    guard("open", ("/etc/hosts",))
    assert guard.refused == ""


@pytest.mark.parametrize(
    ("event", "arguments", "what"),
    [
        ("socket.getaddrinfo", (b"b.example", 443), "b.example"),
        ("socket.getaddrinfo", (None, 443), "none"),
        ("socket.gethostbyname", ("b.example",), "b.example"),
        ("socket.connect", (None, ("192.0.2.1", 443)), "192.0.2.1"),
        ("socket.connect", (None, ("b.example", 443)), "b.example"),
        ("socket.connect", (None, "/run/dbus/system_bus_socket"), "a local socket"),
        ("socket.sendto", (None, ("b.example", 514)), "b.example"),
        ("subprocess.Popen", ("sh", ["sh"], None, None), "a program of this machine"),
        ("os.system", (b"sh",), "a program of this machine"),
    ],
)
def test_the_guard_refuses_the_rest(event: str, arguments: tuple[object, ...], what: str) -> None:
    """An address that no allowed name was resolved to before, a socket or a program of this machine."""
    guard = Guard({"a.example"})
    with pytest.raises(PermissionError):
        guard(event, arguments)
    assert guard.refused == what
