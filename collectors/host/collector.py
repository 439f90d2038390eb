"""The host collector: what Linux says of the node and did to the serving processes."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery, SchedulerProcess
from cyclewatch.collectors.host.cpu import NodeCpu
from cyclewatch.collectors.host.cpu_limits import CpuLimits
from cyclewatch.collectors.host.disks import Disks
from cyclewatch.collectors.host.facts import NodeFacts
from cyclewatch.collectors.host.frequency import CoreFrequency
from cyclewatch.collectors.host.group_resources import GroupResources
from cyclewatch.collectors.host.groups import Groups
from cyclewatch.collectors.host.infiniband import InfiniBand
from cyclewatch.collectors.host.memory import NodeMemory
from cyclewatch.collectors.host.network import Network
from cyclewatch.collectors.host.other_processes import OtherProcesses
from cyclewatch.collectors.host.pressure import GroupPressure, NodePressure
from cyclewatch.collectors.host.problems import unreadable
from cyclewatch.collectors.host.process_activity import ProcessActivity
from cyclewatch.collectors.host.process_memory import ProcessMemory
from cyclewatch.collectors.host.serving_threads import ServingThreads
from cyclewatch.collectors.host.source import Scene, Source
from cyclewatch.collectors.host.thermal import ThermalThrottling
from cyclewatch.collectors.processes import ProcessTree, server_processes
from cyclewatch.collectors.records import Failure, NoData, Sample
from cyclewatch.config.settings import Host

PROCESSES_MAX = 128


class HostCollector:
    """Reads the sources of the node and of the serving processes, each guarded from the others.

    Rates are differences between two readings, so that the first call gives none. At a look, processes, threads,
    groups and devices are found anew; one is also due when the schedulers change or something that was read is
    gone. Looks at all processes and at the facts of the node, a survey, are rarer. A thread that lives for less
    than the time between two looks may be missed. What cannot be read is found at a look and told with every
    sample until it can be.
    """

    name = "host"

    def __init__(self, settings: Host, discovery: Discovery) -> None:
        proc, sys = settings.proc, settings.sys
        activity = ProcessActivity(proc)
        servers: tuple[Source, ...] = (
            ServingThreads(proc),
            activity,
            ProcessMemory(proc),
            CoreFrequency(proc, sys, activity.last_cpu),
            CpuLimits(),
            GroupPressure(),
            GroupResources(sys),
            Network(proc),
        )
        node: tuple[Source, ...] = (
            NodeCpu(proc),
            NodePressure(proc),
            NodeMemory(proc, sys),
            ThermalThrottling(sys, activity.last_cpu),
            Disks(sys),
            InfiniBand(sys),
        )
        survey: tuple[Source, ...] = (OtherProcesses(), NodeFacts(proc, sys))
        self.interval_s = settings.interval_s
        self._proc = proc
        self._cgroup = settings.cgroup
        self._discovery = discovery
        self._schedulers: tuple[SchedulerProcess, ...] = ()
        self._of_servers = _Round(servers, settings.look_interval_s)
        self._rounds = (
            self._of_servers,
            _Round(node, settings.look_interval_s),
            _Round(survey, settings.survey_interval_s),
        )
        self.sources = (*servers, *node, *survey)
        self._problems: dict[Source, list[Sample]] = {}
        self._unwatched: list[Sample] = []
        self.quantities = tuple(quantity for source in self.sources for quantity in source.quantities)

    def collect(self, now: Now) -> Iterator[Sample]:
        """Readings of the node and of every serving process; `NoData` for schedulers that cannot be seen from here.

        Raises:
            ExceptionGroup: sources failed in a way that nobody has foreseen; the others have given their samples.
        """
        now_ns = now.monotonic_ns
        errors: list[Exception] = []
        for source in self.sources:
            yield from _guarded(errors, source.advance, now_ns)
        schedulers = self._discovery.schedulers()
        if schedulers != self._schedulers:
            self._schedulers = schedulers
            self._of_servers.looked_ns = None
        due = [round_ for round_ in self._rounds if round_.due(now_ns)]
        if due:
            scene = self._scene()
            for round_ in due:
                round_.looked_ns = now_ns
                for source in round_.sources:
                    samples = _guarded(errors, source.look, scene, now_ns)
                    self._problems[source] = [sample for sample in samples if isinstance(sample, Failure | NoData)]
                    yield from (sample for sample in samples if not isinstance(sample, Failure | NoData))
        for problems in self._problems.values():
            yield from problems
        yield from self._unwatched
        if errors:
            raise ExceptionGroup("sources of the host collector", errors)

    def close(self) -> None:
        """Close all files; the next call starts anew."""
        for source in self.sources:
            source.close()
        for round_ in self._rounds:
            round_.looked_ns = None
        self._problems.clear()

    def _scene(self) -> Scene:
        """The serving processes as they are now; notes which schedulers cannot be seen."""
        tree = ProcessTree(self._proc)
        processes = tuple(server_processes(self._schedulers, tree))
        seen = {process.pid for process in processes}
        self._unwatched = [
            NoData(
                f"scheduler process {scheduler.pid} of {scheduler.target} is not visible under {self._proc}: it "
                "has ended, or runs in another pid namespace, which cyclewatch must share"
            )
            for scheduler in self._schedulers
            if scheduler.pid not in seen
        ]
        if not self._schedulers:
            self._unwatched.append(
                NoData(
                    "no scheduler process known yet: they are found from their rings, "
                    "which need cyclewatch-sglang installed and CYCLEWATCH_RING_DIR set"
                )
            )
        left_out = len(processes) - PROCESSES_MAX
        if left_out > 0:
            reason = f"{left_out} serving processes beyond {PROCESSES_MAX} are not watched"
            self._unwatched.append(Failure(str(self._proc), reason))
        processes = processes[:PROCESSES_MAX]
        schedulers = [process for process in processes if process.role == "scheduler"]
        return Scene(processes, tree, Groups(schedulers, self._proc, self._cgroup))


class _Round:
    """Sources that look around together, and when they last did."""

    def __init__(self, sources: tuple[Source, ...], interval_s: float) -> None:
        self.sources = sources
        self.looked_ns: int | None = None
        self._interval_ns = int(interval_s * 1e9)

    def due(self, now_ns: int) -> bool:
        """Whether the time has come, or something is gone; a clock that went backwards makes it due, too."""
        if self.looked_ns is None or not 0 <= now_ns - self.looked_ns < self._interval_ns:
            return True
        return any(source.vanished for source in self.sources)


def _guarded(errors: list[Exception], call: Callable[..., Iterable[Sample]], *arguments: Scene | int) -> list[Sample]:
    """What a source gives, and a failure where it could not read something.

    Whatever else it raises is kept, with its traceback, for when the others have had their turn.
    """
    samples: list[Sample] = []
    try:
        samples.extend(call(*arguments))
    except OSError as error:
        samples.append(unreadable(Path(error.filename or "a file"), error))
    except Exception as error:  # noqa: BLE001 (the seam: no source may stop another; nothing is lost, see `collect`)
        errors.append(error)
    return samples
