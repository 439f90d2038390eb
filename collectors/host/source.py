"""The seam every source of the host collector fits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from cyclewatch.collectors.host.groups import Groups
from cyclewatch.collectors.processes import ProcessTree, ServerProcess
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample


@dataclass(frozen=True)
class Scene:
    """What a look around has found: the processes of all servers, the tree that they stand in, their control groups."""

    processes: tuple[ServerProcess, ...]
    tree: ProcessTree
    groups: Groups

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
        """Find out what there is to read, and read it for the first time; tell what cannot be read.

        Raises:
            OSError: it cannot even look; the next look tries again.
        """
        ...

    def advance(self, now_ns: int) -> Iterable[Reading]:
        """Read what the last look has found; what has gone or makes no sense is passed over."""
        ...

    def close(self) -> None:
        """Close all files; the next look starts anew."""
        ...


class OnlyAtLooks:
    """What sources have in common that read nothing between looks."""

    vanished = False

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Nothing between looks."""
        del now_ns
        yield from ()
