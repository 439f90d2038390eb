"""The cycles that are stored of a stretch of time, however long it is: at most so many steps as anyone can tell apart.

A stretch of up to an hour comes window by window. Of a longer one neighbouring windows are added up while they are
read, so that memory does not grow with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import ColumnElement, Connection, func, select

from cyclewatch.collectors.records import STAGES
from cyclewatch.daemon.store.models import RunRow, WindowRow
from cyclewatch.daemon.store.rollup import HOUR_NS, MINUTE_NS
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.sketch import merge

_STEPS = 1000
_ROWS_AT_ONCE = 1000
_SKETCHES_AT_ONCE = 64
_SECOND_NS = 10**9


@dataclass(frozen=True)
class Cell:
    """The cycles of one load bucket in one step: how many, mean and stages in nanoseconds, and their sketch."""

    start_ns: int
    bucket: int
    count: int
    mean_ns: float
    stages_ns: Floats
    sketch: bytes | None


@dataclass(frozen=True)
class StoredCycles:
    """The cells of a rank by phase, in order of time; and how many windows they are of, by their length.

    `step_ns` is how long a cell is at least.
    """

    cells: Mapping[str, Sequence[Cell]]
    windows: Mapping[int, int]
    step_ns: int

    @property
    def is_coarse(self) -> bool:
        """Whether some of it is kept by the minute or by the hour."""
        return any(length_ns >= MINUTE_NS for length_ns in self.windows)

    def __str__(self) -> str:
        """What it is made of, in words: "720 of 5 s, 24 by the hour"."""
        names = {MINUTE_NS: "by the minute", HOUR_NS: "by the hour"}
        lengths = [
            f"{count:,} {names.get(length_ns, f'of {length_ns / _SECOND_NS:g} s')}"
            for length_ns, count in sorted(self.windows.items())
        ]
        steps = (
            f", in steps of {self.step_ns / _SECOND_NS:,.0f} s"
            if self.step_ns > min(self.windows, default=self.step_ns)
            else ""
        )
        return ", ".join(lengths) + steps


def stored_cycles(connection: Connection, stretch: Stretch, rank: str) -> StoredCycles:
    """The cycles of one rank in a stretch of time.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    lengths = (
        select(WindowRow.length_ns, func.count(WindowRow.start_ns.distinct()))
        .join(RunRow, RunRow.id == WindowRow.run_id)
        .where(*_of(stretch, rank))
        .group_by(WindowRow.length_ns)
    )
    windows = {int(length_ns): int(count) for length_ns, count in connection.execute(lengths)}
    step_ns = -(-(stretch.to_ns - stretch.from_ns) // _STEPS)
    sums: dict[tuple[str, int, int], _Sum] = {}
    for phase, bucket, cell in _rows(connection, stretch, rank):
        step = (cell.start_ns - stretch.from_ns) // step_ns
        sums.setdefault((phase, step, bucket), _Sum()).add(cell)
    cells: dict[str, list[Cell]] = {}
    for (phase, step, bucket), whole in sorted(sums.items()):
        cells.setdefault(phase, []).append(whole.cell(stretch.from_ns + step * step_ns, bucket))
    return StoredCycles(cells, windows, step_ns)


def _rows(connection: Connection, stretch: Stretch, rank: str) -> Iterator[tuple[str, int, Cell]]:
    """Phase, bucket and cell of each window, in any order, never all at once."""
    row = WindowRow
    query = (
        select(
            row.phase,
            row.start_ns,
            row.bucket,
            row.count,
            row.mean_ns,
            row.sketch,
            *(getattr(row, f"{stage}_ns") for stage in STAGES),
        )
        .join(RunRow, RunRow.id == row.run_id)
        .where(*_of(stretch, rank))
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    for phase, start_ns, bucket, count, mean_ns, sketch, *stages_ns in connection.execute(query):
        yield phase, bucket, Cell(start_ns, bucket, count, mean_ns, np.array(stages_ns, np.float64), sketch)


def _of(stretch: Stretch, rank: str) -> tuple[ColumnElement[bool], ...]:
    return (
        *stretch.runs(),
        WindowRow.rank == rank,
        WindowRow.start_ns >= stretch.from_ns,
        WindowRow.start_ns < stretch.to_ns,
    )


@dataclass
class _Sum:
    """Cells of one bucket, added up."""

    count: int = 0
    time_ns: float = 0.0
    stages_ns: Floats = field(default_factory=lambda: np.zeros(len(STAGES)))
    sketches: list[bytes] | None = field(default_factory=list)
    """None where one has none: releases before schema 0002 stored none."""

    def add(self, cell: Cell) -> None:
        self.count += cell.count
        self.time_ns += cell.count * cell.mean_ns
        self.stages_ns += cell.count * cell.stages_ns
        if cell.sketch is None:
            self.sketches = None
        if self.sketches is not None and cell.sketch is not None:
            self.sketches.append(cell.sketch)
            if len(self.sketches) >= _SKETCHES_AT_ONCE:
                self.sketches = [merge(self.sketches)]

    def cell(self, start_ns: int, bucket: int) -> Cell:
        count = max(self.count, 1)
        sketches = self.sketches
        if sketches is not None and len(sketches) > 1:
            sketches = [merge(sketches)]
        sketch = sketches[0] if sketches else None
        return Cell(start_ns, bucket, self.count, self.time_ns / count, self.stages_ns / count, sketch)
