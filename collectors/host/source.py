"""The seam every source of the host collector fits, and what sources have in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cyclewatch.collectors.processes import ProcessTree, ServerProcess
from cyclewatch.collectors.procfs import FormatError
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Failure, Reading, Sample

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
"""Target and labels."""

PROCESS_LABELS = ("process", "rank")


@dataclass(frozen=True)
class Scene:
    """What a look around has found: the processes of all servers, and the tree that they stand in."""

    processes: tuple[ServerProcess, ...]
    tree: ProcessTree

    @property
    def schedulers(self) -> tuple[ServerProcess, ...]:
        """The scheduler processes, at most one for each rank of a target."""
        return tuple(process for process in self.processes if process.role == "scheduler")


class Source(Protocol):
    """One source of readings. Keeps what it holds open between calls; never called twice at a time.

    What it gives in `look` it reads anew at the pace of looks; what it gives in `advance` at that of samples.
    """

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every kind of reading it can give."""
        ...

    @property
    def vanished(self) -> bool:
        """Whether something it read is gone since the last look, so that the next one is due."""
        ...

    def look(self, scene: Scene, now_ns: int) -> Iterable[Sample]:
        """Find out what there is to read, and read it for the first time; tell what cannot be read."""
        ...

    def advance(self, now_ns: int) -> Iterable[Reading]:
        """Read what the last look has found; what has gone or makes no sense is passed over."""
        ...

    def close(self) -> None:
        """Close all files; the next look starts anew."""
        ...


def series(process: ServerProcess) -> Series:
    """Target and labels of a process's readings; processes of one role without ranks share them."""
    rank = (("rank", process.rank),) if process.rank else ()
    return process.target, (("process", process.role), *rank)


def unreadable(path: Path, error: OSError | FormatError) -> Failure:
    """One sentence about a file that cannot be read, with the mend."""
    if isinstance(error, FormatError):
        reason = f"{error}: is the kernel's own file mounted there?"
    elif isinstance(error, PermissionError):
        reason = "permission denied: run cyclewatch as the server's user, or mount /proc without hidepid"
    elif isinstance(error, FileNotFoundError):
        reason = "no such file: is the host's file system mounted there, and do host.proc and host.sys name it?"
    else:
        reason = error.strerror or type(error).__name__
    return Failure(str(path), f"{path}: {reason}")
