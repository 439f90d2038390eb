"""Disks of the node: how busy they are, and what is read and written."""

import contextlib
from collections.abc import Container, Iterator
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.source import Scene, unreadable
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Failure, Reading, Sample

DISKS_MAX = 16

_SECTOR_BYTES = 512
"""Of diskstats, whatever the disk's own sectors are."""
_MS = 1e-3
_COLUMNS = {
    5: ("host.disk_read_bytes_per_s", _SECTOR_BYTES),
    6: ("host.disk_read_ratio", _MS),
    9: ("host.disk_write_bytes_per_s", _SECTOR_BYTES),
    10: ("host.disk_write_ratio", _MS),
    12: ("host.disk_usage_ratio", _MS),
}
"""Columns of diskstats, from 0: the reading, and what one of its units is; see Documentation/admin-guide/iostats."""
_COLUMNS_MIN = 14


def whole_disks(sys: Path) -> dict[str, str]:
    """Disks by name, with their number (`major:minor`): those with a device behind them.

    Partitions, loop devices, RAM disks, and what device mapper and md lay over disks are left out: their traffic
    is that of the disks below.

    Raises:
        OSError: the list of block devices cannot be read.
    """
    found = {}
    for directory in sorted((sys / "block").iterdir()):
        with contextlib.suppress(OSError):
            if (directory / "device").exists():
                found[directory.name] = (directory / "dev").read_text().strip()
    return found


def parse_diskstats(content: bytes, disks: Container[str]) -> dict[tuple[str, int], int]:
    """`/proc/diskstats`: counters since boot of some of its devices, by device and column.

    Raises:
        FormatError: a line lacks columns, or has something else than numbers in them.
    """
    found = {}
    for line in content.splitlines():
        columns = line.split()
        if len(columns) < _COLUMNS_MIN:
            raise FormatError("a line of diskstats lacks columns")
        name = columns[2].decode(errors="replace")
        if name in disks:
            for column in _COLUMNS:
                found[name, column] = counter(columns[column])
    return found


class Disks:
    """Every whole disk.

    `usage`, `read` and `write` are what profiles of single programs call so: how busy the disk was, and how long
    reading and writing took. Requests that overlap count each for itself, so that these two can exceed 1.
    """

    quantities = (
        Quantity(
            "host.disk_usage_ratio",
            "Share of the time that a disk had requests to serve.",
            "/proc/diskstats",
            "host.interval_s",
            ("disk",),
            target="node",
            cost="7.9 us for all disks",
        ),
        Quantity(
            "host.disk_read_ratio",
            "Time that reads from a disk took, added up, in relation to the time that passed.",
            "/proc/diskstats",
            "host.interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
        Quantity(
            "host.disk_write_ratio",
            "Time that writes to a disk took, added up, in relation to the time that passed.",
            "/proc/diskstats",
            "host.interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
        Quantity(
            "host.disk_read_bytes_per_s",
            "Bytes read from a disk.",
            "/proc/diskstats",
            "host.interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
        Quantity(
            "host.disk_write_bytes_per_s",
            "Bytes written to a disk.",
            "/proc/diskstats",
            "host.interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
    )
    vanished = False

    def __init__(self, proc: Path, sys: Path) -> None:
        self._path = proc / "diskstats"
        self._sys = sys
        self._disks: list[str] = []
        self._files: CounterFiles[str, tuple[str, int]] = CounterFiles(
            lambda content: parse_diskstats(content, self._disks), whole=True, required=True
        )

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Find the disks."""
        del scene
        try:
            disks = list(whole_disks(self._sys))
        except OSError as error:
            disks = []
            yield unreadable(self._sys / "block", error)
        if len(disks) > DISKS_MAX:
            yield Failure(str(self._path), f"{len(disks) - DISKS_MAX} disks beyond {DISKS_MAX} are not watched")
        self._disks = disks[:DISKS_MAX]
        self._files.refresh({"diskstats": self._path}, now_ns)
        yield from self._files.problems

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """What each disk did since the last reading."""
        for counts in self._files.advance(now_ns).values():
            for (disk, column), value in counts.per_s.items():
                name, unit = _COLUMNS[column]
                yield Reading(NODE, name, value * unit, (("disk", disk),))

    def close(self) -> None:
        """Close the file."""
        self._files.close()
