"""What the store knows of the time around a change, as attribution takes it."""

import numpy as np
from sqlalchemy import ColumnElement, Connection, func, select

from cyclewatch.collectors.records import NODE, STAGES
from cyclewatch.daemon.store.models import ChangeEventRow, RunRow, SampleRow, SeriesRow, WindowRow
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.attribution import Event, Evidence, StageMeans, Trace
from cyclewatch.detectors.tracking import Regression

_BEFORE_NS = 600 * 10**9
_AFTER_NS = 600 * 10**9
_EVENT_MARGIN_NS = 120 * 10**9
_EVENTS_MAX = 50


def evidence_of(
    connection: Connection, run: Run, rank: str, phase: str, regression: Regression, *, synchronous: bool
) -> Evidence:
    """What is known of up to ten minutes before and after a regression began, or before the last window seen.

    While a server was down, for an update of the driver or of the node, nothing was measured: what changed in that
    time may be behind a regression that begins when the server is back, however long it took.
    """
    start_ns = regression.started_at_ns
    end_ns = min(regression.detected_at_ns, start_ns + _AFTER_NS) + 1
    last_ns = _last_window_ns(connection, run, rank, phase, start_ns - _EVENT_MARGIN_NS)
    before_ns = (start_ns if last_ns >= start_ns - _BEFORE_NS else last_ns) - _BEFORE_NS
    return Evidence(
        started_at_ns=start_ns,
        rank=rank,
        before=_stage_means(connection, run, rank, phase, before_ns, start_ns),
        after=_stage_means(connection, run, rank, phase, start_ns, end_ns),
        synchronous=synchronous,
        traces=_traces(connection, run.target, before_ns, end_ns),
        events=_events(connection, run.target, last_ns, start_ns + _EVENT_MARGIN_NS),
    )


def _traces(connection: Connection, target: str, from_ns: int, to_ns: int) -> list[Trace]:
    query = (
        select(SeriesRow.id, SeriesRow.name, SeriesRow.labels, SampleRow.at_ns, SampleRow.value)
        .join(SeriesRow, SeriesRow.id == SampleRow.series_id)
        .where(SeriesRow.target.in_((target, NODE)), SampleRow.at_ns >= from_ns, SampleRow.at_ns < to_ns)
        .order_by(SeriesRow.id, SampleRow.at_ns)
    )
    read: dict[int, tuple[str, dict[str, str], list[int], list[float]]] = {}
    for number, name, labels, at_ns, value in connection.execute(query):
        _, _, times, values = read.setdefault(number, (name, labels, [], []))
        times.append(at_ns)
        values.append(value)
    return [
        Trace(name, labels, np.array(times, np.int64), np.array(values, np.float64))
        for name, labels, times, values in read.values()
    ]


def _events(connection: Connection, target: str, from_ns: int, to_ns: int) -> list[Event]:
    query = (
        select(
            ChangeEventRow.at_ns,
            ChangeEventRow.kind,
            ChangeEventRow.subject,
            ChangeEventRow.before,
            ChangeEventRow.after,
        )
        .where(
            ChangeEventRow.target.in_((target, NODE)), ChangeEventRow.at_ns >= from_ns, ChangeEventRow.at_ns <= to_ns
        )
        .order_by(ChangeEventRow.at_ns)
        .limit(_EVENTS_MAX)
    )
    return [Event(*row) for row in connection.execute(query)]


def _stage_means(connection: Connection, run: Run, rank: str, phase: str, from_ns: int, to_ns: int) -> list[StageMeans]:
    """Windows of all runs with the same fingerprint, so that evidence reaches back over a restart."""
    query = (
        select(WindowRow.__table__)
        .join(RunRow, RunRow.id == WindowRow.run_id)
        .where(
            *_same_configuration(run),
            WindowRow.rank == rank,
            WindowRow.phase == phase,
            WindowRow.start_ns >= from_ns,
            WindowRow.start_ns < to_ns,
        )
    )
    return [
        StageMeans(
            bucket=row.bucket,
            count=row._mapping["count"],  # noqa: SLF001 (public; `row.count` is the tuple's method)
            stages_ns=tuple(getattr(row, f"{stage}_ns") for stage in STAGES),
            on_cpu_ratio=float("nan") if row.on_cpu_ratio is None else row.on_cpu_ratio,
        )
        for row in connection.execute(query)
    ]


def _same_configuration(run: Run) -> tuple[ColumnElement[bool], ...]:
    return RunRow.target == run.target, RunRow.fingerprint == run.fingerprint


def _last_window_ns(connection: Connection, run: Run, rank: str, phase: str, at_ns: int) -> int:
    """Start of the last window before `at_ns`, of any run of the configuration; `at_ns` where there is none."""
    # Of each run by itself: its last window stands at the end of a stretch of the index.
    last = (
        select(WindowRow.start_ns)
        .where(
            WindowRow.run_id == RunRow.id,
            WindowRow.rank == rank,
            WindowRow.phase == phase,
            WindowRow.start_ns < at_ns,
        )
        .order_by(WindowRow.start_ns.desc())
        .limit(1)
        .correlate(RunRow)
        .scalar_subquery()
    )
    last_ns = connection.execute(select(func.max(last)).where(*_same_configuration(run))).scalar()
    return at_ns if last_ns is None else int(last_ns)
