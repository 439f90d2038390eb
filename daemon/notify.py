"""What the daemon tells systemd about itself: sd_notify's messages, as sd_notify(3) has them.

Without systemd nothing is told, and nothing that goes wrong here is worth more than a line in the log.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping

import structlog

log = structlog.get_logger(__name__)

_FEEDS_PER_PERIOD = 4
"""How often the watchdog is fed while it waits: a lost message, or a slow turn, must not look like a hang."""

_STATUS_INTERVAL_S = 10.0


class ServiceManager:
    """The one that started the daemon, as its environment names it.

    `monotonic_s` is the clock by which the watchdog is fed.
    """

    def __init__(self, environ: Mapping[str, str], monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        watchdog_s = _watchdog_s(environ)
        self._feeds = watchdog_s > 0
        self._interval_s = watchdog_s / _FEEDS_PER_PERIOD if self._feeds else _STATUS_INTERVAL_S
        self._monotonic_s = monotonic_s
        self._told_s = 0.0
        self._is_ready = False
        self._failed = False

    def ready(self, status: str) -> None:
        """Say that the daemon does its work: by its first turn, and after a reload."""
        self._is_ready = True
        self._told_s = self._monotonic_s()
        self._tell(["READY=1", f"STATUS={_one_line(status)}", *self._food()])

    def turned(self, status: Callable[[], str]) -> None:
        """The loop that does the work has turned; may be called as often as it does."""
        if not self._address:
            return
        if not self._is_ready:
            self.ready(status())
        elif (now_s := self._monotonic_s()) - self._told_s >= self._interval_s:
            self._told_s = now_s
            self._tell([f"STATUS={_one_line(status())}", *self._food()])

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` ends it."""
        self._tell(["RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"])

    def stopping(self) -> None:
        """Say that the daemon drains."""
        self._tell(["STOPPING=1", "STATUS=writing what has been judged"])

    def _food(self) -> list[str]:
        return ["WATCHDOG=1"] if self._feeds else []

    def _tell(self, lines: list[str]) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(0)  # the service manager may be slow; the daemon is not to wait for it
                channel.sendto("\n".join(lines).encode(), self._address)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("the service manager cannot be told", socket=repr(self._address), reason=error.strerror)
            self._failed = True


def _address(named: str) -> str:
    """Address of the socket; an abstract one is written with an at sign. Empty where there is none."""
    if named.startswith("@"):
        return f"\0{named[1:]}"
    if named and not named.startswith("/"):
        log.warning("NOTIFY_SOCKET is neither a path nor an abstract name; nothing is told", socket=named)
        return ""
    return named


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Seconds after which systemd takes a silent daemon for hung; 0 without a watchdog, or with another process's."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = environ.get("WATCHDOG_USEC", "")
    if text and not (text.isascii() and text.isdigit()):
        log.warning("WATCHDOG_USEC is no number; the watchdog is not fed", value=text)
        return 0.0
    return int(text or 0) / 1e6


def _one_line(status: str) -> str:
    return " ".join(status.split())
