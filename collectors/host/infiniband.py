"""Ports of InfiniBand and RoCE adapters."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.host.counters import SINGLE, CounterFiles, ReadAtLooks, parse_single
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Failure, Reading, Sample

PORTS_MAX = 16

_WORD_BYTES = 4
_RECEIVE, _TRANSMIT = "host.infiniband_receive_bytes_per_s", "host.infiniband_transmit_bytes_per_s"
_ERRORS, _WAIT = "host.infiniband_errors_per_s", "host.infiniband_transmit_wait_ticks_per_s"
_COUNTERS: Mapping[str, tuple[str, int]] = {
    "counters/port_rcv_data": (_RECEIVE, _WORD_BYTES),
    "counters/port_xmit_data": (_TRANSMIT, _WORD_BYTES),
    "hw_counters/rx_bytes": (_RECEIVE, 1),
    "hw_counters/tx_bytes": (_TRANSMIT, 1),
    "counters/port_xmit_wait": (_WAIT, 1),
    "counters/symbol_error": (_ERRORS, 1),
    "counters/link_downed": (_ERRORS, 1),
    "counters/port_rcv_errors": (_ERRORS, 1),
    "counters/port_xmit_discards": (_ERRORS, 1),
}
"""Files of a port: the reading that each counts for, and the bytes or events of one count.

Documentation/ABI/stable/sysfs-class-infiniband: data counts in words of four bytes, in `counters` only.
"""
_IN_PLACE_OF = {
    "hw_counters/rx_bytes": "counters/port_rcv_data",
    "hw_counters/tx_bytes": "counters/port_xmit_data",
}
"""Files that count only where a port does not tell the standard's: Amazon's EFA has these alone, some have both."""
_UNSUPPORTED = b"N/A"

_Port = tuple[str, str]


def parse_port_counter(content: bytes) -> dict[str, int]:
    """One counter of a port; empty where the adapter does not keep it.

    Raises:
        FormatError: neither a number nor `N/A`.
    """
    return {} if content.startswith(_UNSUPPORTED) else parse_single(content)


class InfiniBand(ReadAtLooks[tuple[_Port, str], str]):
    """All ports, at the pace of looks: each counter is a question to the adapter's firmware."""

    quantities = (
        Quantity(
            _RECEIVE,
            "Bytes received through a port of an InfiniBand or RoCE adapter.",
            "port_rcv_data in /sys/class/infiniband/*/ports/*/counters, words of 4 bytes",
            "host.look_interval_s",
            ("device", "port"),
            target="node",
        ),
        Quantity(
            _TRANSMIT,
            "Bytes sent through a port of an InfiniBand or RoCE adapter.",
            "port_xmit_data in /sys/class/infiniband/*/ports/*/counters, words of 4 bytes",
            "host.look_interval_s",
            ("device", "port"),
            target="node",
        ),
        Quantity(
            _ERRORS,
            "Errors of a port: broken symbols, lost links, packets received in error or not sent.",
            "symbol_error, link_downed, port_rcv_errors, port_xmit_discards beside it",
            "host.look_interval_s",
            ("device", "port"),
            target="node",
        ),
        Quantity(
            _WAIT,
            "Ticks of the adapter in which a port had data to send and could not.",
            "port_xmit_wait beside it",
            "host.look_interval_s",
            ("device", "port"),
            target="node",
        ),
    )

    def __init__(self, sys: Path) -> None:
        self._adapters = sys / "class/infiniband"
        super().__init__(CounterFiles(parse_port_counter))

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read all ports, then find out which there are now."""
        del scene
        found = self._files.advance(now_ns)
        told = {place for place, counts in found.items() if SINGLE in counts.now}
        sums: dict[tuple[str, _Port], float] = {}
        for (port, file), counts in found.items():
            if SINGLE in counts.per_s and (port, _IN_PLACE_OF.get(file)) not in told:
                name, unit = _COUNTERS[file]
                sums[name, port] = sums.get((name, port), 0.0) + counts.per_s[SINGLE] * unit
        for (name, (device, number)), value in sums.items():
            yield Reading(NODE, name, value, (("device", device), ("port", number)))
        directories = sorted(self._adapters.glob("*/ports/[0-9]*"))
        if len(directories) > PORTS_MAX:
            reason = f"{len(directories) - PORTS_MAX} ports beyond {PORTS_MAX} are not watched"
            yield Failure(str(self._adapters), reason)
        ports = {(path.parent.parent.name, path.name): path for path in directories[:PORTS_MAX]}
        self._files.refresh({(port, file): path / file for port, path in ports.items() for file in _COUNTERS}, now_ns)
        yield from self._files.problems
