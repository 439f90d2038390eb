"""Disks of the node: how busy they are, and what is read and written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles, ReadAtLooks
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Failure, Reading, Sample

DISKS_MAX = 16

_SECTOR_BYTES = 512
"""Of these counters, whatever the disk's own sectors are."""
_MS = 1e-3
_COLUMNS = (
    (2, "host.disk_read_bytes_per_s", _SECTOR_BYTES),
    (3, "host.disk_read_ratio", _MS),
    (6, "host.disk_write_bytes_per_s", _SECTOR_BYTES),
    (7, "host.disk_write_ratio", _MS),
    (9, "host.disk_usage_ratio", _MS),
)
"""Columns from 0, the reading, and what one of its units is; see Documentation/block/stat.rst."""
_UNITS = {name: unit for _, name, unit in _COLUMNS}
_COLUMNS_MIN = 11


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


def parse_disk(content: bytes) -> dict[str, int]:
    """`/sys/block/DISK/stat`: sectors and milliseconds since boot, by reading.

    Raises:
        FormatError: there are too few columns, or something else than numbers in them.
    """
    columns = content.split()
    if len(columns) < _COLUMNS_MIN:
        raise FormatError("stat of a disk lacks columns")
    return {name: counter(columns[column]) for column, name, _ in _COLUMNS}


class Disks(ReadAtLooks[str, str]):
    """Every whole disk, at the pace of looks.

    `usage`, `read` and `write` are what profiles of single programs call so: how busy the disk was, and how long
    reading and writing took. Requests that overlap count each for itself, so that these two can exceed 1.
    """

    quantities = (
        Quantity(
            "host.disk_usage_ratio",
            "Share of the time that a disk had requests to serve.",
            "/sys/block/DISK/stat",
            "host.look_interval_s",
            ("disk",),
            target="node",
            cost="2.1 us a disk",
        ),
        Quantity(
            "host.disk_read_ratio",
            "Time that reads from a disk took, added up, in relation to the time that passed.",
            "/sys/block/DISK/stat",
            "host.look_interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
        Quantity(
            "host.disk_write_ratio",
            "Time that writes to a disk took, added up, in relation to the time that passed.",
            "/sys/block/DISK/stat",
            "host.look_interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
        Quantity(
            "host.disk_read_bytes_per_s",
            "Bytes read from a disk.",
            "/sys/block/DISK/stat",
            "host.look_interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
        Quantity(
            "host.disk_write_bytes_per_s",
            "Bytes written to a disk.",
            "/sys/block/DISK/stat",
            "host.look_interval_s",
            ("disk",),
            target="node",
            cost="in the reading of disk_usage_ratio",
        ),
    )

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        super().__init__(CounterFiles(parse_disk))

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read the disks known, then find out which there are now."""
        del scene
        for disk, counts in self._files.advance(now_ns).items():
            for name, rate in counts.per_s.items():
                yield Reading(NODE, name, rate * _UNITS[name], (("disk", disk),))
        directory = self._sys / "block"
        disks = list(whole_disks(self._sys))
        if len(disks) > DISKS_MAX:
            yield Failure(str(directory), f"{len(disks) - DISKS_MAX} disks beyond {DISKS_MAX} are not watched")
        self._files.refresh({disk: directory / disk / "stat" for disk in disks[:DISKS_MAX]}, now_ns)
        yield from self._files.problems
