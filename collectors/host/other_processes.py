"""Who else uses the CPUs: the processes that are no part of a server."""

import heapq
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cyclewatch.collectors.host.source import OnlyAtLooks, Scene
from cyclewatch.collectors.procfs import ProcessStat
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Reading, Sample

COMMANDS_MAX = 5

_LEAST_RATIO = 0.01
"""Of one CPU; what uses less is not worth a series."""
_KERNEL_THREADS = 2
"""The pid of the parent of all kernel threads."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Survey:
    """What a look has found: the CPU time of each process, by pid and start.

    In clock ticks; `at_ticks` is the moment of the look since boot, as the start of a process is.
    """

    at_ns: int
    at_ticks: int
    cpu_ticks: Mapping[tuple[int, int], int]

    def used_since(self, pid: int, stat: ProcessStat) -> int:
        """Clock ticks of CPU since this look; none where an older process was not seen then, as nobody knows."""
        before = self.cpu_ticks.get((pid, stat.start_ticks))
        if before is None:
            before = 0 if stat.start_ticks >= self.at_ticks else stat.cpu_ticks
        return max(0, stat.cpu_ticks - before)


def _boot_ns() -> int:
    """Nanoseconds since boot, as the kernel counts them for the start of a process."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class OtherProcesses(OnlyAtLooks):
    """CPU time of all processes but the servers' between two looks, by the names of their commands.

    Nothing but the name that the kernel keeps is told, at most 15 bytes: no arguments, no pid, no user. Kernel
    threads go by the beginning of their names: all of `kworker/3:1-events` are `kworker`. A process that ended
    between two looks is missed.
    """

    quantities = (
        Quantity(
            "host.other_processes_ratio",
            "CPUs used by all processes that are no part of a server: 1 is one whole CPU.",
            "/proc/PID/stat of all processes",
            "host.survey_interval_s",
            target="node",
            cost="12 us a process",
        ),
        Quantity(
            "host.other_command_ratio",
            "CPUs used by the other processes of one name, for the five names that used most.",
            "/proc/PID/stat of all processes",
            "host.survey_interval_s",
            ("command",),
            target="node",
            cost="in the reading of other_processes_ratio",
        ),
    )

    def __init__(self, boot_ns: Callable[[], int] = _boot_ns) -> None:
        self._boot_ns = boot_ns
        self._last: _Survey | None = None

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Go through all processes."""
        serving = {(process.pid, process.start_ticks) for process in scene.processes}
        last, at_ticks = self._last, self._boot_ns() * _TICKS_PER_S // 10**9
        cpu_ticks: dict[tuple[int, int], int] = {}
        by_command: dict[str, int] = {}
        for pid in scene.tree.processes():
            stat = scene.tree.stat(pid)
            if stat is None:
                continue
            key = pid, stat.start_ticks
            cpu_ticks[key] = stat.cpu_ticks
            if last is not None and key not in serving:
                command = _command(stat.name, kernel=_KERNEL_THREADS in {pid, stat.parent_pid})
                by_command[command] = by_command.get(command, 0) + last.used_since(pid, stat)
        self._last = _Survey(now_ns, at_ticks, cpu_ticks)
        if last is None or now_ns <= last.at_ns:
            return
        scale = 1e9 / (_TICKS_PER_S * (now_ns - last.at_ns))
        yield Reading(NODE, "host.other_processes_ratio", sum(by_command.values()) * scale)
        for command, ticks in heapq.nlargest(COMMANDS_MAX, by_command.items(), key=lambda item: item[1]):
            if ticks * scale >= _LEAST_RATIO:
                yield Reading(NODE, "host.other_command_ratio", ticks * scale, (("command", command),))

    def close(self) -> None:
        """Forget the last look."""
        self._last = None


def _command(name: str, *, kernel: bool) -> str:
    """A name fit for a label: printable, and one for all kernel threads of a kind."""
    if kernel:
        name = name.partition("/")[0]
    return "".join(char if char.isprintable() else "?" for char in name) or "?"
