"""Network interfaces as each server sees them: a container has a network of its own."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles, ReadAtLooks
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample

INTERFACES_MAX = 8

_RECEIVED, _TRANSMITTED, _TROUBLED = "received", "transmitted", "troubled"
_COLUMNS = {_RECEIVED: (0,), _TRANSMITTED: (8,), _TROUBLED: (2, 3, 10, 11)}
"""Bytes, and packets that were broken or dropped, in both directions."""
_COLUMNS_MIN = 16
_READINGS = {
    _RECEIVED: "host.network_receive_bytes_per_s",
    _TRANSMITTED: "host.network_transmit_bytes_per_s",
    _TROUBLED: "host.network_errors_per_s",
}
_LOOPBACK = "lo"
_HEAD_LINES = 2


def parse_interfaces(content: bytes) -> dict[tuple[str, str], int]:
    """`/proc/PID/net/dev`: counters by interface and what is counted, since the interface came up.

    Raises:
        FormatError: a line after the two of the head is not an interface with its counters.
    """
    found = {}
    for line in content.splitlines()[_HEAD_LINES:]:
        name, colon, rest = line.rpartition(b":")  # an alias has a colon of its own
        columns = rest.split()
        if not colon or len(columns) < _COLUMNS_MIN:
            raise FormatError("a line of net/dev is not an interface with its counters")
        interface = name.strip().decode(errors="replace")
        for what, summed in _COLUMNS.items():
            found[interface, what] = sum(counter(columns[column]) for column in summed)
    return found


class Network(ReadAtLooks[str, tuple[str, str]]):
    """The interfaces of each server but for loopback, at the pace of looks: the eight that have carried most."""

    quantities = (
        Quantity(
            _READINGS[_RECEIVED],
            "Bytes received through an interface of the server's network.",
            "/proc/PID/net/dev",
            "host.look_interval_s",
            ("interface",),
            cost="5.1 us a server",
        ),
        Quantity(
            _READINGS[_TRANSMITTED],
            "Bytes sent through an interface of the server's network.",
            "/proc/PID/net/dev",
            "host.look_interval_s",
            ("interface",),
            cost="in the reading of network_receive_bytes_per_second",
        ),
        Quantity(
            _READINGS[_TROUBLED],
            "Packets that were broken or dropped at an interface, in both directions.",
            "/proc/PID/net/dev",
            "host.look_interval_s",
            ("interface",),
            cost="in the reading of network_receive_bytes_per_second",
        ),
    )

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        super().__init__(CounterFiles(parse_interfaces, whole=True))

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read the tables known, then open the one of each server, through its first scheduler.

        A held table keeps the network of a server that has ended, for as long as until the next look.
        """
        for target, counts in self._files.advance(now_ns).items():
            for interface in _busiest(counts.now):
                for what, name in _READINGS.items():
                    value = counts.per_s.get((interface, what))
                    if value is not None:
                        yield Reading(target, name, value, (("interface", interface),))
        first = {process.target: process.pid for process in reversed(scene.schedulers)}
        paths = {target: self._proc / str(pid) / "net/dev" for target, pid in first.items()}
        self._files.refresh(paths, now_ns)
        yield from self._files.problems


def _busiest(counts: Mapping[tuple[str, str], int]) -> list[str]:
    """The interfaces that have carried most since they came up; those that have carried nothing are left out."""
    carried = {
        interface: received + counts[interface, _TRANSMITTED]
        for (interface, what), received in counts.items()
        if what == _RECEIVED and interface != _LOOPBACK
    }
    ranked = sorted(carried, key=lambda interface: (-carried[interface], interface))
    return [interface for interface in ranked[:INTERFACES_MAX] if carried[interface]]
