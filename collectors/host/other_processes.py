"""Who else uses the CPUs: the processes that are no part of a server."""

import heapq
import os
from collections.abc import Iterator

from cyclewatch.collectors.host.source import OnlyAtLooks, Scene
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Reading, Sample

COMMANDS_MAX = 5

_LEAST_RATIO = 0.01
"""Of one CPU; what uses less is not worth a series."""
_KERNEL_THREADS = 2
"""The pid of the parent of all kernel threads."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, int], int] | None = None
        self._at_ns = 0

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Go through all processes."""
        serving = {(process.pid, process.start_ticks) for process in scene.processes}
        before, since_ns = self._ticks, now_ns - self._at_ns
        self._ticks, self._at_ns = {}, now_ns
        by_command: dict[str, int] = {}
        for pid in scene.tree.processes():
            stat = scene.tree.stat(pid)
            if stat is None:
                continue
            key = pid, stat.start_ticks
            self._ticks[key] = stat.cpu_ticks
            if before is not None and key not in serving:
                command = _command(stat.name, kernel=_KERNEL_THREADS in {pid, stat.parent_pid})
                used = max(0, stat.cpu_ticks - before.get(key, 0))
                by_command[command] = by_command.get(command, 0) + used
        if before is None or since_ns <= 0:
            return
        scale = 1e9 / (_TICKS_PER_S * since_ns)
        yield Reading(NODE, "host.other_processes_ratio", sum(by_command.values()) * scale)
        for command, ticks in heapq.nlargest(COMMANDS_MAX, by_command.items(), key=lambda item: item[1]):
            if ticks * scale >= _LEAST_RATIO:
                yield Reading(NODE, "host.other_command_ratio", ticks * scale, (("command", command),))

    def close(self) -> None:
        """Forget the last look."""
        self._ticks = None


def _command(name: str, *, kernel: bool) -> str:
    """A name fit for a label: printable, and one for all kernel threads of a kind."""
    if kernel:
        name = name.partition("/")[0]
    return "".join(char if char.isprintable() else "?" for char in name) or "?"
