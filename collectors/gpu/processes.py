"""Which process uses a GPU: NVML gives process numbers of the host, which must be found again as a server's."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclewatch.collectors.discovery import Discovery, SchedulerProcess
from cyclewatch.collectors.gpu.calls import GpuCalls
from cyclewatch.collectors.gpu.device import Device
from cyclewatch.collectors.gpu.door import Handle, NvmlDoor
from cyclewatch.collectors.gpu.memory import BYTES_MAX
from cyclewatch.collectors.processes import ProcessTree, namespace_numbers, process_status, server_processes
from cyclewatch.collectors.records import NODE, Reading

_PERCENT = 100
_YEAR_2100_US = 4_102_444_800_000_000
_AHEAD_US = 5_000_000
"""A sample that was taken so far in the future was taken before the wall clock was put back."""


@dataclass(frozen=True)
class Owner:
    """Whose a process is."""

    target: str
    role: str
    rank: str


class Owners:
    """Finds owners of processes, for one look at all GPUs.

    `proc` shows processes by the numbers of some pid namespace. Best it is the host's, as NVML's numbers are. A
    scheduler in a container has another number there than its ring says; the kernel tells both in `NSpid`.
    """

    def __init__(self, schedulers: Sequence[SchedulerProcess], proc: Path) -> None:
        self._proc = proc
        self._schedulers = schedulers
        self._known = {
            process.pid: Owner(process.target, process.role, process.rank)
            for process in server_processes(schedulers, ProcessTree(proc))
        }
        self._asked = False
        self._seen = False

    def problem(self) -> str:
        """A sentence where processes were asked for, and none of them can be seen here; else nothing."""
        if self._seen or not self._asked or not self._schedulers:
            return ""
        return (
            f"no process that NVML names is visible under {self._proc}: NVML gives the host's numbers, so run "
            "cyclewatch in the host's pid namespace, or mount the host's proc and set host.proc"
        )

    def of(self, pid: int) -> Owner | None:
        """Whose the process with this number on the host is; None where it is of no known server."""
        self._asked = True
        own = self._known.get(pid)
        if own is not None:
            self._seen = True
            return own
        number, parent = self._own_numbers(pid)
        for scheduler in self._schedulers:
            if number == scheduler.pid and parent == scheduler.parent_pid:
                return Owner(scheduler.target, "scheduler", scheduler.rank)
        return None

    def _own_numbers(self, pid: int) -> tuple[int, int]:
        """What a process and its parent call themselves in their innermost namespaces; -1 where that is not told."""
        status = process_status(self._proc, pid)
        self._seen = self._seen or bool(status)
        parent = status.get("PPid", "")
        return _innermost(status), _innermost(process_status(self._proc, int(parent)) if parent.isdecimal() else {})


def _innermost(status: Mapping[str, str]) -> int:
    return (-1, *namespace_numbers(status))[-1]


class GpuProcesses:
    """Memory and use of each GPU by process. The list is the slowest call of all: 4.5 ms on one GPU (MangoHud)."""

    def __init__(
        self, door: NvmlDoor, discovery: Discovery, proc: Path, wall: Callable[[], int] = time.time_ns
    ) -> None:
        self._door = door
        self._discovery = discovery
        self._proc = proc
        self._wall = wall
        self._seen_us: dict[int, int] = {}

    def owners(self) -> Owners:
        """Who is who at present."""
        return Owners(self._discovery.schedulers(), self._proc)

    def read(self, device: Device, owners: Owners) -> Iterator[Reading]:
        """Readings of every server's processes on this GPU, and of all others together.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        gpu = str(device.index)
        listed = device.calls.ask("processes", self._door.processes, device.handle)
        memory: dict[Owner, int] = {}
        others = 0
        for pid, used in listed or ():
            owner = owners.of(pid)
            if not 0 <= used <= BYTES_MAX:
                continue
            if owner is None:
                others += used
            else:
                memory[owner] = memory.get(owner, 0) + used
        if listed is not None:
            yield Reading(NODE, "gpu.other_memory_bytes", float(others), (("gpu", gpu),))
        for owner, used in memory.items():
            yield Reading(owner.target, "gpu.process_memory_bytes", float(used), _labels(gpu, owner))
        for owner, share in self._shares(device.calls, device.handle, device.index, owners).items():
            yield Reading(owner.target, "gpu.process_sm_ratio", share, _labels(gpu, owner))

    def _shares(self, calls: GpuCalls, gpu: Handle, index: int, owners: Owners) -> dict[Owner, float]:
        since_us = self._seen_us[index] = self._since_us(index)
        samples = calls.first(
            ("process_use", self._door.process_use, gpu, since_us),
            ("process_use_v1", self._door.process_use_v1, gpu, since_us),
        )
        by_pid: dict[int, list[int]] = {}
        for pid, at_us, sm in samples or ():
            if since_us < at_us < _YEAR_2100_US and 0 <= sm <= _PERCENT:
                by_pid.setdefault(pid, []).append(sm)
                self._seen_us[index] = max(self._seen_us[index], at_us)
        shares: dict[Owner, float] = {}
        for pid, values in by_pid.items():
            owner = owners.of(pid)
            if owner is not None:
                shares[owner] = min(shares.get(owner, 0.0) + sum(values) / len(values) / _PERCENT, 1.0)
        return shares

    def _since_us(self, index: int) -> int:
        """When the last sample seen was taken; 0, for all of them, where there is none yet or the clock was put back.

        NVML stamps samples with the wall clock, and gives those with later stamps only.
        """
        seen_us = self._seen_us.get(index, 0)
        return seen_us if seen_us <= self._wall() // 1000 + _AHEAD_US else 0


def _labels(gpu: str, owner: Owner) -> tuple[tuple[str, str], ...]:
    return (("gpu", gpu), ("process", owner.role), ("rank", owner.rank))
