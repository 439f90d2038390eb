"""Hours: all cycles of a rank and phase in one row, beside the windows that they are made of.

A timeline of a month would have to read 300,000 windows of a phase at four loads, which takes SQLite half a second.
"""

from typing import Any

from sqlalchemy import Connection, delete, func, select

from cyclewatch.daemon.store.models import HourRow, LevelRow, WindowRow
from cyclewatch.daemon.store.rollup import HOUR_NS, begin_of
from cyclewatch.daemon.store.upsert import upsert

HOURS = "timeline"
"""Name of the row of the table rollups that says up to when there are hours."""

_KEY = ("run_id", "rank", "phase", "start_ns")
_MEANS = ("mean_ns", "p50_ns", "p99_ns")


def sum_up_hours(connection: Connection, from_ns: int, to_ns: int) -> None:
    """Write the hours from `from_ns` up to `to_ns` (UTC, both multiples of an hour) anew, from windows and levels."""
    connection.execute(delete(HourRow).where(HourRow.start_ns >= from_ns, HourRow.start_ns < to_ns))
    window, level = WindowRow, LevelRow
    key = (window.run_id, window.rank, window.phase, begin_of(window.start_ns, HOUR_NS))
    of_cycles = (
        select(
            *key,
            func.sum(window.count),
            func.max(window.max_ns),
            *(func.sum(window.count * getattr(window, name)) / func.sum(window.count) for name in _MEANS),
        )
        .where(window.start_ns >= from_ns, window.start_ns < to_ns, window.count > 0)
        .group_by(*key)
    )
    names = (*_KEY, "count", "max_ns", *_MEANS)
    hours: dict[tuple[Any, ...], dict[str, Any]] = {
        tuple(row[: len(_KEY)]): {**dict(zip(names, row, strict=True)), "log_ratio": None}
        for row in connection.execute(of_cycles)
    }
    key = (level.run_id, level.rank, level.phase, begin_of(level.start_ns, HOUR_NS))
    of_levels = (
        select(*key, func.sum(level.known * level.log_ratio) / func.nullif(func.sum(level.known), 0))
        .where(level.start_ns >= from_ns, level.start_ns < to_ns, level.log_ratio.is_not(None))
        .group_by(*key)
    )
    for *place, log_ratio in connection.execute(of_levels):
        if tuple(place) in hours:
            hours[tuple(place)]["log_ratio"] = log_ratio
    upsert(connection, HourRow, list(hours.values()), _KEY)
