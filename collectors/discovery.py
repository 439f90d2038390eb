"""Which servers there are: those configured, and those whose rings were seen."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from cyclewatch.collectors.records import RingIdentity
from cyclewatch.config.settings import Target

DEFAULT_PORT = 30000
_NAME_MAX = 64
_ANY_ADDRESS = {"", "0.0.0.0", "::", "[::]"}  # noqa: S104 (names of addresses, nothing is bound)


@dataclass(frozen=True)
class Server:
    """A server to ask over HTTP."""

    target: str
    url: str


@dataclass(frozen=True)
class SchedulerProcess:
    """A scheduler process of a target, as seen in the daemon's pid namespace."""

    target: str
    rank: str
    pid: int
    parent_pid: int


class Discovery:
    """Knows the servers of this node. Shared by collectors, hence locked."""

    def __init__(self, configured: Sequence[Target]) -> None:
        self._lock = threading.Lock()
        self._configured = {_address(str(target.url)): target.name for target in configured}
        self._servers = [Server(target.name, str(target.url).rstrip("/")) for target in configured]
        self._rings: dict[str, tuple[Server | None, SchedulerProcess]] = {}

    def note(self, ring: RingIdentity) -> str:
        """Learn of a ring; gives the name of the target it belongs to."""
        url = _ring_url(ring)
        if url is None:
            name, server = f"sglang-{ring.parent_pid}", None
        else:
            address = _address(url)
            own_name = url.removeprefix("http://")[:_NAME_MAX]
            name = self._configured.get(address) or self._configured_by_port(address[1]) or own_name
            server = Server(name, url)
        with self._lock:
            self._rings[ring.key] = (server, SchedulerProcess(name, ring.rank, ring.pid, ring.parent_pid))
        return name

    def forget(self, key: str) -> None:
        """The ring `key` is gone."""
        with self._lock:
            self._rings.pop(key, None)

    def servers(self) -> tuple[Server, ...]:
        """Servers to ask, one a target: configured ones first, then those found."""
        with self._lock:
            found = [server for server, _ in self._rings.values() if server is not None]
        unique = {server.target: server for server in reversed([*self._servers, *found])}
        return tuple(sorted(unique.values(), key=lambda server: server.target))

    def schedulers(self) -> tuple[SchedulerProcess, ...]:
        """Scheduler processes whose rings are alive."""
        with self._lock:
            return tuple(process for _, process in self._rings.values())

    def _configured_by_port(self, port: int) -> str | None:
        """A server bound to another address of this host is still the one configured with that port."""
        names = [name for (_, known), name in self._configured.items() if known == port]
        return names[0] if len(names) == 1 else None


def _ring_url(ring: RingIdentity) -> str | None:
    """Where the server of a ring listens, reached from this host; None where the ring does not say."""
    host, port = str(ring.server.get("host") or ""), ring.server.get("port")
    if host in _ANY_ADDRESS:
        host = "127.0.0.1"
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    try:
        _address(url := f"http://{host}:{port}")
    except ValueError:
        return None
    return url if isinstance(port, int) else None


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return ("127.0.0.1" if host in {"localhost", "::1"} else host), parts.port or DEFAULT_PORT
