"""Stored levels, series by series, for a back-test."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine, func, select

from cyclewatch.daemon.store.models import LevelRow, RegressionRow, RunRow
from cyclewatch.daemon.watch import SeriesKey
from cyclewatch.detectors.load.load_rows import FEATURES
from cyclewatch.detectors.watching.level_watch import Level
from cyclewatch.detectors.watching.shift_watch import Kind

_SLICE_NS = 86_400 * 10**9
"""Levels are read a day at a time: no transaction stays open, and no more than a day is held."""

_DOUBT = np.dtype("<f4")


def packed_doubt(doubt: tuple[float, ...]) -> bytes | None:
    """The doubt of a level as it is stored: float32, little endian; None for none."""
    return np.array(doubt, _DOUBT).tobytes() if doubt else None


def _unpacked_doubt(packed: bytes | None) -> tuple[float, ...]:
    """One number for each of `FEATURES`, so that all are equally long; 0 where none was stored."""
    size = len(FEATURES) * _DOUBT.itemsize
    return tuple(np.frombuffer((packed or b"").ljust(size, b"\0")[:size], _DOUBT).tolist())


@dataclass(frozen=True)
class LevelSeries:
    """The levels of all runs of one configuration, from the first window to the last (UTC nanoseconds)."""

    key: SeriesKey
    run_ids: tuple[int, ...]
    first_ns: int
    last_ns: int


@dataclass(frozen=True)
class Flagged:
    """A slowdown that the daemon flagged; its kind is None where it cannot be told."""

    kind: Kind
    started_at_ns: int
    detected_at_ns: int
    ended_at_ns: int | None
    effect: float
    ci: tuple[float, float]


class StoredLevels:
    """Reads levels, each question on a connection of its own.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def series(self) -> list[LevelSeries]:
        """All series that have levels of single windows, by node, target, rank and phase.

        Those of a minute or of an hour have other noise than what the daemon judges, and are left out.
        """
        parts = (
            select(
                LevelRow.run_id,
                LevelRow.rank,
                LevelRow.phase,
                func.min(LevelRow.start_ns).label("first_ns"),
                func.max(LevelRow.start_ns).label("last_ns"),
            )
            .where(LevelRow.length_ns == 0)
            .group_by(LevelRow.run_id, LevelRow.rank, LevelRow.phase)
            .subquery()
        )
        query = (
            select(parts, RunRow.node, RunRow.target, RunRow.fingerprint)
            .join(RunRow, RunRow.id == parts.c.run_id)
            .order_by(RunRow.node, RunRow.target, parts.c.rank, parts.c.phase, parts.c.first_ns)
        )
        found: dict[SeriesKey, LevelSeries] = {}
        with self._engine.connect() as connection:
            for row in connection.execute(query):
                key = SeriesKey(row.target, row.rank, row.phase, row.fingerprint, row.node)
                before = found.get(key, LevelSeries(key, (), row.first_ns, row.last_ns))
                found[key] = LevelSeries(
                    key, (*before.run_ids, row.run_id), before.first_ns, max(before.last_ns, row.last_ns)
                )
        return list(found.values())

    def levels(self, series: LevelSeries, min_cycles: int) -> Iterator[Level]:
        """Levels of the windows that the daemon judged, in order of time.

        Those with fewer than `min_cycles` cycles of a known load are left out. What releases before schema 0006 did not
        store is NaN, and no doubt.
        """
        query = (
            select(LevelRow.__table__)
            .where(
                LevelRow.run_id.in_(series.run_ids),
                LevelRow.rank == series.key.rank,
                LevelRow.phase == series.key.phase,
                LevelRow.known >= min_cycles,
                LevelRow.log_ratio.is_not(None),
                LevelRow.length_ns == 0,
            )
            .order_by(LevelRow.start_ns)
        )
        for from_ns in range(series.first_ns, series.last_ns + 1, _SLICE_NS):
            to_ns = min(from_ns + _SLICE_NS - 1, series.last_ns)
            with self._engine.connect() as connection:
                rows = connection.execute(query.where(LevelRow.start_ns.between(from_ns, to_ns))).all()
            for row in rows:
                yield Level(
                    at_ns=row.start_ns,
                    log_ratio=row.log_ratio,
                    standard_error=_number(row.standard_error),
                    effective=_number(row.effective),
                    tail=_number(row.tail),
                    known=row.known,
                    total=row.total,
                    doubt=_unpacked_doubt(row.doubt),
                )

    def flagged(self, series: LevelSeries, window_ns: int) -> list[Flagged]:
        """Slowdowns of this series that the daemon found by its windows, in order of detection."""
        query = (
            select(RegressionRow.__table__)
            .join(RunRow, RunRow.id == RegressionRow.run_id)
            .where(
                RunRow.node == series.key.node,
                RunRow.target == series.key.target,
                RunRow.fingerprint == series.key.fingerprint,
                RegressionRow.rank == series.key.rank,
                RegressionRow.phase == series.key.phase,
                RegressionRow.direction == "slower",
                RegressionRow.detected_at_ns.between(series.first_ns, series.last_ns + window_ns),
            )
            .order_by(RegressionRow.detected_at_ns)
        )
        with self._engine.connect() as connection:
            return [
                Flagged(
                    kind=Kind(row.kind),
                    started_at_ns=row.started_at_ns,
                    detected_at_ns=row.detected_at_ns,
                    ended_at_ns=row.ended_at_ns,
                    effect=row.effect,
                    ci=(row.ci_low, row.ci_high),
                )
                for row in connection.execute(query)
            ]


def _number(stored: float | None) -> float:
    return math.nan if stored is None else stored
