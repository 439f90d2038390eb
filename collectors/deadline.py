"""A time limit for one whole HTTP request."""

import contextlib
import socket
import threading
import time
from typing import Any


class Deadline:
    """Ends one request after `timeout_s` by closing its connection.

    The timeouts of httpx are for single reads: a server that sends a byte now and then, of its headers even,
    would never run into them.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.passed = False
        self._end = time.monotonic() + timeout_s
        self._stream: Any = None
        self._timer: threading.Timer | None = None

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Called by httpcore at each step of the request; the two that make a connection matter."""
        # `connection.…`, or `proxy.start_tls.complete` where a proxy is in between.
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._stream = info["return_value"]
            self.cancel()
            self._timer = threading.Timer(max(0.0, self._end - time.monotonic()), self._pass)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """The request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _pass(self) -> None:
        self.passed = True
        # Whoever reads from the socket wakes up. A TLS socket's own method would take TLS off under the reader.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)
