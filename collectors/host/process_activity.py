"""What the serving processes run into: page faults, context switches, stops, and the CPU they are on."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.labels import PROCESS_LABELS, Series, series
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import FormatError, counter, named_counters
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample

_STATE_FIELD, _MINOR_FIELD, _MAJOR_FIELD, _CPU_FIELD = 0, 7, 9, 36
"""Places in stat after the name; proc_pid_stat(5) counts from 1, and pid and name too."""
_MINOR, _MAJOR = "host.minor_faults_per_s", "host.major_faults_per_s"
_VOLUNTARY, _INVOLUNTARY = "host.voluntary_switches_per_s", "host.involuntary_switches_per_s"
_CPU = "host.last_cpu"
_STOPPED = "host.stopped_ratio"
_STOPPED_STATES = {b"T", b"t"}


def parse_activity(content: bytes) -> dict[str, int]:
    """`/proc/PID/stat`: faults of all threads since the start, the main thread's last CPU, and whether it is stopped.

    Raises:
        FormatError: fields are missing or no numbers.
    """
    fields = content.rpartition(b")")[2].split(maxsplit=_CPU_FIELD + 1)
    if len(fields) <= _CPU_FIELD:
        raise FormatError("stat lacks fields")
    return {
        _MINOR: counter(fields[_MINOR_FIELD]),
        _MAJOR: counter(fields[_MAJOR_FIELD]),
        _CPU: counter(fields[_CPU_FIELD]),
        _STOPPED: int(fields[_STATE_FIELD] in _STOPPED_STATES),
    }


parse_switches = named_counters({b"voluntary_ctxt_switches": _VOLUNTARY, b"nonvoluntary_ctxt_switches": _INVOLUNTARY})
"""`/proc/PID/status`: context switches of the main thread since its start."""


class ProcessActivity:
    """Faults of all serving processes, those of the same role and rank added up; the rest of schedulers alone.

    Context switches wait for the looks: `status` takes twice as long as `stat`, and what they tell of a scheduler that
    lacks a CPU, its run-queue wait tells at every sample.
    `last_cpu` is the CPU of each scheduler's main thread, for the sources that look at cores.
    """

    quantities = (
        Quantity(
            _MINOR,
            "Page faults of a serving process that needed no storage.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="3.6 us a process, and more with its threads",
        ),
        Quantity(
            _MAJOR,
            "Page faults of a serving process that waited for storage.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of minor_faults_per_second",
        ),
        Quantity(
            _CPU,
            "The CPU that the scheduler's main thread last ran on, by its number.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of minor_faults_per_second",
        ),
        Quantity(
            _STOPPED,
            "1 where the scheduler was stopped by a signal or a debugger when it was looked at, else 0.",
            "/proc/PID/stat",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of minor_faults_per_second",
        ),
        Quantity(
            _VOLUNTARY,
            "How often the scheduler's main thread gave up its CPU to wait.",
            "/proc/PID/status",
            "host.look_interval_s",
            PROCESS_LABELS,
            cost="9.1 us a scheduler",
        ),
        Quantity(
            _INVOLUNTARY,
            "How often the scheduler's main thread was taken from its CPU while it could run.",
            "/proc/PID/status",
            "host.look_interval_s",
            PROCESS_LABELS,
            cost="in the reading of voluntary_switches_per_second",
        ),
    )

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._stat: CounterFiles[ServerProcess, str] = CounterFiles(parse_activity)
        self._status: CounterFiles[ServerProcess, str] = CounterFiles(parse_switches)
        self.last_cpu: dict[ServerProcess, int] = {}

    @property
    def vanished(self) -> bool:
        """Whether a process is gone."""
        return self._stat.vanished

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read the context switches of the schedulers known, then open the files of all processes."""
        for process, counts in self._status.advance(now_ns).items():
            target, labels = series(process)
            for name, rate in counts.per_s.items():
                yield Reading(target, name, rate, labels)
        directories = {process: self._proc / str(process.pid) for process in scene.processes}
        self._stat.refresh({process: path / "stat" for process, path in directories.items()}, now_ns)
        self._status.refresh({process: directories[process] / "status" for process in scene.schedulers}, now_ns)
        yield from (*self._stat.problems, *self._status.problems)

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """What happened since the last reading, and where the schedulers run now."""
        faults: defaultdict[tuple[Series, str], float] = defaultdict(float)
        self.last_cpu.clear()
        stopped: dict[Series, int] = {}
        for process, counts in self._stat.advance(now_ns).items():
            for name in (_MINOR, _MAJOR):
                if name in counts.per_s:
                    faults[series(process), name] += counts.per_s[name]
            if process.role == "scheduler":
                self.last_cpu[process] = counts.now[_CPU]
                stopped[series(process)] = counts.now[_STOPPED]
        for ((target, labels), name), rate in faults.items():
            yield Reading(target, name, rate, labels)
        for process, cpu in self.last_cpu.items():
            target, labels = series(process)
            yield Reading(target, _CPU, cpu, labels)
        for (target, labels), is_stopped in stopped.items():
            yield Reading(target, _STOPPED, is_stopped, labels)

    def close(self) -> None:
        """Close all files."""
        self._stat.close()
        self._status.close()
        self.last_cpu.clear()
