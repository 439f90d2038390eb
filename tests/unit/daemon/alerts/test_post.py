"""Services that misbehave as the real ones do, on loopback."""

import contextlib
import json
import logging
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from alert_messages import KEY, MESSAGE, NOW_NS, SECRET_PATH, SECRETS, sender
from cyclewatch.daemon.alerts.deliver import deliver
from cyclewatch.daemon.alerts.exchange import Delivered, Outcome, Refused, Request, Retry
from cyclewatch.daemon.alerts.post import MAX_ANSWER_BYTES, HttpPoster, PostError
from fake_http import Answer, HttpServer, closed_port, http_server

TLS = Path(__file__).parents[3] / "fixtures/tls"
PATH = f"/{SECRET_PATH}"
KINDS = ("slack", "discord", "teams", "feishu", "dingtalk", "pagerduty", "webhook")


def poster(timeout_s: float = 20.0, **options: str) -> HttpPoster:
    """To loopback alone."""
    context = ssl.create_default_context(cafile=options.pop("trusted", None))
    return HttpPoster({"127.0.0.1", "localhost"}, timeout_s, context, **options, now_ns=lambda: NOW_NS)


def delivery(answer: Answer, kind: str = "slack", timeout_s: float = 20.0) -> tuple[Outcome, HttpServer]:
    """What comes of one message to a server that answers so."""
    with http_server({PATH: answer}) as server:
        return deliver(sender(kind, server.url + PATH), MESSAGE, poster(timeout_s), NOW_NS), server


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happens, at the chattiest level, of any library."""
    caplog.set_level(logging.DEBUG)
    yield
    assert not [secret for secret in SECRETS if secret in caplog.text]


def told(outcome: Outcome) -> str:
    """The reason, which holds no secret."""
    assert not isinstance(outcome, Delivered)
    assert not [secret for secret in SECRETS if secret in repr(outcome)]
    return outcome.reason


@pytest.mark.parametrize("kind", KINDS)
def test_what_arrives_is_the_payload(kind: str) -> None:
    """Byte for byte, at the address, once."""
    _, server = delivery(Answer(b'{"code": 0, "errcode": 0}'), kind)
    request = sender(kind, server.url + PATH).payload(MESSAGE, NOW_NS)
    assert server.bodies == [request.body]
    ((_, headers),) = server.requests
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert headers["User-Agent"] == "cyclewatch"
    assert {name: headers.get(name) for name in request.headers} == request.headers


def test_the_login_of_alertmanager_is_in_a_header() -> None:
    answers = {"/prefix/api/v2/alerts": Answer()}
    with http_server(answers) as server:
        for key in (f"user:{KEY}", f"{KEY}é"):
            one = sender("alertmanager", f"{server.url}/prefix/", key)
            assert deliver(one, MESSAGE, poster(), NOW_NS) == Delivered()
    assert [headers["Authorization"].split()[0] for _, headers in server.requests] == ["Basic", "Bearer"]
    assert json.loads(server.bodies[0])[0]["labels"]["target"] == MESSAGE.target


@pytest.mark.parametrize(
    ("headers", "after_s"),
    [
        ((), None),
        ((("Retry-After", "30"),), 30),
        ((("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT"), ("date", "Fri, 15 Jan 2027 08:00:00 GMT")), 30),
        ((("Retry-After", "Fri, 15 Jan 2027 08:10:30 GMT"),), 30),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_too_many_requests(status: int, headers: tuple[tuple[str, str], ...], after_s: float | None) -> None:
    """By the service's clock where it tells it, otherwise by ours."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(status)  # without the date of now
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(b"rate_limited")

    outcome, _ = delivery(Answer(send=send))
    assert outcome == Retry(after_s, f"HTTP {status}: 'rate_limited'")


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_broken_service_is_tried_again(status: int) -> None:
    assert delivery(Answer(b"<html>oops</html>", status))[0] == Retry(None, f"HTTP {status}: '<html>oops</html>'")


@pytest.mark.parametrize("kind", ["feishu", "dingtalk"])
def test_success_with_an_error_code_is_a_failure(kind: str) -> None:
    outcome, _ = delivery(Answer(b'{"code": 19001, "errcode": 300001}'), kind)
    assert isinstance(outcome, Refused)


def test_a_redirect_is_not_followed() -> None:
    with http_server({"/": Answer()}) as elsewhere:
        location = ("Location", f"{elsewhere.url}/")
        outcome, _ = delivery(Answer(b"", 307, headers=(location,)))
    assert isinstance(outcome, Refused)
    assert "redirect" in told(outcome)
    assert elsewhere.requests == []


def test_a_service_that_is_not_there() -> None:
    outcome = deliver(sender("slack", f"http://127.0.0.1:{closed_port()}{PATH}"), MESSAGE, poster(), NOW_NS)
    assert isinstance(outcome, Retry)
    assert told(outcome).startswith("127.0.0.1: ")


def test_a_name_that_does_not_exist() -> None:
    one = sender("slack", f"https://cyclewatch.invalid{PATH}")
    way = HttpPoster({"cyclewatch.invalid"}, 20.0, ssl.create_default_context())
    assert isinstance(deliver(one, MESSAGE, way, NOW_NS), Retry)


def test_a_service_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = sender("slack", f"http://127.0.0.1:{silent.getsockname()[1]}{PATH}")
        outcome = deliver(one, MESSAGE, poster(0.2), NOW_NS)
    assert outcome == Retry(None, "127.0.0.1: no complete answer within 0.2 s (alerts.timeout_s)")


def _drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever: each single read is in time."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b".")
        handler.wfile.flush()
        handler.connection.settimeout(0.02)
        try:
            if not handler.connection.recv(1):
                return  # the client has hung up
        except TimeoutError:
            continue


def test_a_slow_body_is_given_up() -> None:
    outcome, _ = delivery(Answer(send=_drip), timeout_s=0.3)
    assert "no complete answer within" in told(outcome)


def _flood(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:  # ends when the client hangs up
        handler.wfile.write(b"x" * 2**16)


def test_a_body_without_end_is_read_only_so_far() -> None:
    """The status has said what matters."""
    assert delivery(Answer(send=_flood))[0] == Delivered()


def test_so_far_is_bounded() -> None:
    with http_server({PATH: Answer(b"x" * (2 * MAX_ANSWER_BYTES))}) as server:
        response = poster().post(Request(server.url + PATH, b"{}"))
    assert len(response.body) == MAX_ANSWER_BYTES


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def _garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH\r\n" + PATH.encode())


def _half(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


@pytest.mark.parametrize("send", [_reset, _garbage, _half])
def test_a_broken_answer_is_no_answer(send: object) -> None:
    """Whether the message has arrived is not known, so it is sent again."""
    outcome, _ = delivery(Answer(send=send))  # type: ignore[arg-type]
    assert isinstance(outcome, Retry)
    assert told(outcome).startswith("127.0.0.1: ")


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost-key.pem")
    return context


def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    """Nothing of the message is sent."""
    with http_server({PATH: Answer()}, _server_context()) as server:
        outcome = deliver(sender("slack", server.url + PATH), MESSAGE, poster(), NOW_NS)
    assert isinstance(outcome, Retry)
    assert "certificate verify failed" in told(outcome)
    assert server.bodies == []


def test_a_certificate_of_our_own_authority_is_good() -> None:
    with http_server({PATH: Answer()}, _server_context()) as server:
        way = poster(trusted=str(TLS / "localhost.pem"))
        assert deliver(sender("slack", server.url + PATH), MESSAGE, way, NOW_NS) == Delivered()


def test_a_certificate_of_another_host_is_refused() -> None:
    with http_server({PATH: Answer()}, _server_context()) as server:
        url = f"https://127.0.0.2:{server.port}{PATH}"
        context = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
        outcome = deliver(sender("slack", url), MESSAGE, HttpPoster({"127.0.0.2"}, 20.0, context), NOW_NS)
    assert isinstance(outcome, Retry)
    assert server.bodies == []


def test_only_the_allowed_hosts_are_spoken_to() -> None:
    with http_server({PATH: Answer()}) as server:
        way = HttpPoster({"hooks.slack.com"}, 20.0, ssl.create_default_context())
        outcome = deliver(sender("slack", server.url + PATH), MESSAGE, way, NOW_NS)
    assert outcome == Refused("127.0.0.1: messages may not go there: add it to alerts.allowed_hosts")
    assert server.requests == []


def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    assert delivery(Answer())[0] == Delivered()


def test_the_configured_proxy_is_used() -> None:
    """Of a plain address it gets the whole: http://HOST/PATH."""
    url = f"http://localhost:9{PATH}"
    with http_server({url: Answer()}) as proxy:
        assert deliver(sender("slack", url), MESSAGE, poster(proxy=proxy.url), NOW_NS) == Delivered()


class Tunnel(BaseHTTPRequestHandler):
    """A proxy that takes CONNECT, and passes on what comes from either side."""

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            self.send_response(200)
            self.end_headers()
            far_to_near = threading.Thread(target=_passed_on, args=(far, self.connection))
            far_to_near.start()
            _passed_on(self.connection, far)
            far_to_near.join()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name it has in the base class)
        pass


def _passed_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture(name="tunnel")
def _tunnel() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Tunnel) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_tls_goes_through_the_proxy_to_the_service(tunnel: str) -> None:
    """The proxy sees the host and nothing else; a slow body is given up there too."""
    trusted = str(TLS / "localhost.pem")
    with http_server({PATH: Answer(b"ok"), "/slow": Answer(send=_drip)}, _server_context()) as server:
        good = deliver(sender("slack", server.url + PATH), MESSAGE, poster(trusted=trusted, proxy=tunnel), NOW_NS)
        slow = deliver(
            sender("slack", f"{server.url}/slow"), MESSAGE, poster(0.5, trusted=trusted, proxy=tunnel), NOW_NS
        )
    assert good == Delivered()
    assert "no complete answer within" in told(slow)


def test_a_refused_tunnel_is_one_sentence() -> None:
    with http_server({}) as proxy, pytest.raises(PostError, match="ProxyError"):
        poster(proxy=proxy.url).post(Request(f"https://localhost:9{PATH}", b"{}"))
