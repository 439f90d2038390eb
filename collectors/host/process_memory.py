"""What each serving process holds and moves: memory, and input and output."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.labels import PROCESS_LABELS, Series, series
from cyclewatch.collectors.host.source import OnlyAtLooks, Scene
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import named_counters
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NoData, Reading, Sample

_KIB = 1024
_RSS, _SWAP = "host.rss_bytes", "host.swap_bytes"
_READ, _WRITTEN = "host.io_read_bytes_per_s", "host.io_write_bytes_per_s"

parse_memory = named_counters({b"VmRSS": _RSS, b"VmSwap": _SWAP})
"""`/proc/PID/status`: memory and swapped memory, in KiB."""

parse_io = named_counters({b"read_bytes": _READ, b"write_bytes": _WRITTEN})
"""`/proc/PID/io`: bytes that went to and came from storage, not those of the page cache."""


class ProcessMemory(OnlyAtLooks):
    """All serving processes at the pace of looks, those of the same role and rank added up."""

    quantities = (
        Quantity(
            _RSS,
            "Memory of a serving process, with what it shares with others.",
            "VmRSS in /proc/PID/status",
            "host.look_interval_s",
            PROCESS_LABELS,
            cost="9.1 us a process",
        ),
        Quantity(
            _SWAP,
            "Memory of a serving process that has been swapped out.",
            "VmSwap in /proc/PID/status",
            "host.look_interval_s",
            PROCESS_LABELS,
            cost="in the reading of rss_bytes",
        ),
        Quantity(
            _READ,
            "Bytes that a serving process had read from storage; needs the server's own user.",
            "/proc/PID/io",
            "host.look_interval_s",
            PROCESS_LABELS,
            cost="2.3 us a process",
        ),
        Quantity(
            _WRITTEN,
            "Bytes that a serving process had written to storage; needs the server's own user.",
            "/proc/PID/io",
            "host.look_interval_s",
            PROCESS_LABELS,
            cost="in the reading of io_read_bytes_per_second",
        ),
    )

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._status: CounterFiles[ServerProcess, str] = CounterFiles(parse_memory)
        self._io: CounterFiles[ServerProcess, str] = CounterFiles(parse_io)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read all processes known, then open the files of those that there are now."""
        sums: defaultdict[tuple[Series, str], float] = defaultdict(float)
        for process, counts in self._status.advance(now_ns).items():
            for name, kib in counts.now.items():
                sums[series(process), name] += kib * _KIB
        for process, counts in self._io.advance(now_ns).items():
            for name, rate in counts.per_s.items():
                sums[series(process), name] += rate
        for ((target, labels), name), value in sums.items():
            yield Reading(target, name, value, labels)
        for files, name in ((self._status, "status"), (self._io, "io")):
            paths = {process: self._proc / str(process.pid) / name for process in scene.processes}
            files.refresh(paths, now_ns)
        yield from self._status.problems
        if self._io.problems:
            yield NoData(
                f"{len(self._io.problems)} serving processes do not show their input and output: run cyclewatch as "
                f"the server's user to see it by process ({self._io.problems[0].source})"
            )

    def close(self) -> None:
        """Close all files."""
        self._status.close()
        self._io.close()
