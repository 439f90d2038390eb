"""What the store knows of the time around a change, or of two stretches of time, as attribution takes it.

It is read in a thread of its own when a regression is confirmed (`daemon/inquiry.py`). With two days of 300 series in
the store, each read every 2 s, and 8 ranks, SQLite takes about 0.1 s for a minute after the change, and twice that for
ten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, func, select

from cyclewatch.collectors.records import NODE
from cyclewatch.daemon.profiling.decide import Reason
from cyclewatch.daemon.runs import changes_between
from cyclewatch.daemon.store.kernel_profile import kernel_profile
from cyclewatch.daemon.store.models import ChangeEventRow, ProfileRow, RegressionRow, RunRow, WindowRow
from cyclewatch.daemon.store.probes import probes_around
from cyclewatch.daemon.store.profiles import profile_in
from cyclewatch.daemon.store.stretches import Stretch, cycles_in, levels_in, ranks_in, run_at, traces_in
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.attribution import Event, Evidence, RankCycles, Trace
from cyclewatch.detectors.kernels.comparison import ProfileComparison, compare_profiles
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.shift_watch import Kind

_CYCLES_NS = 600 * 10**9
_READINGS_NS = 300 * 10**9
_LEAST_NS = 15 * 10**9
_EVENT_MARGIN_NS = 120 * 10**9
_EVENTS_MAX = 50
_PROFILE_AGE_NS = 86_400 * 10**9
_PROFILE_EFFECT_NS = 15 * 10**9


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
    when the server is back, however long it took. So what came before ends with the last window before it. It begins
    after the last change of the series before this one, and is 15 s long at least.

    What happened before all of it cannot be behind the difference: least of all what the server was started with.
    """
    start_ns, end_ns = span_ns[0], min(span_ns[1], span_ns[0] + _CYCLES_NS) + 1
    last_ns = _last_window_ns(connection, run, rank, phase, began_ns - _EVENT_MARGIN_NS)
    until_ns = began_ns if last_ns >= began_ns - _CYCLES_NS else last_ns + 1
    since_ns = min(_last_change_ns(connection, run, rank, phase, began_ns), until_ns - _LEAST_NS)
    before = Stretch(run.target, max(since_ns, until_ns - _CYCLES_NS), until_ns, run.fingerprint, run.node)
    after = Stretch(run.target, start_ns, end_ns, run.fingerprint, run.node)
    first_ns = max(last_ns, _first_window_ns(connection, before, rank, phase))
    near_before = replace(before, from_ns=max(since_ns, until_ns - _READINGS_NS))
    near_after = replace(after, to_ns=min(end_ns, start_ns + _READINGS_NS))
    return _evidence(
        connection,
        rank,
        phase,
        before,
        after,
        traces=traces_in(connection, near_before, near_after),
        events=[
            *_events(connection, after, first_ns, start_ns + _EVENT_MARGIN_NS),
            *_own_profiles(connection, after),
        ],
        synchronous=synchronous,
    )


def evidence_of_deployment(
    connection: Connection, replaced: Run, run: Run, rank: str, phase: str, span_ns: tuple[int, int]
) -> Evidence:
    """What is known of the last ten minutes of a configuration and of the time of the next one, `span_ns` (UTC).

    What had already been slowed by something else when it was replaced is left out.
    """
    until_ns = _last_window_ns(connection, replaced, rank, phase, span_ns[0]) + 1
    slowed = (
        select(func.min(RegressionRow.started_at_ns))
        .join(RunRow, RunRow.id == RegressionRow.run_id)
        .where(
            *_series(replaced, rank, phase),
            RegressionRow.direction == Direction.SLOWER.value,
            RegressionRow.started_at_ns < until_ns,
            func.coalesce(RegressionRow.ended_at_ns, until_ns) >= until_ns,
        )
    )
    until_ns = connection.execute(slowed).scalar() or until_ns
    since_ns = min(_last_change_ns(connection, replaced, rank, phase, until_ns), until_ns - _LEAST_NS)
    before = Stretch(run.target, max(since_ns, until_ns - _CYCLES_NS), until_ns, replaced.fingerprint, run.node)
    after = Stretch(run.target, span_ns[0], min(span_ns[1], span_ns[0] + _CYCLES_NS) + 1, run.fingerprint, run.node)
    return evidence_between(connection, rank, phase, before, after)


def evidence_between(connection: Connection, rank: str, phase: str, before: Stretch, after: Stretch) -> Evidence:
    """The same of any two stretches of time, of one server or of two.

    What came before is moved in time so that it ends where the other stretch begins, which is when the change began.
    The events are what differs between the server's run at the end of the one and at the beginning of the other; of
    one server, also what happened within two minutes of the time in between.
    """
    old, new = run_at(connection, before, last=True), run_at(connection, after, last=False)
    events = [] if old is None or new is None else _differences(old, new, after.from_ns)
    if before.is_of_same_server(after) and before.to_ns <= after.from_ns:
        from_ns, to_ns = before.to_ns - _EVENT_MARGIN_NS, after.from_ns + _EVENT_MARGIN_NS
        told = {(event.kind, event.subject) for event in events}
        noted = _events(connection, after, from_ns, to_ns)
        events += [event for event in noted if (event.kind, event.subject) not in told]
    synchronous = new is not None and new.arguments.get("device") == "cpu"
    return _evidence(
        connection,
        rank,
        phase,
        before,
        after,
        traces=traces_in(connection, before, after),
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
    ranks = sorted({rank, *ranks_in(connection, after)})
    old, new = (cycles_in(connection, stretch, ranks, phase) for stretch in (before, after))
    return Evidence(
        started_at_ns=after.from_ns,
        rank=rank,
        before=old[rank],
        after=new[rank],
        synchronous=synchronous,
        # Those of two configurations are held against two models, and tell nothing of a change from one to the other.
        levels=levels_in(connection, rank, phase, before, after) if before.fingerprint == after.fingerprint else None,
        traces=[
            *(one for one in traces if not one.name.startswith("probe.")),
            *probes_around(connection, before, after),
        ],
        events=sorted(events, key=lambda event: event.at_ns),
        kernels=_kernels(connection, rank, before, after),
        ranks=[RankCycles(name, old[name], new[name]) for name in ranks if name != rank and new[name]],
    )


def _kernels(connection: Connection, rank: str, before: Stretch, after: Stretch) -> ProfileComparison | None:
    """The last profile of up to a day before the change against the first one after it; None where one is missing."""
    old = profile_in(connection, replace(before, from_ns=before.from_ns - _PROFILE_AGE_NS), rank, last=True)
    new = None if old is None else profile_in(connection, after, rank, last=False)
    return None if old is None or new is None else compare_profiles(kernel_profile(old), kernel_profile(new))


def _events(connection: Connection, server: Stretch, from_ns: int, to_ns: int) -> list[Event]:
    query = (
        select(
            ChangeEventRow.at_ns,
            ChangeEventRow.kind,
            ChangeEventRow.subject,
            ChangeEventRow.before,
            ChangeEventRow.after,
        )
        .where(
            ChangeEventRow.target.in_((server.target, NODE)),
            server.on_node(ChangeEventRow.node),
            ChangeEventRow.at_ns >= from_ns,
            ChangeEventRow.at_ns <= to_ns,
        )
        .order_by(ChangeEventRow.at_ns)
        .limit(_EVENTS_MAX)
    )
    return [Event(*row) for row in connection.execute(query)]


def _own_profiles(connection: Connection, after: Stretch) -> list[Event]:
    """Profiles that were being taken when a change began, or had just ended; not those that it made us take."""
    at_ns = after.from_ns
    query = (
        select(ProfileRow.began_at_ns, ProfileRow.rank, ProfileRow.method, ProfileRow.reason)
        .where(
            ProfileRow.target == after.target,
            after.on_node(ProfileRow.node),
            ProfileRow.reason != Reason.SUSPICION.value,
            ProfileRow.began_at_ns <= at_ns,
            func.coalesce(ProfileRow.ended_at_ns, at_ns) >= at_ns - _PROFILE_EFFECT_NS,
        )
        .order_by(ProfileRow.began_at_ns.desc())
        .limit(_EVENTS_MAX)
    )
    return [
        Event(began_ns, "profile", f"profile of {rank}", "", f"taken by {method} ({reason})")
        for began_ns, rank, method, reason in connection.execute(query)
    ]


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
    same_server = (before.node, before.target) == (after.node, after.target)
    return [event for event in changes if same_server or event.kind != "restart"] + environment


def _last_change_ns(connection: Connection, run: Run, rank: str, phase: str, began_ns: int) -> int:
    """When the level of the series last changed before a regression began, as far as was found; 0 where it did not."""
    changed = []
    for column in (RegressionRow.started_at_ns, RegressionRow.ended_at_ns):
        query = (
            select(func.max(column))
            .join(RunRow, RunRow.id == RegressionRow.run_id)
            .where(*_series(run, rank, phase), column < began_ns)
        )
        changed.append(connection.execute(query).scalar() or 0)
    return max(changed)


def _series(run: Run, rank: str, phase: str) -> tuple[ColumnElement[bool], ...]:
    """What holds of the steps of a series that were found."""
    return (
        RunRow.node == run.node,
        RunRow.target == run.target,
        RunRow.fingerprint == run.fingerprint,
        RegressionRow.rank == rank,
        RegressionRow.phase == phase,
        RegressionRow.kind == Kind.LEVEL.value,
    )


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
    same = RunRow.node == run.node, RunRow.target == run.target, RunRow.fingerprint == run.fingerprint
    last_ns = connection.execute(select(func.max(last)).where(*same)).scalar()
    return at_ns if last_ns is None else int(last_ns)


def _first_window_ns(connection: Connection, stretch: Stretch, rank: str, phase: str) -> int:
    """Start of the first window in a stretch of time; 0 where there is none."""
    query = (
        select(func.min(WindowRow.start_ns))
        .join(RunRow, RunRow.id == WindowRow.run_id)
        .where(
            *stretch.runs(),
            WindowRow.rank == rank,
            WindowRow.phase == phase,
            stretch.holds(WindowRow.start_ns),
        )
    )
    return connection.execute(query).scalar() or 0
