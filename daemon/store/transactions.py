"""A unit as rows: everything that a turn of the pipeline leaves, in one transaction."""

import math
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, select, update

from cyclewatch.collectors.records import STAGES
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.levels import packed_doubt
from cyclewatch.daemon.store.profile_records import StoredProfile
from cyclewatch.daemon.store.profiles import profile_row, write_kernels
from cyclewatch.daemon.store.retention import reopen
from cyclewatch.daemon.store.run_rows import run_after
from cyclewatch.daemon.store.unit import (
    Replaced,
    Run,
    Series,
    StoredLevel,
    StoredRegression,
    StoredSample,
    StoredWindow,
    Unit,
)
from cyclewatch.daemon.store.upsert import cut, upsert

_SERIES_KEY_LENGTH = 400


class Transactions:
    """Writes the units of one node. `busy_ns` is the time spent on it, `rows` how many were written."""

    def __init__(self, engine: Engine, node: str) -> None:
        self._engine = engine
        self._node = node
        self._run_ids: dict[str, int] = {}
        self._series_ids: dict[Series, int] = {}
        self.rows = 0
        self.busy_ns = 0

    def write(self, unit: Unit) -> None:
        """Write one unit in one transaction.

        Raises:
            SQLAlchemyError: the database did not take it; nothing of it was stored.
            TypeError: it holds what cannot be stored at all.
        """
        began_ns = time.monotonic_ns()
        try:
            with self._engine.begin() as connection:
                self._write_all(connection, unit)
        except BaseException:
            self.forget()  # ids given inside the failed transaction do not exist
            raise
        finally:
            self.busy_ns += time.monotonic_ns() - began_ns
        self.rows += unit.rows

    def reopen(self, at_ns: int) -> None:
        """Have measurements from `at_ns` (UTC) on added up once more: they came late.

        Raises:
            SQLAlchemyError: the database does not answer.
        """
        with self._engine.begin() as connection:
            reopen(connection, at_ns)

    def forget(self) -> None:
        """Ask the database for the numbers of runs and series again."""
        self._run_ids.clear()
        self._series_ids.clear()

    def _write_all(self, connection: Connection, unit: Unit) -> None:
        self._runs(connection, unit.runs)
        rings = [{"node": self._node, **_fields(ring), "updated_at_ns": unit.at_ns} for ring in unit.rings]
        upsert(connection, models.RingRow, rings, ("node", "key"))
        windows = [self._window(connection, row) for row in unit.windows]
        upsert(connection, models.WindowRow, windows, ("run_id", "rank", "phase", "bucket", "start_ns"))
        levels = [self._level(connection, row) for row in unit.levels]
        upsert(connection, models.LevelRow, levels, ("run_id", "rank", "phase", "start_ns"))
        upsert(connection, models.SampleRow, self._samples(connection, unit.samples), ("series_id", "at_ns"))
        events = [{"node": self._node, **_fields(event), "key": event.key} for event in unit.events]
        upsert(connection, models.ChangeEventRow, events, ("node", "key"))
        facts = [{"node": self._node, **_fields(fact)} for fact in unit.facts]
        upsert(connection, models.FactRow, facts, ("node", "target", "subject"))
        rows = [self._regression(connection, row) for row in unit.regressions]
        upsert(
            connection,
            models.RegressionRow,
            rows,
            ("key",),
            keep=("run_id", "detected_at_ns", "started_at_ns"),
        )
        for replaced in unit.replaced:
            self._end_of_configuration(connection, replaced)
        for profile in unit.profiles:
            self._profile(connection, profile)
        told = {"node": self._node, "updated_at_ns": unit.at_ns}
        states = [{**told, "key": key, "state": dict(state)} for key, state in unit.states.items()]
        upsert(connection, models.DetectorStateRow, states, ("node", "key"))
        status = [{**told, "name": name, "value": dict(value)} for name, value in unit.status.items()]
        upsert(connection, models.StatusRow, status, ("node", "name"))

    @staticmethod
    def _runs(connection: Connection, runs: Iterable[Run]) -> None:
        """Each run once: it is told of with every ring of its server."""
        last: dict[str, Run] = {}
        for run in runs:
            last[run.key] = run_after(last.get(run.key), run)
        for has_environment, alike in groupby(last.values(), lambda run: bool(run.environment)):
            # A run read again from an old ring has no environment: what was stored while it ran stands.
            keep = ("started_at_ns",) if has_environment else ("started_at_ns", "environment")
            rows = [
                {**_fields(run), "arguments": dict(run.arguments), "environment": dict(run.environment)}
                for run in alike
            ]
            upsert(connection, models.RunRow, rows, ("key",), keep)

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
            key = cut(sample.series_key, _SERIES_KEY_LENGTH)
            values = {
                "node": self._node,
                "key": key,
                "target": sample.target,
                "name": sample.name,
                "labels": dict(sample.labels),
            }
            upsert(connection, models.SeriesRow, [values], ("node", "key"))
            query = select(models.SeriesRow.id).where(models.SeriesRow.node == self._node, models.SeriesRow.key == key)
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
            "physical_bound": None if row.physical_bound is None else dict(row.physical_bound),
        }

    def _profile(self, connection: Connection, stored: StoredProfile) -> None:
        run_id = self._run_id(connection, stored.run_key) if stored.run_key else None
        row = {"node": self._node, **profile_row(stored, run_id)}
        upsert(connection, models.ProfileRow, [row], ("key",), keep=("run_id",))
        write_kernels(connection, stored)

    def _end_of_configuration(self, connection: Connection, replaced: Replaced) -> None:
        """End what is open of every other configuration of a target: nobody watches it any more."""
        others = select(models.RunRow.id).where(
            models.RunRow.node == self._node,
            models.RunRow.target == replaced.target,
            models.RunRow.fingerprint != replaced.fingerprint,
        )
        connection.execute(
            update(models.RegressionRow)
            .where(models.RegressionRow.state == "open", models.RegressionRow.run_id.in_(others))
            .values(state="resolved", ended_at_ns=replaced.at_ns)
        )


def _fields(row: Any) -> dict[str, Any]:  # noqa: ANN401 (any flat dataclass)
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
