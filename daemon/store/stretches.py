"""What the store has of a stretch of time: cycles, levels and readings, added up and thinned out by the database."""

import json
import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, and_, func, select, true
from sqlalchemy.orm import InstrumentedAttribute

from cyclewatch.collectors.records import NODE, STAGES
from cyclewatch.daemon.store.models import LevelRow, RunRow, SampleRow, SeriesRow, WindowRow
from cyclewatch.daemon.store.run_rows import run_of
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.attribution import StageMeans, Trace
from cyclewatch.detectors.load.speed_of_light import step_load
from cyclewatch.detectors.phases import Floats, Integers, Phase

LEVEL = "cycles.log_ratio"
"""Name of the trace that is a judged series itself: log(measured / expected) a window."""

_LOAD = ("batch_size", "new_tokens", "kv_tokens")
_POINTS_MAX = 60
_FINEST_NS = 10**9


@dataclass(frozen=True)
class Stretch:
    """Time of one server, from `from_ns` up to but not including `to_ns` (UTC).

    `fingerprint` is the configuration that it ran in, `node` where; None for whatever ran, and wherever.
    """

    target: str
    from_ns: int
    to_ns: int
    fingerprint: str | None = None
    node: str | None = None

    def runs(self) -> tuple[ColumnElement[bool], ...]:
        """What holds of its runs."""
        return (
            RunRow.target == self.target,
            true() if self.fingerprint is None else RunRow.fingerprint == self.fingerprint,
            self.on_node(RunRow.node),
        )

    def holds(self, column: InstrumentedAttribute[int]) -> ColumnElement[bool]:
        """What holds of an instant in it."""
        return and_(column >= self.from_ns, column < self.to_ns)

    def is_of_same_server(self, other: "Stretch") -> bool:
        """Whether both are of one server, as far as is known."""
        return self.target == other.target and self.node == other.node

    def on_node(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """What holds of the node of a row."""
        return true() if self.node is None else column == self.node


def ranks_in(connection: Connection, stretch: Stretch) -> set[str]:
    """All ranks that ran in a stretch."""
    # By time alone, for which there is an index: with the run, the database would walk through all of its windows.
    seen = select(WindowRow.run_id, WindowRow.rank).where(stretch.holds(WindowRow.start_ns)).distinct()
    runs = set(connection.execute(select(RunRow.id).where(*stretch.runs())).scalars())
    return {rank for run_id, rank in connection.execute(seen) if run_id in runs}


def cycles_in(
    connection: Connection, stretch: Stretch, ranks: Collection[str], phase: str
) -> dict[str, list[StageMeans]]:
    """Mean cycles of each rank by load bucket; of all runs of the stretch, so that it reaches back over a restart."""
    cycle_ns = sum((getattr(WindowRow, f"{stage}_ns") for stage in STAGES[1:]), WindowRow.schedule_ns)
    time_ns = WindowRow.count * cycle_ns
    sampled = WindowRow.on_cpu_ratio.is_not(None)
    query = (
        select(
            WindowRow.rank,
            WindowRow.bucket,
            func.sum(WindowRow.count),
            func.sum(time_ns * WindowRow.on_cpu_ratio) / func.nullif(func.sum(time_ns).filter(sampled), 0),
            *(func.sum(WindowRow.count * getattr(WindowRow, name)) for name in _LOAD),
            *(func.sum(WindowRow.count * getattr(WindowRow, f"{stage}_ns")) for stage in STAGES),
        )
        .join(RunRow, RunRow.id == WindowRow.run_id)
        .where(
            *stretch.runs(),
            WindowRow.rank.in_(ranks),
            WindowRow.phase == phase,
            stretch.holds(WindowRow.start_ns),
        )
        .group_by(WindowRow.rank, WindowRow.bucket)
        .order_by(WindowRow.rank, WindowRow.bucket)
    )
    found: dict[str, list[StageMeans]] = {rank: [] for rank in ranks}
    for rank, bucket, count, on_cpu_ratio, *totals in connection.execute(query):
        load, stages = totals[: len(_LOAD)], totals[len(_LOAD) :]
        mean = StageMeans(
            bucket=bucket,
            count=int(count),
            stages_ns=tuple(float(total_ns) / count for total_ns in stages),
            on_cpu_ratio=math.nan if on_cpu_ratio is None else float(on_cpu_ratio),
            load=step_load(Phase(phase), *(float(total) / count for total in load)),
        )
        found[rank].append(mean)
    return found


def levels_in(connection: Connection, rank: str, phase: str, before: Stretch, after: Stretch) -> Trace | None:
    """The levels of both stretches; None where no window was judged."""
    rows: list[tuple[int, float]] = []
    for stretch in (before, after):
        query = (
            select(LevelRow.start_ns, LevelRow.log_ratio)
            .join(RunRow, RunRow.id == LevelRow.run_id)
            .where(
                *stretch.runs(),
                LevelRow.rank == rank,
                LevelRow.phase == phase,
                stretch.holds(LevelRow.start_ns),
            )
            .order_by(LevelRow.start_ns)
        )
        moved_ns = after.from_ns - stretch.to_ns if stretch is before else 0
        rows += [
            (start_ns + moved_ns, log_ratio)
            for start_ns, log_ratio in connection.execute(query)
            if log_ratio is not None
        ]
    return Trace(LEVEL, {"rank": rank, "phase": phase}, *_columns(rows)) if rows else None


def traces_in(connection: Connection, before: Stretch, after: Stretch) -> list[Trace]:
    """All readings of the servers and their nodes, as means over steps of time."""
    longest_ns = max(before.to_ns - before.from_ns, after.to_ns - after.from_ns)
    step_ns = max(-(-longest_ns // _POINTS_MAX), _FINEST_NS)
    found: dict[tuple[bool, str, str], list[tuple[int, float]]] = defaultdict(list)
    for stretch in (before, after):
        boundary_ns = stretch.to_ns if stretch is before else stretch.from_ns
        moved_ns = after.from_ns - boundary_ns
        series = _series(connection, stretch)
        for number, at_ns, value in connection.execute(_means(stretch, series, boundary_ns, step_ns)):
            found[series[number]].append((at_ns + moved_ns, value))
    return [
        Trace(name, json.loads(labels), *_columns(found[of_node, name, labels]))
        for of_node, name, labels in sorted(found)
    ]


def _series(connection: Connection, stretch: Stretch) -> dict[int, tuple[bool, str, str]]:
    """Number of each series of a server and of its node: whether it is the node's, its name and its labels, as text."""
    query = select(SeriesRow.id, SeriesRow.target, SeriesRow.name, SeriesRow.labels).where(
        SeriesRow.target.in_((stretch.target, NODE)), stretch.on_node(SeriesRow.node)
    )
    return {number: (of == NODE, name, json.dumps(labels)) for number, of, name, labels in connection.execute(query)}


def _means(stretch: Stretch, series: Collection[int], boundary_ns: int, step_ns: int) -> Select[Any]:
    """Series, time of the first reading and mean, by series and steps of time that are counted from the boundary."""
    step = (SampleRow.at_ns - boundary_ns) // step_ns
    return (
        select(SampleRow.series_id, func.min(SampleRow.at_ns), func.avg(SampleRow.value))
        .where(
            SampleRow.series_id.in_(series),
            SampleRow.at_ns >= stretch.from_ns,
            SampleRow.at_ns < stretch.to_ns,
        )
        .group_by(SampleRow.series_id, step)
        .order_by(SampleRow.series_id, step)
    )


def _columns(rows: list[tuple[int, float]]) -> tuple[Integers, Floats]:
    times, values = zip(*rows, strict=True)
    return np.array(times, np.int64), np.array(values, np.float64)


def run_at(connection: Connection, stretch: Stretch, *, last: bool) -> Run | None:
    """The last or the first run that was seen in a stretch."""
    order = RunRow.started_at_ns.desc() if last else RunRow.started_at_ns
    query = (
        select(RunRow.__table__)
        .where(*stretch.runs(), RunRow.started_at_ns < stretch.to_ns, RunRow.last_seen_ns >= stretch.from_ns)
        .order_by(order)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else run_of(row)
