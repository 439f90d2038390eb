"""Questions asked of the store: saved state, known runs, evidence, and what the command line shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, func, select

from cyclewatch.collectors.records import NODE, STAGES
from cyclewatch.daemon.store.models import (
    ChangeEventRow,
    DetectorStateRow,
    FactRow,
    RegressionRow,
    RingRow,
    RunRow,
    SampleRow,
    SeriesRow,
    StatusRow,
    WindowRow,
)
from cyclewatch.daemon.store.unit import RingPosition, Run, StoredFact
from cyclewatch.detectors.attribution import Evidence, StageMeans
from cyclewatch.detectors.tracking import Regression

_BEFORE_NS = 600 * 10**9
_AFTER_NS = 600 * 10**9
_EVENT_MARGIN_NS = 120 * 10**9
_EVENTS_MAX = 50
_CHANGES = {"version", "model", "argument", "environment"}
"""Kinds of events that lead from one value to another; others only happen."""


@dataclass(frozen=True)
class RegressionView:
    """A stored regression, as the command line and the API show it."""

    id: int
    target: str
    rank: str
    phase: str
    state: str
    direction: str
    kind: str
    started_at_ns: int
    detected_at_ns: int
    ended_at_ns: int | None
    effect: float
    ci: tuple[float, float]
    probability: float
    split: list[dict[str, Any]]
    causes: list[dict[str, Any]]


class StoreHistory:
    """Reads from the database, each question on a connection of its own.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(RunRow.__table__).order_by(RunRow.started_at_ns))
            return [
                Run(
                    key=row.key,
                    node=row.node,
                    target=row.target,
                    started_at_ns=row.started_at_ns,
                    last_seen_ns=row.last_seen_ns,
                    fingerprint=row.fingerprint,
                    version=row.version,
                    model=row.model,
                    arguments=row.arguments,
                    environment=row.environment,
                )
                for row in rows
            ]

    def facts(self) -> list[StoredFact]:
        """What the node and its servers run on, as last told, in order."""
        query = select(FactRow.__table__).order_by(FactRow.target, FactRow.subject)
        with self._engine.connect() as connection:
            return [StoredFact(*row) for row in connection.execute(query)]

    def detector_state(self, key: str) -> Mapping[str, Any] | None:
        """Saved state of a detector."""
        query = select(DetectorStateRow.state).where(DetectorStateRow.key == key)
        with self._engine.connect() as connection:
            state: Mapping[str, Any] | None = connection.execute(query).scalar_one_or_none()
            return state

    def detector_states(self) -> dict[str, int]:
        """Keys of all saved states, in order, and when each was saved (UTC nanoseconds)."""
        query = select(DetectorStateRow.key, DetectorStateRow.updated_at_ns).order_by(DetectorStateRow.key)
        with self._engine.connect() as connection:
            return {row.key: row.updated_at_ns for row in connection.execute(query)}

    def ring_positions(self) -> dict[str, RingPosition]:
        """Where the reading of every known ring goes on."""
        query = select(RingRow.key, RingRow.next_sequence, RingRow.last_window)
        with self._engine.connect() as connection:
            return {
                row.key: RingPosition(row.key, row.next_sequence, row.last_window) for row in connection.execute(query)
            }

    def evidence(self, run: Run, rank: str, phase: str, regression: Regression, *, synchronous: bool) -> Evidence:
        """What is known of up to ten minutes before and after a regression began, or before the last window seen.

        While a server was down, for an update of the driver or of the node, nothing was measured: what changed in that
        time may be behind a regression that begins when the server is back, however long it took.
        """
        start_ns = regression.started_at_ns
        end_ns = min(regression.detected_at_ns, start_ns + _AFTER_NS) + 1
        with self._engine.connect() as connection:
            last_ns = _last_window_ns(connection, run, rank, phase, start_ns - _EVENT_MARGIN_NS)
            before_ns = (start_ns if last_ns >= start_ns - _BEFORE_NS else last_ns) - _BEFORE_NS
            before = _stage_means(connection, run, rank, phase, before_ns, start_ns)
            after = _stage_means(connection, run, rank, phase, start_ns, end_ns)
            readings = {
                name: (old, new)
                for name in (
                    "host.run_queue_wait_ratio",
                    "host.cgroup_throttled_ratio",
                    "cycles.collected_ratio",
                )
                if (old := _mean_reading(connection, run.target, name, rank, before_ns, start_ns)) is not None
                and (new := _mean_reading(connection, run.target, name, rank, start_ns, end_ns)) is not None
            }
            events = connection.execute(
                select(ChangeEventRow.kind, ChangeEventRow.subject, ChangeEventRow.before, ChangeEventRow.after)
                .where(
                    ChangeEventRow.target.in_((run.target, NODE)),
                    ChangeEventRow.at_ns >= last_ns,
                    ChangeEventRow.at_ns <= start_ns + _EVENT_MARGIN_NS,
                )
                .order_by(ChangeEventRow.at_ns)
                .limit(_EVENTS_MAX)
            ).all()
        return Evidence(
            before=before,
            after=after,
            synchronous=synchronous,
            readings=readings,
            events=[change_text(*event) for event in events],
        )

    def regressions(self, *, all_directions: bool = False) -> list[RegressionView]:
        """Stored regressions, newest first; improvements too where asked for."""
        query = select(RegressionRow.__table__).order_by(RegressionRow.started_at_ns.desc(), RegressionRow.id.desc())
        if not all_directions:
            query = query.where(RegressionRow.direction == "slower")
        with self._engine.connect() as connection:
            return [_view(row) for row in connection.execute(query)]

    def regression(self, number: int) -> RegressionView | None:
        """The regression with this number."""
        with self._engine.connect() as connection:
            row = connection.execute(select(RegressionRow.__table__).where(RegressionRow.id == number)).one_or_none()
            return None if row is None else _view(row)

    def status(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """What the daemon last said of itself: by name, the time in UTC nanoseconds and the value."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(StatusRow.name, StatusRow.updated_at_ns, StatusRow.value))
            return {row.name: (row.updated_at_ns, row.value) for row in rows}

    def change_events(self, limit: int = 50) -> list[dict[str, Any]]:
        """The latest change events, newest first."""
        query = select(ChangeEventRow.__table__).order_by(ChangeEventRow.at_ns.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]  # noqa: SLF001 (SQLAlchemy's public name)


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


def _mean_reading(connection: Connection, target: str, name: str, rank: str, from_ns: int, to_ns: int) -> float | None:
    """Mean of a reading of the scheduler's main thread over a stretch of time; None where it was not read."""
    series = connection.execute(
        select(SeriesRow.id, SeriesRow.labels).where(SeriesRow.target == target, SeriesRow.name == name)
    ).all()
    wanted = {"rank": rank, "process": "scheduler", "thread": "main"}
    ids = [row.id for row in series if all(wanted.get(key, value) == value for key, value in row.labels.items())]
    query = select(func.avg(SampleRow.value)).where(
        SampleRow.series_id.in_(ids), SampleRow.at_ns >= from_ns, SampleRow.at_ns < to_ns
    )
    value = connection.execute(query).scalar()
    return None if value is None else float(value)


def change_text(kind: str, subject: str, before: str, after: str) -> str:
    """A change event as a sentence."""
    if kind == "restart":
        return "the server was restarted"
    if not before and kind not in _CHANGES:
        return f"{subject}: {after}"
    return f"{subject} changed from {before or 'nothing'} to {after or 'nothing'}"


def _view(row: Any) -> RegressionView:  # noqa: ANN401 (a row of the regressions table)
    return RegressionView(
        id=row.id,
        target=row.target,
        rank=row.rank,
        phase=row.phase,
        state=row.state,
        direction=row.direction,
        kind=row.kind,
        started_at_ns=row.started_at_ns,
        detected_at_ns=row.detected_at_ns,
        ended_at_ns=row.ended_at_ns,
        effect=row.effect,
        ci=(row.ci_low, row.ci_high),
        probability=row.probability,
        split=row.split,
        causes=row.causes,
    )
