"""What a timeline is drawn from: any range of time, as a bounded number of points.

Up to a day it is drawn from the windows, which lie by the minute or by the hour where they are old. A longer one is
drawn from the hours, and from windows only where these have not been summed up yet.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, func, select, union_all
from sqlalchemy.orm import InstrumentedAttribute

from cyclewatch.collectors.records import NODE
from cyclewatch.daemon.store.hours import HOURS
from cyclewatch.daemon.store.models import HourRow, LevelRow, RollupRow, RunRow, SampleRow, SeriesRow, WindowRow
from cyclewatch.daemon.store.rollup import HOUR_NS
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.detectors.attribution import Trace

_SHORT_NS = 24 * HOUR_NS
_FINEST_NS = 10**9
_MEANS = ("mean_ns", "p50_ns", "p99_ns")


@dataclass(frozen=True)
class CyclePoint:
    """The cycles of one step of a timeline, which begins at `start_ns` (UTC), in nanoseconds.

    `p50_ns` and `p99_ns` are the means of the quantiles of the windows, weighted by cycles. `log_ratio` is
    log(measured / expected), NaN where nothing was judged.
    """

    start_ns: int
    count: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    log_ratio: float


@dataclass(frozen=True)
class _Steps:
    """The steps of a timeline, and the instant before which it is drawn from the hours (UTC nanoseconds)."""

    from_ns: int
    to_ns: int
    length_ns: int
    hours_until_ns: int

    def of(self, at_ns: InstrumentedAttribute[int]) -> ColumnElement[int]:
        """The number of the step that an instant is in."""
        return ((at_ns - self.from_ns) // self.length_ns).label("step")

    def begin_ns(self, step: int) -> int:
        return self.from_ns + int(step) * self.length_ns


def cycles_over(connection: Connection, stretch: Stretch, rank: str, phase: str, points: int) -> list[CyclePoint]:
    """The cycles of a rank and phase over a stretch of time, in at most `points` steps; none for an empty step.

    Steps are equally long: of a stretch of more than a day whole hours of UTC. What is kept by the hour alone stands at
    the beginning of its hour.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    steps = _steps(connection, stretch, points)
    judged = {
        row.step: row.log_ratio
        for row in connection.execute(_mean_of(_levels(stretch, rank, phase, steps), "log_ratio"))
    }
    found = []
    for row in connection.execute(_mean_of(_cycles(stretch, rank, phase, steps), *_MEANS, longest="max_ns")):
        log_ratio = judged.get(row.step)
        found.append(
            CyclePoint(
                start_ns=steps.begin_ns(row.step),
                count=int(row.weight),
                mean_ns=row.mean_ns,
                p50_ns=row.p50_ns,
                p99_ns=row.p99_ns,
                max_ns=row.max_ns,
                log_ratio=math.nan if log_ratio is None else log_ratio,
            )
        )
    return found


def readings_over(connection: Connection, stretch: Stretch, name: str, points: int) -> list[Trace]:
    """All readings of one quantity, of a server and of its node, as means over at most `points` steps.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    steps = _steps(connection, stretch, points)
    named = select(SeriesRow.id, SeriesRow.labels).where(
        SeriesRow.target.in_((stretch.target, NODE)), SeriesRow.name == name, stretch.on_node(SeriesRow.node)
    )
    labels = {number: of for number, of in connection.execute(named.order_by(SeriesRow.key))}  # noqa: C416 (rows are not tuples)
    each = (
        select(SampleRow.series_id, steps.of(SampleRow.at_ns), SampleRow.value)
        .where(SampleRow.series_id.in_(labels), SampleRow.at_ns >= steps.from_ns, SampleRow.at_ns < steps.to_ns)
        .subquery()
    )
    means = (
        select(each.c.series_id, each.c.step, func.avg(each.c.value))
        .group_by(each.c.series_id, each.c.step)
        .order_by(each.c.series_id, each.c.step)
    )
    found: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for number, step, value in connection.execute(means):
        found[number].append((steps.begin_ns(step), value))
    return [_trace(name, of, found[number]) for number, of in labels.items() if number in found]


def _trace(name: str, labels: dict[str, str], rows: Sequence[tuple[int, float]]) -> Trace:
    times, values = zip(*rows, strict=True)
    return Trace(name, labels, np.array(times, np.int64), np.array(values, np.float64))


def _steps(connection: Connection, stretch: Stretch, points: int) -> _Steps:
    """Steps over a stretch; of a long one they are whole hours."""
    from_ns, to_ns = stretch.from_ns, stretch.to_ns
    if to_ns - from_ns <= _SHORT_NS:
        return _Steps(from_ns, to_ns, max(-(-(to_ns - from_ns) // points), _FINEST_NS), from_ns)
    from_ns -= from_ns % HOUR_NS
    length_ns = -(-(to_ns - from_ns) // (points * HOUR_NS)) * HOUR_NS
    until_ns = connection.execute(select(RollupRow.until_ns).where(RollupRow.name == HOURS)).scalar() or 0
    # The last hour may be one of which the stretch has only the beginning: that comes from windows.
    return _Steps(from_ns, to_ns, length_ns, min(until_ns, to_ns - to_ns % HOUR_NS))


def _cycles(stretch: Stretch, rank: str, phase: str, steps: _Steps) -> list[Select[Any]]:
    """The hours or windows of a timeline: step, weight, and what their means and the longest are taken of."""
    return [
        select(
            steps.of(model.start_ns),
            model.count.label("weight"),
            model.max_ns,
            *(getattr(model, one) for one in _MEANS),
        ).where(*_of_series(model, stretch, rank, phase), *between)
        for model, between in _sources(steps, WindowRow)
    ]


def _levels(stretch: Stretch, rank: str, phase: str, steps: _Steps) -> list[Select[Any]]:
    """The same of the levels."""
    return [
        select(
            steps.of(model.start_ns),
            (model.count if model is HourRow else model.known).label("weight"),
            model.log_ratio,
        ).where(*_of_series(model, stretch, rank, phase), *between, model.log_ratio.is_not(None))
        for model, between in _sources(steps, LevelRow)
    ]


def _sources(
    steps: _Steps, fine: type[WindowRow] | type[LevelRow]
) -> list[tuple[Any, tuple[ColumnElement[bool], ...]]]:
    """The tables that a timeline is drawn from, and which time of each."""
    until_ns = max(steps.hours_until_ns, steps.from_ns)
    sources: list[tuple[Any, tuple[ColumnElement[bool], ...]]] = [
        (fine, (fine.start_ns >= until_ns, fine.start_ns < steps.to_ns))
    ]
    if until_ns > steps.from_ns:
        sources.append((HourRow, (HourRow.start_ns >= steps.from_ns, HourRow.start_ns < until_ns)))
    return sources


def _of_series(model: Any, stretch: Stretch, rank: str, phase: str) -> tuple[ColumnElement[bool], ...]:  # noqa: ANN401 (one of three tables)
    runs = select(RunRow.id).where(*stretch.runs())
    return model.run_id.in_(runs), model.rank == rank, model.phase == phase


def _mean_of(parts: Sequence[Select[Any]], *means: str, longest: str | None = None) -> Select[Any]:
    """Weights added up, and weighted means, by step."""
    each = union_all(*parts).subquery()
    weight = func.sum(each.c.weight)
    return (
        select(
            each.c.step,
            weight.label("weight"),
            *((func.sum(each.c.weight * each.c[one]) / func.nullif(weight, 0)).label(one) for one in means),
            *((func.max(each.c[longest]).label(longest),) if longest else ()),
        )
        .group_by(each.c.step)
        .order_by(each.c.step)
    )
