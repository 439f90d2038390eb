"""Memory events of the servers' control groups, and what these read and write."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.host.cgroup import READ, WRITE, parse_io_stat, parse_memory_events
from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.disks import whole_disks
from cyclewatch.collectors.host.source import OnlyAtLooks, Scene
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample

_EVENTS = "host.cgroup_memory_events_per_s"
_TRANSFERS = {READ: "host.cgroup_io_read_bytes_per_s", WRITE: "host.cgroup_io_write_bytes_per_s"}
_MEMORY_FILES = ("memory.events", "memory.oom_control")
_IO_FILES = ("io.stat", "blkio.throttle.io_service_bytes_recursive")
"""Of version 2, and of version 1; a directory has one of the two."""

_File = tuple[Path, str]
"""A group's directory and the name of a file in it."""


class GroupResources(OnlyAtLooks):
    """The schedulers' own groups at the pace of looks.

    A server whose schedulers are in several groups has the worst of their events, and the sum of what they read and
    write. A disk below device mapper or md counts once, as itself.
    """

    quantities = (
        Quantity(
            _EVENTS,
            "How often the memory of the server's group met a limit (`high`, `max`), ran out, or cost a process.",
            "memory.events of the control group; memory.oom_control in version 1, which has `oom_kill` alone",
            "host.look_interval_s",
            ("event",),
            cost="1.5 us a group",
        ),
        Quantity(
            _TRANSFERS[READ],
            "Bytes that the server's group had read from disks.",
            "io.stat of the control group; blkio.throttle.io_service_bytes_recursive in version 1",
            "host.look_interval_s",
            cost="1.5 us a group",
        ),
        Quantity(
            _TRANSFERS[WRITE],
            "Bytes that the server's group had written to disks.",
            "io.stat of the control group; blkio.throttle.io_service_bytes_recursive in version 1",
            "host.look_interval_s",
            cost="in the reading of cgroup_io_read_bytes_per_second",
        ),
    )

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._memory_targets: Mapping[Path, set[str]] = {}
        self._io_targets: Mapping[Path, set[str]] = {}
        self._memory: CounterFiles[_File, str] = CounterFiles(parse_memory_events)
        self._io: CounterFiles[_File, tuple[str, str]] = CounterFiles(parse_io_stat)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read all groups known, then open the files of those that there are now."""
        yield from self._events(now_ns)
        yield from self._transfers(now_ns)
        self._memory_targets, self._io_targets = scene.groups.own("memory"), scene.groups.own("blkio")
        self._memory.refresh(_paths(self._memory_targets, _MEMORY_FILES), now_ns)
        self._io.refresh(_paths(self._io_targets, _IO_FILES), now_ns)
        yield from (*self._memory.problems, *self._io.problems)

    def close(self) -> None:
        """Close all files."""
        self._memory.close()
        self._io.close()

    def _events(self, now_ns: int) -> Iterator[Reading]:
        worst: dict[tuple[str, str], float] = {}
        for (directory, _), counts in self._memory.advance(now_ns).items():
            for event, rate in counts.per_s.items():
                for target in self._memory_targets[directory]:
                    worst[target, event] = max(worst.get((target, event), 0.0), rate)
        for (target, event), rate in worst.items():
            yield Reading(target, _EVENTS, rate, (("event", event),))

    def _transfers(self, now_ns: int) -> Iterator[Reading]:
        disks: set[str] = set()
        with contextlib.suppress(OSError):
            disks.update(whole_disks(self._sys).values())
        sums: dict[tuple[str, str], float] = {}
        for (directory, _), counts in self._io.advance(now_ns).items():
            for (disk, direction), rate in counts.per_s.items():
                for target in self._io_targets[directory] if disk in disks or not disks else ():
                    sums[target, direction] = sums.get((target, direction), 0.0) + rate
        for (target, direction), rate in sums.items():
            yield Reading(target, _TRANSFERS[direction], rate)


def _paths(directories: Iterable[Path], names: tuple[str, ...]) -> dict[_File, Path]:
    return {(directory, name): directory / name for directory in directories for name in names}
