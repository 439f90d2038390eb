"""A socket that stands for systemd's: what the daemon says to it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Message:
    """One datagram: its assignments, and when it came (monotonic seconds)."""

    values: dict[str, str]
    at_s: float


@dataclass
class NotifySocket:
    """Everything that has come so far."""

    address: str
    messages: list[Message] = field(default_factory=list)

    def said(self, key: str) -> list[str]:
        """All values of a key, in order."""
        return [one.values[key] for one in list(self.messages) if key in one.values]

    def wait_for(self, key: str, count: int = 1, seconds: float = 20) -> None:
        """Wait until a key has come `count` times."""
        deadline_s = time.monotonic() + seconds
        while len(self.said(key)) < count:
            assert time.monotonic() < deadline_s, (key, self.messages)
            time.sleep(0.01)


@contextmanager
def listening(address: Path | str) -> Iterator[NotifySocket]:
    """Listen at a path, or at an abstract name that begins with an at sign."""
    name = str(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        server.settimeout(0.05)
        heard = NotifySocket(name)
        over = threading.Event()
        thread = threading.Thread(target=_listen, args=(server, heard, over))
        thread.start()
        try:
            yield heard
        finally:
            over.set()
            thread.join()


def _listen(server: socket.socket, heard: NotifySocket, over: threading.Event) -> None:
    while not over.is_set():
        try:
            text = server.recv(4096).decode()
        except TimeoutError:
            continue
        values = dict(line.split("=", 1) for line in text.splitlines())
        heard.messages.append(Message(values, time.monotonic()))
