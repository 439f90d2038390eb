"""The seam every collector fits: a name, an interval, and `collect`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Sample


@dataclass(frozen=True)
class Now:
    """One reading of both clocks: monotonic for intervals, wall (UTC) for instants."""

    monotonic_ns: int
    wall_ns: int


class Collector(Protocol):
    """Reads one source. Keeps its own state between calls; is never called twice at a time."""

    @property
    def name(self) -> str:
        """Short name, unique in the registry."""
        ...

    @property
    def interval_s(self) -> float:
        """Seconds between two calls."""
        ...

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every kind of reading it can give, and no reading is of another kind."""
        ...

    def collect(self, now: Now) -> Iterable[Sample]:
        """What the source gives at `now`; `NoData` where it has nothing to say.

        Raises:
            Exception: whatever went wrong; the runner counts and reports it, and calls again at the next
            interval.
        """
        ...

    def close(self) -> None:
        """Give back what is held open."""
        ...
