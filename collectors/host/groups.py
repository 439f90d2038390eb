"""Control groups of the servers: CPU limits, pressure, memory events, and what they read and write."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from pathlib import Path

from cyclewatch.collectors.host.cgroup import (
    READ,
    THROTTLED_NS,
    UNIFIED,
    WRITE,
    GroupPlace,
    Mount,
    find_group,
    parse_cpu_stat,
    parse_groups,
    parse_io_stat,
    parse_memory_events,
    parse_mounts,
)
from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.disks import whole_disks
from cyclewatch.collectors.host.pressure import PRESSURE_LABELS, RESOURCES, parse_pressure, ratios
from cyclewatch.collectors.host.source import PROCESS_LABELS, Labels, Scene, Series, series, unreadable
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import FormatError
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample

LIMITS_MAX = 128
GROUPS_MAX = 16

_UNKNOWN_MAX = 4
"""Levels of groups that are searched for one whose path is not told: containers are no deeper."""

_NS = 1e-9
_MEMORY_FILES = ("memory.events", "memory.oom_control")
_IO_FILES = ("io.stat", "blkio.throttle.io_service_bytes_recursive")
"""Of version 2, and of version 1; a directory has one of the two."""
_IO_READINGS = {READ: "host.cgroup_io_read_bytes_per_s", WRITE: "host.cgroup_io_write_bytes_per_s"}

_File = tuple[Path, str]
"""A group's directory and the name of a file in it."""


class ServerGroups:
    """The groups that the schedulers are in, each read once however many processes are in it.

    CPU limits count wherever they stand above a process, and the worst is given; the rest is the group's own. A
    server whose schedulers are in several groups has the worst of their pressure and events, and the sum of their
    input and output.
    """

    quantities = (
        Quantity(
            "host.cgroup_throttled_ratio",
            "Share of the time that the scheduler's control group was held back by its CPU limit.",
            "cpu.stat of the control group and those above it",
            "host.interval_s",
            PROCESS_LABELS,
            cost="1.3 us a group, with the file held open",
        ),
        Quantity(
            "host.cgroup_pressure_ratio",
            "Share of the time that some or all (`full`) work of the server's group was stalled for a resource.",
            "{cpu,memory,io,irq}.pressure of the control group, version 2",
            "host.interval_s",
            PRESSURE_LABELS,
            cost="2.0 us a resource",
        ),
        Quantity(
            "host.cgroup_memory_events_per_s",
            "How often the memory of the server's group met a limit (`high`, `max`), ran out, or cost a process.",
            "memory.events of the control group; memory.oom_control in version 1, which has `oom_kill` alone",
            "host.interval_s",
            ("event",),
            cost="1.5 us a group",
        ),
        Quantity(
            _IO_READINGS[READ],
            "Bytes that the server's group had read from disks.",
            "io.stat of the control group; blkio.throttle.io_service_bytes_recursive in version 1",
            "host.interval_s",
            cost="1.5 us a group",
        ),
        Quantity(
            _IO_READINGS[WRITE],
            "Bytes that the server's group had written to disks.",
            "io.stat of the control group; blkio.throttle.io_service_bytes_recursive in version 1",
            "host.interval_s",
            cost="in the reading of cgroup_io_read_bytes_per_second",
        ),
    )

    def __init__(self, proc: Path, sys: Path, cgroup: Path) -> None:
        self._proc = proc
        self._sys = sys
        self._root = cgroup
        self._limits_of: dict[ServerProcess, tuple[Path, ...]] = {}
        self._targets: defaultdict[Path, set[str]] = defaultdict(set)
        self._disks: frozenset[str] = frozenset()
        self._limits: CounterFiles[Path, str] = CounterFiles(parse_cpu_stat)
        self._pressure: CounterFiles[_File, str] = CounterFiles(parse_pressure)
        self._memory: CounterFiles[_File, str] = CounterFiles(parse_memory_events)
        self._io: CounterFiles[_File, tuple[str, str]] = CounterFiles(parse_io_stat)

    @property
    def vanished(self) -> bool:
        """Whether a group is gone."""
        return self._limits.vanished

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Find the groups of the schedulers, and open their files."""
        groups: dict[ServerProcess, Mapping[str, str]] = {}
        for process in scene.schedulers:
            with contextlib.suppress(OSError, FormatError):  # the process has ended since it was found
                groups[process] = parse_groups((self._proc / str(process.pid) / "cgroup").read_bytes())
        mounts: tuple[Mount, ...] = ()
        if groups:
            path = self._proc / "self/mountinfo"
            try:
                mounts = parse_mounts(path.read_bytes())
            except (OSError, FormatError) as error:
                yield unreadable(path, error)
        self._disks = frozenset()
        with contextlib.suppress(OSError):
            self._disks = frozenset(whole_disks(self._sys).values())
        self._open(groups, mounts, now_ns)
        yield from (*self._limits.problems, *self._pressure.problems, *self._memory.problems, *self._io.problems)

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """What the groups did since the last reading."""
        limits = self._limits.advance(now_ns)
        throttled = {path: counts.per_s[THROTTLED_NS] for path, counts in limits.items() if counts.per_s}
        for process, way in self._limits_of.items():
            worst_ns = max((throttled[path] for path in way if path in throttled), default=None)
            if worst_ns is not None:
                target, labels = series(process)
                yield Reading(target, "host.cgroup_throttled_ratio", worst_ns * _NS, labels)
        worst: dict[tuple[str, Series], float] = {}
        for directory, name, labels, value in (*self._pressures(now_ns), *self._memory_events(now_ns)):
            for target in self._targets[directory]:
                key = name, (target, labels)
                worst[key] = max(worst.get(key, 0.0), value)
        sums: dict[tuple[str, Series], float] = {}
        for directory, name, value in self._transfers(now_ns):
            for target in self._targets[directory]:
                key = name, (target, ())
                sums[key] = sums.get(key, 0.0) + value
        for (name, (target, labels)), value in (worst | sums).items():
            yield Reading(target, name, value, labels)

    def close(self) -> None:
        """Close all files."""
        self._open({}, (), 0)

    def _open(self, groups: Mapping[ServerProcess, Mapping[str, str]], mounts: tuple[Mount, ...], now_ns: int) -> None:
        """Hold the files of these groups and no others."""
        directories = cache(_directories)  # controllers of version 2 share a place

        def way_up(controller: str, process: ServerProcess) -> tuple[Path, ...]:
            place = find_group(controller, groups[process], mounts, self._root)
            return () if place is None else directories(place, process.pid)

        def own(controller: str, names: Iterable[str]) -> dict[_File, Path]:
            """Files of the processes' own groups."""
            found: dict[Path, None] = {}
            for process in groups:
                for directory in way_up(controller, process)[:1]:
                    if directory in found or len(found) < GROUPS_MAX:
                        found[directory] = None
                        self._targets[directory].add(process.target)
            return {(directory, name): directory / name for directory in found for name in names}

        self._targets.clear()
        self._limits_of = {process: way_up("cpu", process) for process in groups}
        # Own groups come before those above them, and are the ones that stay where there are too many.
        ways = self._limits_of.values()
        limits = dict.fromkeys(chain(*(way[:1] for way in ways), *(way[1:] for way in ways)))
        self._limits.refresh({path: path / "cpu.stat" for path in islice(limits, LIMITS_MAX)}, now_ns)
        self._pressure.refresh(own(UNIFIED, [f"{resource}.pressure" for resource in RESOURCES]), now_ns)
        self._memory.refresh(own("memory", _MEMORY_FILES), now_ns)
        self._io.refresh(own("blkio", _IO_FILES), now_ns)

    def _pressures(self, now_ns: int) -> Iterator[tuple[Path, str, Labels, float]]:
        for (directory, file), stalled in self._pressure.advance(now_ns).items():
            for labels, ratio in ratios(file.removesuffix(".pressure"), stalled.per_s):
                yield directory, "host.cgroup_pressure_ratio", labels, ratio

    def _memory_events(self, now_ns: int) -> Iterator[tuple[Path, str, Labels, float]]:
        for (directory, _), events in self._memory.advance(now_ns).items():
            for event, rate in events.per_s.items():
                yield directory, "host.cgroup_memory_events_per_s", (("event", event),), rate

    def _transfers(self, now_ns: int) -> Iterator[tuple[Path, str, float]]:
        for (directory, _), transfers in self._io.advance(now_ns).items():
            for (disk, direction), rate in transfers.per_s.items():
                if disk in self._disks or not self._disks:
                    yield directory, _IO_READINGS[direction], rate


def _directories(place: GroupPlace, pid: int) -> tuple[Path, ...]:
    """The directory of a process's group, then those above it; empty where it is not found.

    Where names are unknown, it is the directory that fits and has the process in it.
    """
    if place.unknown > _UNKNOWN_MAX:
        return ()
    starts = [place.point]
    for _ in range(place.unknown):
        starts = [child for start in starts for child in _subdirectories(start)]
    found = [start.joinpath(*place.below) for start in starts]
    if place.unknown:
        found = [directory for directory in found if _holds(directory, pid)]
    if not found:
        return ()
    levels = place.unknown + len(place.below)
    return (found[0], *found[0].parents[:levels])


def _subdirectories(directory: Path) -> list[Path]:
    try:
        return sorted(child for child in directory.iterdir() if child.is_dir())
    except OSError:
        return []


def _holds(directory: Path, pid: int) -> bool:
    try:
        return str(pid).encode() in (directory / "cgroup.procs").read_bytes().split()
    except OSError:
        return False
