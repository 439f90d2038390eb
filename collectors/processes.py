"""Which processes serve: the schedulers known from their rings, and the rest of each server around them."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclewatch.collectors.discovery import SchedulerProcess
from cyclewatch.collectors.procfs import FormatError, ProcessStat, parse_children, parse_stat

# SGLang names its processes; the kernel keeps the first 15 bytes of a name.
_DETOKENIZER = "sglang::detoken"
_DATA_PARALLEL_CONTROLLER = "sglang::data_pa"
_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class ServerProcess:
    """One process of a server. `start_ticks` tells it from a later one with the same pid."""

    target: str
    role: str
    rank: str
    pid: int
    start_ticks: int


class ProcessTree:
    """Processes as they are at the moment of the call, under `proc`."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._parents: dict[int, list[int]] | None = None

    def stat(self, pid: int) -> ProcessStat | None:
        """Name, parent and start of a process; None where there is none, or none that may be seen."""
        try:
            return parse_stat(_content(f"{self._proc}/{pid}/stat"))
        except (OSError, FormatError):
            return None

    def processes(self) -> list[int]:
        """All process ids.

        Raises:
            OSError: they cannot be listed.
        """
        return _numbers(str(self._proc))

    def threads(self, pid: int) -> list[int]:
        """Thread ids of a process, its main thread's (equal to `pid`) among them.

        Raises:
            OSError: the process is gone, or must not be looked at.
        """
        return _numbers(f"{self._proc}/{pid}/task")

    def children(self, pid: int) -> list[int]:
        """Process ids of the children of all threads of a process.

        Kernels without CONFIG_PROC_CHILDREN do not tell; there the parents of all processes are looked at,
        once a tree.
        """
        try:
            threads = self.threads(pid)
            (self._proc / f"{pid}/task/{pid}/children").stat()
        except OSError:
            return self._scan().get(pid, [])
        found: list[int] = []
        for thread in threads:
            with contextlib.suppress(OSError, FormatError):
                found += parse_children(_content(f"{self._proc}/{pid}/task/{thread}/children"))
        return found

    def _scan(self) -> dict[int, list[int]]:
        if self._parents is None:
            self._parents = {}
            with contextlib.suppress(OSError):
                for pid in self.processes():
                    stat = self.stat(pid)
                    if stat is not None:
                        self._parents.setdefault(stat.parent_pid, []).append(pid)
        return self._parents


def server_processes(schedulers: Sequence[SchedulerProcess], tree: ProcessTree) -> Iterator[ServerProcess]:
    """The processes of all servers, each once: schedulers first, then the HTTP servers, then the others.

    A scheduler counts only where its parent is the one that its ring names: in another pid namespace the same
    number is some other process, whose times would be nonsense here.
    """
    mains: dict[int, str] = {}
    others: dict[int, tuple[str, ProcessStat]] = {}
    given = set()
    for scheduler in schedulers:
        stat = tree.stat(scheduler.pid)
        if stat is None or stat.parent_pid != scheduler.parent_pid or scheduler.pid in given:
            continue
        given.add(scheduler.pid)
        yield ServerProcess(scheduler.target, "scheduler", scheduler.rank, scheduler.pid, stat.start_ticks)
        main = scheduler.parent_pid
        parent = tree.stat(main)
        if parent is not None and parent.name == _DATA_PARALLEL_CONTROLLER:
            others[main] = (scheduler.target, parent)
            main = parent.parent_pid
        mains[main] = scheduler.target
    given |= mains.keys()
    for main, target in mains.items():
        stat = tree.stat(main)
        if stat is None:
            continue
        yield ServerProcess(target, "main", "", main, stat.start_ticks)
        for child in tree.children(main):
            child_stat = tree.stat(child)
            if child_stat is not None:
                others[child] = (target, child_stat)
    for pid, (target, stat) in others.items():
        if pid not in given:
            role = "detokenizer" if stat.name == _DETOKENIZER else "other"
            yield ServerProcess(target, role, "", pid, stat.start_ticks)


def process_status(proc: Path, pid: int) -> dict[str, str]:
    """`/proc/PID/status` by the names of its lines; empty where the process is gone or must not be looked at."""
    try:
        lines = _content(f"{proc}/{pid}/status").decode(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def own_pid_namespace(proc: Path) -> str:
    """The pid namespace of this process; empty where `proc` has the pids of another one, as the host's in a container.

    Raises:
        OSError: `proc` is no such directory.
    """
    is_ours = (proc / "self").readlink() == Path(str(os.getpid()))
    return str((proc / "self/ns/pid").stat().st_ino) if is_ours else ""


def sees_all(proc: Path) -> bool:
    """Whether processes of other users are there at all: `hidepid` hides them, and with them the first one."""
    return (proc / "1").exists()


def namespace_numbers(status: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of a process in the pid namespaces it is in, its own last; empty where its status does not tell."""
    return tuple(int(number) for number in status.get("NSpid", "").split() if number.isdecimal())


# A node has thousands of processes and threads: pathlib would take longer over their names than the kernel over
# their files.


def _numbers(directory: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(directory) if name.isdecimal())  # noqa: PTH208 (see above)


def _content(path: str) -> bytes:
    content = b""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while piece := os.read(fd, _BYTES_MAX):  # the kernel gives long lists in pieces of a page
            content += piece
    finally:
        os.close(fd)
    return content
