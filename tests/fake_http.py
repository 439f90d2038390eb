"""HTTP servers on loopback that answer what a test tells them to, to GET and to POST alike."""

import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answer:
    """One prepared answer; `send` may write anything in its place."""

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        content_type: str = "text/plain; version=0.0.4",
        headers: tuple[tuple[str, str], ...] = (),
        send: Callable[[BaseHTTPRequestHandler], None] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = (("Content-Type", content_type), *headers)
        self.send = send or self._send

    def _send(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(self.status)
        for name, value in self.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(self.body)))
        handler.end_headers()
        handler.wfile.write(self.body)


class HttpServer:
    """Answers by path, with any query, everything else with 404.

    `requests` are the paths asked for, with the headers; `bodies` are what was posted.
    """

    def __init__(self, server: ThreadingHTTPServer, answers: dict[str, Answer], scheme: str) -> None:
        self.port = server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.answers = answers
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may hang up, or not trust the certificate: that is what some tests are about."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def http_server(answers: dict[str, Answer], tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    """A server that runs as long as the context; with TLS where `tls` is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            running.requests.append((self.path, dict(self.headers)))
            with contextlib.suppress(OSError):  # the client may hang up at any point
                answers = running.answers
                answer = answers.get(self.path) or answers.get(self.path.partition("?")[0]) or Answer(b"{}", 404)
                answer.send(self)

        def do_POST(self) -> None:
            self.body = self.rfile.read(int(self.headers["Content-Length"]))
            running.bodies.append(self.body)
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name it has in the base class)
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        running = HttpServer(server, answers, "http" if tls is None else "https")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()


def closed_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
