"""What the store knows of the time around a change, or of two stretches of time, as attribution takes it.

It is read in the pipeline's thread when a regression is confirmed. So the database adds up and thins out: what comes
back is a mean for each load bucket, and at most `_POINTS_MAX` values of a series on either side. With two days of 300
series in it, each read every 2 s, and 8 ranks, SQLite takes about 0.1 s for a minute after the change.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, func, select

from cyclewatch.collectors.records import NODE, STAGES
from cyclewatch.daemon.runs import changes_between
from cyclewatch.daemon.store.models import ChangeEventRow, LevelRow, RunRow, SampleRow, SeriesRow, WindowRow
from cyclewatch.daemon.store.run_rows import run_of
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.attribution import Event, Evidence, RankCycles, StageMeans, Trace
from cyclewatch.detectors.phases import Floats, Integers

LEVEL = "cycles.log_ratio"
"""Name of the trace that is the changed series itself: log(measured / expected) a window."""

_CYCLES_NS = 600 * 10**9
_READINGS_NS = 300 * 10**9
_EVENT_MARGIN_NS = 120 * 10**9
_EVENTS_MAX = 50
_POINTS_MAX = 60
_FINEST_NS = 10**9


@dataclass(frozen=True)
class Stretch:
    """Time of one server, from `from_ns` up to but not including `to_ns` (UTC).

    `fingerprint` is the configuration that it ran in; None for whatever ran.
    """

    target: str
    from_ns: int
    to_ns: int
    fingerprint: str | None = None

    def runs(self) -> tuple[ColumnElement[bool], ...]:
        """What holds of its runs."""
        of_target = RunRow.target == self.target
        return (of_target,) if self.fingerprint is None else (of_target, RunRow.fingerprint == self.fingerprint)


def evidence_of(
    connection: Connection,
    run: Run,
    rank: str,
    phase: str,
    began_ns: int,
    span_ns: tuple[int, int],
    *,
    synchronous: bool,
) -> Evidence:
    """What is known of the time before a regression began, and of the time at its present level, `span_ns` (UTC).

    Cycles are those of up to ten minutes on either side, readings those of five. While a server was down, for an update
    of the driver or of the node, nothing was measured: what changed in that time may be behind a regression that begins
    when the server is back, however long it took. So what came before ends with the last window before it.
    """
    start_ns, end_ns = span_ns[0], min(span_ns[1], span_ns[0] + _CYCLES_NS) + 1
    last_ns = _last_window_ns(connection, run, rank, phase, began_ns - _EVENT_MARGIN_NS)
    until_ns = began_ns if last_ns >= began_ns - _CYCLES_NS else last_ns + 1
    before = Stretch(run.target, until_ns - _CYCLES_NS, until_ns, run.fingerprint)
    after = Stretch(run.target, start_ns, end_ns, run.fingerprint)
    near_before = replace(before, from_ns=until_ns - _READINGS_NS)
    near_after = replace(after, to_ns=min(end_ns, start_ns + _READINGS_NS))
    return _evidence(
        connection,
        rank,
        phase,
        before,
        after,
        traces=_traces(connection, near_before, near_after),
        events=_events(connection, run.target, last_ns, start_ns + _EVENT_MARGIN_NS),
        synchronous=synchronous,
    )


def evidence_between(connection: Connection, rank: str, phase: str, before: Stretch, after: Stretch) -> Evidence:
    """The same of any two stretches of time, of one server or of two.

    What came before is moved in time so that it ends where the other stretch begins, which is when the change began.
    The events are what differs between the server's run at the end of the one and at the beginning of the other; of
    one server, also what happened within two minutes of the time in between.
    """
    old, new = _run_at(connection, before, last=True), _run_at(connection, after, last=False)
    events = [] if old is None or new is None else _differences(old, new, after.from_ns)
    if before.target == after.target and before.to_ns <= after.from_ns:
        from_ns, to_ns = before.to_ns - _EVENT_MARGIN_NS, after.from_ns + _EVENT_MARGIN_NS
        told = {(event.kind, event.subject) for event in events}
        noted = _events(connection, after.target, from_ns, to_ns)
        events += [event for event in noted if (event.kind, event.subject) not in told]
    synchronous = new is not None and new.arguments.get("device") == "cpu"
    return _evidence(
        connection,
        rank,
        phase,
        before,
        after,
        traces=_traces(connection, before, after),
        events=events,
        synchronous=synchronous,
    )


def _evidence(
    connection: Connection,
    rank: str,
    phase: str,
    before: Stretch,
    after: Stretch,
    *,
    traces: Sequence[Trace],
    events: Iterable[Event],
    synchronous: bool,
) -> Evidence:
    ranks = sorted({rank, *_ranks(connection, after)})
    old = {name: _cycles(connection, before, name, phase) for name in ranks}
    new = {name: _cycles(connection, after, name, phase) for name in ranks}
    return Evidence(
        started_at_ns=after.from_ns,
        rank=rank,
        before=old[rank],
        after=new[rank],
        synchronous=synchronous,
        levels=_levels(connection, rank, phase, before, after),
        traces=traces,
        events=sorted(events, key=lambda event: event.at_ns),
        ranks=[RankCycles(name, old[name], new[name]) for name in ranks if name != rank and new[name]],
    )


def _ranks(connection: Connection, stretch: Stretch) -> set[str]:
    """All ranks that ran in a stretch."""
    # By time alone, for which there is an index: with the run, the database would walk through all of its windows.
    seen = (
        select(WindowRow.run_id, WindowRow.rank)
        .where(WindowRow.start_ns >= stretch.from_ns, WindowRow.start_ns < stretch.to_ns)
        .distinct()
    )
    runs = set(connection.execute(select(RunRow.id).where(*stretch.runs())).scalars())
    return {rank for run_id, rank in connection.execute(seen) if run_id in runs}


def _cycles(connection: Connection, stretch: Stretch, rank: str, phase: str) -> list[StageMeans]:
    """Mean cycles by load bucket; of all runs of the stretch, so that it reaches back over a restart."""
    cycle_ns = sum((getattr(WindowRow, f"{stage}_ns") for stage in STAGES[1:]), WindowRow.schedule_ns)
    time_ns = WindowRow.count * cycle_ns
    sampled = WindowRow.on_cpu_ratio.is_not(None)
    query = (
        select(
            WindowRow.bucket,
            func.sum(WindowRow.count),
            func.sum(time_ns * WindowRow.on_cpu_ratio) / func.nullif(func.sum(time_ns).filter(sampled), 0),
            *(func.sum(WindowRow.count * getattr(WindowRow, f"{stage}_ns")) for stage in STAGES),
        )
        .join(RunRow, RunRow.id == WindowRow.run_id)
        .where(
            *stretch.runs(),
            WindowRow.rank == rank,
            WindowRow.phase == phase,
            WindowRow.start_ns >= stretch.from_ns,
            WindowRow.start_ns < stretch.to_ns,
        )
        .group_by(WindowRow.bucket)
        .order_by(WindowRow.bucket)
    )
    return [
        StageMeans(
            bucket=bucket,
            count=int(count),
            stages_ns=tuple(float(total_ns) / count for total_ns in stages_ns),
            on_cpu_ratio=math.nan if on_cpu_ratio is None else float(on_cpu_ratio),
        )
        for bucket, count, on_cpu_ratio, *stages_ns in connection.execute(query)
    ]


def _levels(connection: Connection, rank: str, phase: str, before: Stretch, after: Stretch) -> Trace | None:
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
                LevelRow.start_ns >= stretch.from_ns,
                LevelRow.start_ns < stretch.to_ns,
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


def _traces(connection: Connection, before: Stretch, after: Stretch) -> list[Trace]:
    """All readings of the servers and their nodes, as means over steps of time."""
    longest_ns = max(before.to_ns - before.from_ns, after.to_ns - after.from_ns)
    step_ns = max(-(-longest_ns // _POINTS_MAX), _FINEST_NS)
    found: dict[tuple[bool, str, str], list[tuple[int, float]]] = defaultdict(list)
    for stretch in (before, after):
        boundary_ns = stretch.to_ns if stretch is before else stretch.from_ns
        moved_ns = after.from_ns - boundary_ns
        series = _series(connection, stretch.target)
        for number, at_ns, value in connection.execute(_means(stretch, boundary_ns, step_ns)).all():
            if number in series:
                found[series[number]].append((at_ns + moved_ns, value))
    return [
        Trace(name, json.loads(labels), *_columns(found[of_node, name, labels]))
        for of_node, name, labels in sorted(found)
    ]


def _series(connection: Connection, target: str) -> dict[int, tuple[bool, str, str]]:
    """Number of each series of a server and of its node: whether it is the node's, its name and its labels, as text."""
    query = select(SeriesRow.id, SeriesRow.target, SeriesRow.name, SeriesRow.labels).where(
        SeriesRow.target.in_((target, NODE))
    )
    return {number: (of == NODE, name, json.dumps(labels)) for number, of, name, labels in connection.execute(query)}


def _means(stretch: Stretch, boundary_ns: int, step_ns: int) -> Select[Any]:
    """Series, time of the first reading and mean, by series and steps of time that are counted from the boundary."""
    step = (SampleRow.at_ns - boundary_ns) // step_ns
    return (
        select(SampleRow.series_id, func.min(SampleRow.at_ns), func.avg(SampleRow.value))
        # By time alone: so the samples lie together on the disk, while each series is scattered over it.
        .where(SampleRow.at_ns >= stretch.from_ns, SampleRow.at_ns < stretch.to_ns)
        .group_by(SampleRow.series_id, step)
        .order_by(SampleRow.series_id, step)
    )


def _columns(rows: list[tuple[int, float]]) -> tuple[Integers, Floats]:
    times, values = zip(*rows, strict=True)
    return np.array(times, np.int64), np.array(values, np.float64)


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


def _run_at(connection: Connection, stretch: Stretch, *, last: bool) -> Run | None:
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


def _differences(before: Run, after: Run, at_ns: int) -> list[Event]:
    """What is different between two runs, of one server or of two."""
    if before.key == after.key:
        return []
    changes = [Event(at_ns, one.kind, one.subject, one.before, one.after) for one in changes_between(before, after)]
    environment = [
        Event(at_ns, "environment", subject, before.environment.get(subject, ""), after.environment.get(subject, ""))
        for subject in sorted(set(before.environment) | set(after.environment))
        if before.environment.get(subject, "") != after.environment.get(subject, "")
    ]
    same_server = before.target == after.target
    return [event for event in changes if same_server or event.kind != "restart"] + environment


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
    same = RunRow.target == run.target, RunRow.fingerprint == run.fingerprint
    last_ns = connection.execute(select(func.max(last)).where(*same)).scalar()
    return at_ns if last_ns is None else int(last_ns)
