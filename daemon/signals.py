"""What the process's signals ask of the daemon."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """What can be asked to end, from a signal handler."""

    def stop(self) -> None:
        """Ask to drain and return."""
        ...


class Reloadable(Protocol):
    """What can be asked to read its configuration again, from a signal handler."""

    def reload(self) -> None:
        """Ask for the configuration to be read again."""
        ...


@contextlib.contextmanager
def stop_on_signals(server: Stoppable) -> Iterator[None]:
    """SIGTERM and SIGINT drain the server; a second one ends the process as usual. Handlers are put back."""

    def handle(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, previous[signal.Signals(number)])
        server.stop()

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def reload_on_hangup(server: Reloadable) -> Iterator[None]:
    """SIGHUP has the server read its configuration again. The handler is put back."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        server.reload()

    previous = signal.signal(signal.SIGHUP, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous)
