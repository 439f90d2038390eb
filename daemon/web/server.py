"""uvicorn in a thread of its own."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from cyclewatch.config.web import Web

_STOP_TIMEOUT_S = 5.0
_TICK_S = 1.0


class WebError(Exception):
    """The endpoint cannot be opened; the message names the address."""


class WebServer:
    """Serves an application on loopback (by default) until stopped."""

    def __init__(self, settings: Web, app: Starlette) -> None:
        self._settings = settings
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="h11",
            ws="none",
            limit_concurrency=32,
            # Not from the environment: whom a proxy asks for decides who may read without a token.
            forwarded_allow_ips="127.0.0.1,::1",
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
        )
        self._server = _QuietServer(config)
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Base address, with the port that was really taken."""
        host, port = self._socket.getsockname()[:2] if self._socket else (self._settings.host, self._settings.port)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Open the port and serve.

        Raises:
            WebError: the address cannot be listened on.
        """
        host, port = self._settings.host, self._settings.port
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.create_server(address[:2], family=family)
        except OSError as error:
            reason = str(error.strerror).partition(" (")[0]  # Python repeats the address
            raise WebError(
                f"web.host and web.port: cannot listen on {host}:{port}: {reason}: choose another port"
            ) from None
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="web", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Answer what is under way, then end."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        if self._socket is not None:
            self._socket.close()


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals to the daemon, and wakes less often: ten times a second cost 0.1 % of a core."""

    async def main_loop(self) -> None:
        """Serve until asked to stop."""
        while not await self.on_tick(0):  # noqa: ASYNC110 (what it looks at is a plain attribute)
            await asyncio.sleep(_TICK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
