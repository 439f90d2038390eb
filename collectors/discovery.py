"""Which servers there are: those configured, and those whose rings were seen."""

import threading
from collections.abc import Iterable, Sequence
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
        self._published = {target.name: target.forward_pass_metrics for target in configured}
        self._published_by: dict[str, str] = {}
        self._rings: dict[str, tuple[Server | None, SchedulerProcess]] = {}
        self._listening: tuple[Server, ...] = ()

    def target_of(self, ring: RingIdentity) -> str:
        """Name of the target that a ring belongs to, by the address at which its server listens."""
        server = self._server_of(ring)
        return server.target if server else f"sglang-{ring.parent_pid}"

    def note(self, ring: RingIdentity, target: str = "") -> str:
        """Learn of a ring; gives the name of its target, which is that of its address unless another `target` is given.

        A server under another name than its address has is not asked at that address: another one answers there.
        """
        server, name = self._server_of(ring), target or self.target_of(ring)
        if server is not None and server.target != name:
            server = None
        with self._lock:
            self._rings[ring.key] = (server, SchedulerProcess(name, ring.rank, ring.pid, ring.parent_pid))
        return name

    def forget(self, key: str) -> None:
        """The ring `key` is gone."""
        with self._lock:
            self._rings.pop(key, None)

    def listening(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Learn where the SGLang processes of this node listen: host and port of each, in place of earlier ones."""
        servers = tuple(server for address in addresses if (server := self._server(*address)) is not None)
        with self._lock:
            self._listening = servers

    def publishes(self, target: str, address: str) -> None:
        """Learn where a server says that it publishes forward-pass metrics; empty where it does not say."""
        with self._lock:
            self._published_by[target] = address

    def forward_pass_addresses(self) -> dict[str, str]:
        """Where forward-pass metrics are published, by target; the configuration counts before the server's word."""
        with self._lock:
            found = {**self._published_by, **{target: one for target, one in self._published.items() if one}}
        return {target: address for target, address in found.items() if address}

    def servers(self) -> tuple[Server, ...]:
        """Servers to ask, one a target: configured ones first, then those found."""
        with self._lock:
            found = [server for server, _ in self._rings.values() if server is not None]
            found.extend(self._listening)
        unique = {server.target: server for server in reversed([*self._servers, *found])}
        return tuple(sorted(unique.values(), key=lambda server: server.target))

    def schedulers(self) -> tuple[SchedulerProcess, ...]:
        """Scheduler processes whose rings are alive."""
        with self._lock:
            return tuple(process for _, process in self._rings.values())

    def _server_of(self, ring: RingIdentity) -> Server | None:
        port = ring.server.get("port")
        return self._server(str(ring.server.get("host") or ""), port) if isinstance(port, int) else None

    def _server(self, host: str, port: int) -> Server | None:
        """The server that listens there, reached from this host; None where that is no address."""
        url = _local_url(host, port)
        if url is None:
            return None
        address = _address(url)
        own_name = url.removeprefix("http://")[:_NAME_MAX]
        return Server(self._configured.get(address) or self._configured_by_port(port) or own_name, url)

    def _configured_by_port(self, port: int) -> str | None:
        """A server bound to another address of this host is still the one configured with that port."""
        names = [name for (_, known), name in self._configured.items() if known == port]
        return names[0] if len(names) == 1 else None


def _local_url(host: str, port: int) -> str | None:
    if host in _ANY_ADDRESS:
        host = "127.0.0.1"
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    try:
        _address(url := f"http://{host}:{port}")
    except ValueError:
        return None
    return url


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return ("127.0.0.1" if host in {"localhost", "::1"} else host), parts.port or DEFAULT_PORT
