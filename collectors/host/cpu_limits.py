"""CPU limits of control groups: how long they held the schedulers back."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from cyclewatch.collectors.host.cgroup import THROTTLED_NS, parse_cpu_stat
from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.labels import PROCESS_LABELS, series
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample

LIMITS_MAX = 128

_NS = 1e-9


class CpuLimits:
    """A limit holds back a process wherever it stands above it: the worst is given.

    Each group is read once, however many processes are in it. Time adds up over CPUs, so that a share exceeds 1
    where several were held back.
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
    )

    def __init__(self) -> None:
        self._ways: Mapping[ServerProcess, tuple[Path, ...]] = {}
        self._files: CounterFiles[Path, str] = CounterFiles(parse_cpu_stat)

    @property
    def vanished(self) -> bool:
        """Whether a group is gone."""
        return self._files.vanished

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Find the groups of the schedulers and those above them."""
        self._ways = {process: scene.groups.way_up("cpu", process) for process in scene.schedulers}
        # Own groups come before those above them, and are the ones that stay where there are too many.
        ways = self._ways.values()
        directories = dict.fromkeys(chain(*(way[:1] for way in ways), *(way[1:] for way in ways)))
        self._files.refresh({path: path / "cpu.stat" for path in islice(directories, LIMITS_MAX)}, now_ns)
        yield from (*scene.groups.problems, *self._files.problems)

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares of the time since the last reading."""
        found = self._files.advance(now_ns)
        throttled = {path: counts.per_s[THROTTLED_NS] for path, counts in found.items() if counts.per_s}
        for process, way in self._ways.items():
            worst_ns = max((throttled[path] for path in way if path in throttled), default=None)
            if worst_ns is not None:
                target, labels = series(process)
                yield Reading(target, "host.cgroup_throttled_ratio", worst_ns * _NS, labels)

    def close(self) -> None:
        """Close all files."""
        self._files.close()
        self._ways = {}
