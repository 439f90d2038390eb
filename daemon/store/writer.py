"""The one writer: units go to the database from a thread of their own, off the sampling path."""

import importlib
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from sqlalchemy import Connection, Engine, Table, select, update
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InvalidRequestError,
    SQLAlchemyError,
    StatementError,
)

from cyclewatch.collectors.records import STAGES
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.levels import packed_doubt
from cyclewatch.daemon.store.profile_records import StoredProfile
from cyclewatch.daemon.store.profiles import profile_row, write_kernels
from cyclewatch.daemon.store.unit import (
    Replaced,
    Series,
    StoredLevel,
    StoredRegression,
    StoredSample,
    StoredWindow,
    Unit,
)

log = structlog.get_logger(__name__)

_RETRY_FIRST_S = 0.2
_RETRY_LONGEST_S = 10.0


class StoreWriter:
    """Writes units in order, each in one transaction, and tries again until the database takes them.

    While it does not, at most `max_pending` units wait; beyond that the oldest give up their measurements
    (counted in `dropped`), never their regressions or events. A unit that the database refuses for what is in it
    gives up its measurements first, then all of it, so that it does not stand in the way for ever. `busy_ns` is the
    time spent in transactions, `rows` what they wrote.
    """

    def __init__(self, engine: Engine, max_pending: int) -> None:
        self._engine = engine
        self._max_pending = max_pending
        self._pending: deque[Unit] = deque()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._run_ids: dict[str, int] = {}
        self._series_ids: dict[Series, int] = {}
        self._give_up_s = math.inf
        self.written = 0
        self.rows = 0
        self.busy_ns = 0
        self.failures = 0
        self.dropped = 0

    @property
    def pending(self) -> int:
        """Units waiting to be written."""
        return len(self._pending)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        """Hand over a unit; never waits for the database."""
        with self._changed:
            self._pending.append(unit)
            excess = len(self._pending) - self._max_pending
            if excess > 0:
                self.dropped += self._pending[excess - 1].shed()
                if excess > self._max_pending:
                    self._merge_oldest()
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Write what is waiting and end; False where not all of it could be written within `timeout_s`."""
        self._give_up_s = time.monotonic() + timeout_s
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._pending

    def _merge_oldest(self) -> None:
        """Two units without measurements become one: memory stays bounded however long the database is away."""
        oldest, next_one = self._pending.popleft(), self._pending.popleft()
        next_one.runs = oldest.runs + next_one.runs
        next_one.events = oldest.events + next_one.events
        next_one.facts = list({(fact.target, fact.subject): fact for fact in oldest.facts + next_one.facts}.values())
        next_one.regressions = oldest.regressions + next_one.regressions
        next_one.replaced = oldest.replaced + next_one.replaced
        next_one.profiles = oldest.profiles + next_one.profiles
        next_one.rings = list({ring.key: ring for ring in oldest.rings + next_one.rings}.values())
        next_one.states = {**oldest.states, **next_one.states}
        next_one.status = {**oldest.status, **next_one.status}
        self._pending.appendleft(next_one)

    def _run(self) -> None:
        wait_s = _RETRY_FIRST_S
        while True:
            with self._changed:
                while not self._pending and not self._stopping.is_set():
                    self._changed.wait()
                if not self._pending:
                    return
                unit = self._pending[0]
            try:
                self.write(unit)
            except Exception as error:  # noqa: BLE001 (whatever is in one unit must not stop those behind it)
                self.failures += 1
                if not _may_pass(error):
                    self._refused(unit, error)
                    continue
                log.warning(
                    "the database did not take a batch; trying again", reason=reason_of(error), waiting=self.pending
                )
                if time.monotonic() >= self._give_up_s:
                    return
                if self._stopping.wait(wait_s):
                    time.sleep(_RETRY_FIRST_S)
                wait_s = min(wait_s * 2, _RETRY_LONGEST_S)
                continue
            wait_s = _RETRY_FIRST_S
            self._done(unit)
            self.written += 1

    def _refused(self, unit: Unit, error: Exception) -> None:
        """The database will never take this unit as it is."""
        dropped = unit.shed()
        self.dropped += dropped
        log.error("the database refuses a batch", reason=reason_of(error), measurements_dropped=dropped, exc_info=error)
        if not dropped:
            self._done(unit)

    def _done(self, unit: Unit) -> None:
        with self._changed:
            if self._pending and self._pending[0] is unit:
                self._pending.popleft()

    def write(self, unit: Unit) -> None:
        """Write one unit in one transaction.

        Raises:
            SQLAlchemyError: the database did not take it; nothing of it was stored.
        """
        began_ns = time.monotonic_ns()
        try:
            with self._engine.begin() as connection:
                self._write_all(connection, unit)
        except SQLAlchemyError:
            # Ids given inside the failed transaction do not exist.
            self._run_ids.clear()
            self._series_ids.clear()
            raise
        finally:
            self.busy_ns += time.monotonic_ns() - began_ns
        self.rows += unit.rows

    def _write_all(self, connection: Connection, unit: Unit) -> None:
        for run in unit.runs:
            # A run read again from an old ring has no environment: what was stored while it ran stands.
            keep = ("started_at_ns",) if run.environment else ("started_at_ns", "environment")
            row = {**_fields(run), "arguments": dict(run.arguments), "environment": dict(run.environment)}
            _upsert(connection, models.RunRow, [row], ("key",), keep)
        rings = [{**_fields(ring), "updated_at_ns": unit.at_ns} for ring in unit.rings]
        _upsert(connection, models.RingRow, rings, ("key",))
        windows = [self._window(connection, row) for row in unit.windows]
        _upsert(connection, models.WindowRow, windows, ("run_id", "rank", "phase", "bucket", "start_ns"))
        levels = [self._level(connection, row) for row in unit.levels]
        _upsert(connection, models.LevelRow, levels, ("run_id", "rank", "phase", "start_ns"))
        _upsert(connection, models.SampleRow, self._samples(connection, unit.samples), ("series_id", "at_ns"))
        events = [{**_fields(event), "key": event.key} for event in unit.events]
        _upsert(connection, models.ChangeEventRow, events, ("key",))
        _upsert(connection, models.FactRow, [_fields(fact) for fact in unit.facts], ("target", "subject"))
        rows = [self._regression(connection, row) for row in unit.regressions]
        _upsert(
            connection,
            models.RegressionRow,
            rows,
            ("key",),
            keep=("run_id", "detected_at_ns", "started_at_ns"),
        )
        for replaced in unit.replaced:
            _end_of_configuration(connection, replaced)
        for profile in unit.profiles:
            self._profile(connection, profile)
        states = [{"key": key, "updated_at_ns": unit.at_ns, "state": dict(state)} for key, state in unit.states.items()]
        _upsert(connection, models.DetectorStateRow, states, ("key",))
        status = [
            {"name": name, "updated_at_ns": unit.at_ns, "value": dict(value)} for name, value in unit.status.items()
        ]
        _upsert(connection, models.StatusRow, status, ("name",))

    def _run_id(self, connection: Connection, key: str) -> int:
        if key not in self._run_ids:
            query = select(models.RunRow.id).where(models.RunRow.key == key)
            self._run_ids[key] = connection.execute(query).scalar_one()
        return self._run_ids[key]

    def _window(self, connection: Connection, row: StoredWindow) -> dict[str, Any]:
        values = _fields(row.cell)
        stages = values.pop("stages_ns")
        values.update({f"{stage}_ns": value for stage, value in zip(STAGES, stages, strict=True)})
        values["phase"] = row.cell.phase.value
        values["on_cpu_ratio"] = _finite(row.cell.on_cpu_ratio)
        place = {"rank": row.rank, "start_ns": row.start_ns, "length_ns": row.length_ns}
        return {"run_id": self._run_id(connection, row.run_key), **place, **values}

    def _level(self, connection: Connection, row: StoredLevel) -> dict[str, Any]:
        return {
            "run_id": self._run_id(connection, row.run_key),
            "rank": row.rank,
            "phase": row.phase,
            "start_ns": row.level.at_ns,
            "log_ratio": _finite(row.level.log_ratio),
            "standard_error": _finite(row.level.standard_error),
            "effective": _finite(row.level.effective),
            "tail": _finite(row.level.tail),
            "doubt": packed_doubt(row.level.doubt),
            "known": row.level.known,
            "total": row.level.total,
            "suspected": row.suspected,
        }

    def _samples(self, connection: Connection, samples: Iterable[StoredSample]) -> list[dict[str, Any]]:
        rows = []
        for sample in samples:
            if not math.isfinite(sample.value):
                continue
            series_id = self._series_id(connection, sample)
            rows.append({"series_id": series_id, "at_ns": sample.at_ns, "value": sample.value})
        return rows

    def _series_id(self, connection: Connection, sample: StoredSample) -> int:
        series_id = self._series_ids.get(sample.series)
        if series_id is None:
            key = sample.series_key
            values = {"key": key, "target": sample.target, "name": sample.name, "labels": dict(sample.labels)}
            _upsert(connection, models.SeriesRow, [values], ("key",))
            query = select(models.SeriesRow.id).where(models.SeriesRow.key == key)
            series_id = self._series_ids[sample.series] = connection.execute(query).scalar_one()
        return series_id

    def _regression(self, connection: Connection, row: StoredRegression) -> dict[str, Any]:
        found = row.regression
        return {
            "key": found.key,
            "run_id": self._run_id(connection, row.run_key),
            "target": row.target,
            "rank": row.rank,
            "phase": row.phase,
            "state": found.state.value,
            "direction": found.direction.value,
            "kind": found.kind.value,
            "started_at_ns": found.started_at_ns,
            "detected_at_ns": found.detected_at_ns,
            "ended_at_ns": found.ended_at_ns,
            "effect": found.effect,
            "ci_low": found.ci[0],
            "ci_high": found.ci[1],
            "probability": found.probability,
            "split": [dict(part) for part in row.split],
            "causes": [dict(cause) for cause in row.causes],
        }

    def _profile(self, connection: Connection, stored: StoredProfile) -> None:
        run_id = self._run_id(connection, stored.run_key) if stored.run_key else None
        _upsert(connection, models.ProfileRow, [profile_row(stored, run_id)], ("key",), keep=("run_id",))
        write_kernels(connection, stored)


def _end_of_configuration(connection: Connection, replaced: Replaced) -> None:
    """End what is open of every other configuration of a target: nobody watches it any more."""
    others = select(models.RunRow.id).where(
        models.RunRow.target == replaced.target, models.RunRow.fingerprint != replaced.fingerprint
    )
    connection.execute(
        update(models.RegressionRow)
        .where(models.RegressionRow.state == "open", models.RegressionRow.run_id.in_(others))
        .values(state="resolved", ended_at_ns=replaced.at_ns)
    )


def _may_pass(error: Exception) -> bool:
    """Whether the database may take the same unit later: it was locked, full, away, or not yet migrated."""
    if isinstance(error, StatementError) and not isinstance(error, DBAPIError):
        return False  # a value that cannot be sent at all
    return isinstance(error, SQLAlchemyError) and not isinstance(
        error, (DataError, IntegrityError, InvalidRequestError)
    )


def _fields(row: Any) -> dict[str, Any]:  # noqa: ANN401 (any flat dataclass)
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _upsert(
    connection: Connection,
    model: type[models.Base],
    rows: list[dict[str, Any]],
    key: tuple[str, ...],
    keep: tuple[str, ...] = (),
) -> None:
    """Insert rows, or update the ones whose `key` is there already, leaving the columns in `keep` as they were."""
    if not rows:
        return
    table = model.__table__
    assert isinstance(table, Table)
    # Both dialects have an INSERT of their own with ON CONFLICT; only the one in use is loaded.
    insert: Any = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)
    changed: Mapping[str, Any] = {
        name: insert.excluded[name] for name in rows[0] if name not in key and name not in keep
    }
    connection.execute(insert.on_conflict_do_update(index_elements=list(key), set_=changed), rows)
