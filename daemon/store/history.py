"""Questions asked of the store: saved state, known runs, evidence, and what the command line shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Select, and_, or_, select

from cyclewatch.daemon.store import row_number
from cyclewatch.daemon.store.evidence import evidence_between, evidence_of, evidence_of_deployment
from cyclewatch.daemon.store.models import (
    ChangeEventRow,
    DetectorStateRow,
    FactRow,
    RegressionRow,
    RingRow,
    RunRow,
    StatusRow,
)
from cyclewatch.daemon.store.run_rows import run_of
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.unit import RingPosition, Run, StoredFact
from cyclewatch.detectors.attribution import Evidence

_REPLACED_MAX = 5
"""How far back the configuration before is looked for: one that ended before it had a baseline says nothing."""

"""What a BIGINT holds: numbers may come from anywhere."""

_REGRESSIONS = select(RegressionRow.__table__, RunRow.node).join(RunRow, RunRow.id == RegressionRow.run_id)


@dataclass(frozen=True)
class RegressionView:
    """A stored regression, as the command line and the API show it."""

    id: int
    node: str
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
    physical_bound: dict[str, Any] | None


class StoreHistory:
    """Reads from the database, each question on a connection of its own.

    What belongs to a node is read of `node` alone, or of all where that is None: a file has one, a server many.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine, node: str | None = None) -> None:
        self._engine = engine
        self._node = node

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        with self._engine.connect() as connection:
            rows = connection.execute(self._own(RunRow).order_by(RunRow.started_at_ns))
            return [run_of(row) for row in rows]

    def facts(self) -> list[StoredFact]:
        """What the node and its servers run on, as last told, in order."""
        query = self._own(FactRow).order_by(FactRow.target, FactRow.subject)
        with self._engine.connect() as connection:
            return [StoredFact(row.target, row.subject, row.value, row.since_ns) for row in connection.execute(query)]

    def detector_state(self, key: str) -> Mapping[str, Any] | None:
        """Saved state of a detector."""
        query = self._own(DetectorStateRow).where(DetectorStateRow.key == key)
        with self._engine.connect() as connection:
            row = connection.execute(query.order_by(DetectorStateRow.updated_at_ns.desc()).limit(1)).one_or_none()
            return None if row is None else row.state

    def detector_states(self) -> dict[str, int]:
        """Keys of all saved states, in order, and when each was saved (UTC nanoseconds)."""
        query = self._own(DetectorStateRow).with_only_columns(DetectorStateRow.key, DetectorStateRow.updated_at_ns)
        with self._engine.connect() as connection:
            return {row.key: row.updated_at_ns for row in connection.execute(query.order_by(DetectorStateRow.key))}

    def ring_positions(self) -> dict[str, RingPosition]:
        """Where the reading of every known ring goes on."""
        with self._engine.connect() as connection:
            return {
                row.key: RingPosition(row.key, row.next_sequence, row.last_window)
                for row in connection.execute(self._own(RingRow))
            }

    def evidence(
        self, run: Run, rank: str, phase: str, began_ns: int, span_ns: tuple[int, int], *, synchronous: bool
    ) -> Evidence:
        """What is known of the time before a regression began, and of the time at its present level, `span_ns`."""
        with self._engine.connect() as connection:
            return evidence_of(connection, run, rank, phase, began_ns, span_ns, synchronous=synchronous)

    def evidence_of_deployment(
        self, replaced: Run, run: Run, rank: str, phase: str, span_ns: tuple[int, int]
    ) -> Evidence:
        """What is known of the end of a configuration, and of the time of the one that replaced it, `span_ns`."""
        with self._engine.connect() as connection:
            return evidence_of_deployment(connection, replaced, run, rank, phase, span_ns)

    def replaced_by(self, run: Run) -> list[Run]:
        """The latest runs of the target's last configurations before this one, with the same model; newest first."""
        query = (
            select(RunRow.__table__)
            .where(
                RunRow.node == run.node,
                RunRow.target == run.target,
                RunRow.model == run.model,
                RunRow.fingerprint != run.fingerprint,
                RunRow.started_at_ns < run.started_at_ns,
            )
            .order_by(RunRow.started_at_ns.desc())
            .limit(_REPLACED_MAX)
        )
        with self._engine.connect() as connection:
            return [run_of(row) for row in connection.execute(query)]

    def evidence_between(self, rank: str, phase: str, before: Stretch, after: Stretch) -> Evidence:
        """What is known of two stretches of time, of one server or of two."""
        with self._engine.connect() as connection:
            return evidence_between(connection, rank, phase, before, after)

    def regressions(
        self, *, all_directions: bool = False, limit: int | None = None, before: int | None = None
    ) -> list[RegressionView]:
        """Stored regressions, newest first; improvements too where asked for; those after number `before`."""
        began, number = RegressionRow.started_at_ns, RegressionRow.id
        query = _REGRESSIONS.order_by(began.desc(), number.desc()).limit(limit)
        if not all_directions:
            query = query.where(RegressionRow.direction == "slower")
        if before is not None:
            last = select(began).where(number == before).scalar_subquery()
            query = query.where(or_(began < last, and_(began == last, number < before)))
        with self._engine.connect() as connection:
            return [_view(row) for row in connection.execute(query)]

    def regression(self, number: int) -> RegressionView | None:
        """The regression with this number."""
        if not row_number.may_be(number):
            return None
        with self._engine.connect() as connection:
            row = connection.execute(_REGRESSIONS.where(RegressionRow.id == number)).one_or_none()
            return None if row is None else _view(row)

    def status(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """What the daemon last said of itself: by name, the time in UTC nanoseconds and the value."""
        with self._engine.connect() as connection:
            rows = connection.execute(self._own(StatusRow))
            return {row.name: (row.updated_at_ns, row.value) for row in rows}

    def change_events(self, limit: int = 50) -> list[dict[str, Any]]:
        """The latest change events, newest first."""
        query = self._own(ChangeEventRow).order_by(ChangeEventRow.at_ns.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]  # noqa: SLF001 (SQLAlchemy's public name)

    def _own(self, model: Any) -> Select[Any]:  # noqa: ANN401 (a table with a column `node`)
        """The rows of this node."""
        query = select(model.__table__)
        return query if self._node is None else query.where(model.node == self._node)


def _view(row: Any) -> RegressionView:  # noqa: ANN401 (a row of the regressions table)
    return RegressionView(
        id=row.id,
        node=row.node,
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
        physical_bound=row.physical_bound,
    )
