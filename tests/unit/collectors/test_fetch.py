import contextlib
import gzip
import logging
import threading
import time
from http.server import BaseHTTPRequestHandler

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.fetch import FetchError, HttpFetcher, UnreachableError, public_url
from fake_http import Answer, closed_port, http_server

MEGABYTE = 2**20


def fetch(answer: Answer, timeout_s: float = 5.0, max_bytes: int = MEGABYTE) -> str:
    """The error that an answer leads to."""
    with http_server({"/x": answer}) as server, pytest.raises(FetchError) as caught:
        HttpFetcher().get(f"{server.url}/x", timeout_s=timeout_s, max_bytes=max_bytes)
    assert str(caught.value).startswith(f"{server.url}/x: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def drip(prefix: bytes, piece: bytes) -> Answer:
    """An answer that comes in small pieces and does not end for 20 s."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(prefix)
        for _ in range(400):
            handler.wfile.write(piece)
            time.sleep(0.05)

    return Answer(send=send)


def raw(content: bytes) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(content)

    return Answer(send=send)


def test_answer_is_given_whole() -> None:
    with http_server({"/x": Answer(b"hello", 200, "Text/HTML; charset=utf-8")}) as server:
        response = HttpFetcher().get(f"{server.url}/x", timeout_s=5, max_bytes=5)
    assert (response.status, response.content_type, response.body) == (200, "text/html", b"hello")


@pytest.mark.parametrize("status", [307, 404, 500])
def test_every_status_is_an_answer_and_redirects_are_not_followed(status: int) -> None:
    answers = {"/x": Answer(b"", status, headers=(("Location", "/y"),)), "/y": Answer(b"never")}
    with http_server(answers) as server:
        assert HttpFetcher().get(f"{server.url}/x", timeout_s=5, max_bytes=5).status == status
        assert [path for path, _ in server.requests] == ["/x"]


def test_answer_that_says_it_is_too_long_is_not_read() -> None:
    assert "longer than 1048576 bytes" in fetch(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 209715200\r\n\r\nx"))


def test_answer_of_200_megabytes_without_a_length_is_cut_off() -> None:
    sent = []

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(200):
            handler.wfile.write(b"x" * MEGABYTE)
            sent.append(MEGABYTE)

    assert "longer than 1048576 bytes" in fetch(Answer(send=send))
    assert len(sent) < 50  # what fits into the buffers of the sockets


def test_compressed_answer_is_refused_unread() -> None:
    bomb = gzip.compress(b"\0" * (50 * MEGABYTE))
    assert len(bomb) < MEGABYTE
    assert "compressed" in fetch(Answer(bomb, headers=(("Content-Encoding", "gzip"),)))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(drip(b"", b""), id="nothing"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"), id="headers"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"), id="body with a length"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\n\r\n", b"x"), id="body without a length"),
        pytest.param(
            drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), id="body in chunks"
        ),
    ],
)
def test_slow_answer_ends_at_the_deadline(answer: Answer) -> None:
    began = time.monotonic()
    with http_server({"/x": answer}) as server:
        with pytest.raises(FetchError, match=r"no complete answer within 0\.3 s"):
            HttpFetcher().get(f"{server.url}/x", timeout_s=0.3, max_bytes=MEGABYTE)
        took = time.monotonic() - began
    assert 0.2 < took < 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2 s3cret\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ns3cret",
        b"HTTP/1.1 200 OK\r\nContent-Length: minus s3cret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz s3cret\r\n",
        b"HTTP/1.1 200 OK\r\ns3cret without colon\r\n\r\n",
    ],
)
def test_broken_answer_is_an_error_that_does_not_quote_it(content: bytes) -> None:
    error = fetch(raw(content))
    assert "not complete HTTP" in error
    assert "s3cret" not in error


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="Connection refused: is the server running"):
        HttpFetcher().get(f"http://127.0.0.1:{closed_port()}/x", timeout_s=1, max_bytes=9)


def test_tls_where_there_is_none_is_unreachable() -> None:
    with http_server({}) as server, pytest.raises(UnreachableError, match="SSL"):
        HttpFetcher().get(server.url.replace("http", "https"), timeout_s=5, max_bytes=9)


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "h/x", "http://", "http://[::1/x", "http://h:port/x", "http://::1:30000/x"]
)
def test_what_is_no_http_address_is_said(url: str) -> None:
    with pytest.raises(FetchError):
        HttpFetcher().get(url, timeout_s=0.5, max_bytes=9)


def test_credentials_are_sent_but_neither_shown_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with http_server({"/x": Answer(b"ok")}) as server:
        with_password = server.url.replace("//", "//someone:s3cret@")
        HttpFetcher().get(f"{with_password}/x", timeout_s=5, max_bytes=9)
        assert server.requests[0][1]["Authorization"].startswith("Basic ")
        with pytest.raises(FetchError) as caught:
            HttpFetcher().get(f"{with_password}/x", timeout_s=5, max_bytes=1)
    with pytest.raises(UnreachableError) as refused:
        HttpFetcher().get(f"http://someone:s3cret@127.0.0.1:{closed_port()}/x", timeout_s=5, max_bytes=1)
    assert "s3cret" not in f"{caught.value!r} {refused.value!r} {caplog.text}"


def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("NO_PROXY", "")
    with http_server({"/x": Answer(b"ok")}) as server:
        assert HttpFetcher().get(f"{server.url}/x", timeout_s=5, max_bytes=9).body == b"ok"


def test_no_connection_and_no_thread_is_left_behind() -> None:
    fetcher = HttpFetcher()
    with http_server({"/x": Answer(b"ok"), "/slow": drip(b"HTTP/1.1 200 OK\r\nX: ", b"x")}) as server:
        threads = threading.active_count()
        for path, timeout_s, max_bytes in [("x", 5.0, 9), ("x", 5.0, 1), ("slow", 0.05, 9)]:
            for _ in range(10):
                with contextlib.suppress(FetchError):
                    fetcher.get(f"{server.url}/{path}", timeout_s=timeout_s, max_bytes=max_bytes)
                connections = psutil.Process().net_connections("tcp")
                assert not [one for one in connections if one.raddr and one.raddr.port == server.port]
        deadline = time.monotonic() + 5
        while threading.active_count() > threads and time.monotonic() < deadline:
            time.sleep(0.01)  # threads of the server that have not noticed yet
        assert threading.active_count() <= threads


@given(st.text())
def test_any_address_can_be_shown(url: str) -> None:
    public_url(url)


@given(st.text("abc:@%[]", max_size=8), st.text("abc:@%[]", max_size=8))
def test_shown_address_never_holds_credentials(user: str, password: str) -> None:
    assert "SECRET" not in public_url(f"https://{user}SECRET:{password}SECRET@host/x")


# Neither digits, which would name another port, nor @, which would name another host.
@given(st.text(st.characters(exclude_categories=["Nd", "Cs"], exclude_characters="@")) | st.text("/:%[]?#\\ .\n"))
def test_any_address_leads_to_the_documented_error(rest: str) -> None:
    with pytest.raises(FetchError):
        HttpFetcher().get(f"http://127.0.0.1:1{rest}", timeout_s=0.5, max_bytes=9)


def test_shown_address() -> None:
    assert public_url("https://a:b@Host:1/p/x?token=s#f") == "https://Host:1/p/x"
    assert public_url("ipc:///run/passes") == "ipc:///run/passes"
    assert public_url("host/x?token=s") == "host/x"
