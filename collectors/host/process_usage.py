"""What each serving process used: faults, memory, context switches, input and output, and its CPU."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.source import PROCESS_LABELS, Scene, Series, series
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import FormatError, counter, named_counters
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Failure, NoData, Reading, Sample

PROCESSES_MAX = 128

_MINOR_FIELD, _MAJOR_FIELD, _CPU_FIELD = 7, 9, 36
"""Places in stat after the name; proc_pid_stat(5) counts from 1, and pid and name too."""
_KIB = 1024

_FAULTS = ("host.minor_faults_per_s", "host.major_faults_per_s")
_CPU = "host.last_cpu"
_MEMORY = ("host.rss_bytes", "host.swap_bytes")
_SWITCHES = ("host.voluntary_switches_per_s", "host.involuntary_switches_per_s")
_TRANSFERS = ("host.io_read_bytes_per_s", "host.io_write_bytes_per_s")
_status = named_counters(
    {
        b"VmRSS": _MEMORY[0],
        b"VmSwap": _MEMORY[1],
        b"voluntary_ctxt_switches": _SWITCHES[0],
        b"nonvoluntary_ctxt_switches": _SWITCHES[1],
    }
)
parse_io = named_counters({b"read_bytes": _TRANSFERS[0], b"write_bytes": _TRANSFERS[1]})
"""`/proc/PID/io`: bytes that went to and came from storage, not those of the page cache."""


def parse_usage(content: bytes) -> dict[str, int]:
    """`/proc/PID/stat`: faults of all threads since the start, and the CPU that the main thread last ran on.

    Raises:
        FormatError: fields are missing or no numbers.
    """
    fields = content.rpartition(b")")[2].split(maxsplit=_CPU_FIELD + 1)
    if len(fields) <= _CPU_FIELD:
        raise FormatError("stat lacks fields")
    places = (_MINOR_FIELD, _MAJOR_FIELD, _CPU_FIELD)
    return {name: counter(fields[place]) for name, place in zip((*_FAULTS, _CPU), places, strict=True)}


def parse_status(content: bytes) -> dict[str, int]:
    """`/proc/PID/status`: memory in bytes, and context switches of the main thread since its start.

    Raises:
        FormatError: a number is none.
    """
    found = _status(content)
    found.update((name, found[name] * _KIB) for name in _MEMORY if name in found)
    return found


class ProcessUsage:
    """All serving processes, those of the same role and rank added up; `last_cpu` is of the schedulers alone."""

    quantities = (
        Quantity(
            "host.minor_faults_per_s",
            "Page faults of a serving process that needed no storage.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="3.6 us a process and more with its threads",
        ),
        Quantity(
            "host.major_faults_per_s",
            "Page faults of a serving process that waited for storage.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of minor_faults_per_second",
        ),
        Quantity(
            "host.last_cpu",
            "The CPU that the scheduler's main thread last ran on, by its number.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of minor_faults_per_second",
        ),
        Quantity(
            "host.rss_bytes",
            "Memory of a serving process, with what it shares with others.",
            "VmRSS in /proc/PID/status",
            "host.interval_s",
            PROCESS_LABELS,
            cost="9.1 us a process",
        ),
        Quantity(
            "host.swap_bytes",
            "Memory of a serving process that has been swapped out.",
            "VmSwap in /proc/PID/status",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of rss_bytes",
        ),
        Quantity(
            "host.voluntary_switches_per_s",
            "How often the scheduler's main thread gave up its CPU to wait.",
            "/proc/PID/status",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of rss_bytes",
        ),
        Quantity(
            "host.involuntary_switches_per_s",
            "How often the scheduler's main thread was taken from its CPU while it could run.",
            "/proc/PID/status",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of rss_bytes",
        ),
        Quantity(
            "host.io_read_bytes_per_s",
            "Bytes that a serving process had read from storage; needs the server's own user.",
            "/proc/PID/io",
            "host.interval_s",
            PROCESS_LABELS,
            cost="2.3 us a process",
        ),
        Quantity(
            "host.io_write_bytes_per_s",
            "Bytes that a serving process had written to storage; needs the server's own user.",
            "/proc/PID/io",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of io_read_bytes_per_second",
        ),
    )

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._series: Mapping[ServerProcess, Series] = {}
        self._stat: CounterFiles[ServerProcess, str] = CounterFiles(parse_usage)
        self._status: CounterFiles[ServerProcess, str] = CounterFiles(parse_status)
        self._io: CounterFiles[ServerProcess, str] = CounterFiles(parse_io)
        self.last_cpu: dict[ServerProcess, int] = {}

    @property
    def vanished(self) -> bool:
        """Whether a process is gone."""
        return self._stat.vanished

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Open the files of all processes."""
        left_out = len(scene.processes) - PROCESSES_MAX
        if left_out > 0:
            yield Failure(str(self._proc), f"{left_out} processes beyond {PROCESSES_MAX} are not watched")
        self._series = {process: series(process) for process in scene.processes[:PROCESSES_MAX]}
        for files, name in ((self._stat, "stat"), (self._status, "status"), (self._io, "io")):
            paths = {process: self._proc / str(process.pid) / name for process in self._series}
            files.refresh(paths, now_ns)
        yield from self._stat.problems
        yield from self._status.problems
        if self._io.problems:
            yield NoData(
                f"{len(self._io.problems)} serving processes do not show their input and output: run cyclewatch as "
                f"the server's user to see it by process ({self._io.problems[0].source})"
            )

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """What grew since the last reading, what memory is held now, and where the schedulers run."""
        sums: defaultdict[tuple[Series, str], float] = defaultdict(float)
        self.last_cpu.clear()
        for process, counts in self._stat.advance(now_ns).items():
            self._add(sums, process, counts.per_s, _FAULTS)
            if process.role == "scheduler":
                self.last_cpu[process] = counts.now[_CPU]
                sums[self._series[process], _CPU] = counts.now[_CPU]
        for process, counts in self._status.advance(now_ns).items():
            self._add(sums, process, counts.now, _MEMORY)
            if process.role == "scheduler":
                self._add(sums, process, counts.per_s, _SWITCHES)
        for process, counts in self._io.advance(now_ns).items():
            self._add(sums, process, counts.per_s, _TRANSFERS)
        for ((target, labels), name), value in sums.items():
            yield Reading(target, name, value, labels)

    def close(self) -> None:
        """Close all files."""
        for files in (self._stat, self._status, self._io):
            files.close()
        self.last_cpu.clear()

    def _add(
        self,
        sums: dict[tuple[Series, str], float],
        process: ServerProcess,
        values: Mapping[str, float],
        names: tuple[str, ...],
    ) -> None:
        for name in names:
            if name in values:
                sums[self._series[process], name] += values[name]
