"""Measurements added up into coarser ones, in their place: whoever reads finds the same tables, with fewer rows.

A row of a minute or an hour stands at the beginning of it. The database adds up, and gives sums alone; but sketches,
which it cannot merge, come here one by one.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    and_,
    case,
    cast,
    delete,
    func,
    inspect,
    literal_column,
    null,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute

from cyclewatch.collectors.records import STAGES
from cyclewatch.daemon.store.models import Base, LevelRow, SampleRow, WindowRow
from cyclewatch.daemon.store.upsert import upsert
from cyclewatch.detectors.statistics.sketch import merge, quantiles

MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS

_QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99}
_MEANS = ("mean_ns", *_QUANTILES, *(f"{stage}_ns" for stage in STAGES))
_LOADS = ("batch_size", "new_tokens", "kv_tokens", "queue_length")
_WINDOW_KEY = ("run_id", "rank", "phase", "start_ns", "bucket")


def roll_up(connection: Connection, from_ns: int, to_ns: int, length_ns: int) -> None:
    """Make one row of all rows of a series in each `length_ns`, in the time from `from_ns` up to `to_ns` (UTC).

    Both are multiples of `length_ns`. What is coarser already stays.
    """
    _windows(connection, from_ns, to_ns, length_ns)
    _levels(connection, from_ns, to_ns, length_ns)
    _samples(connection, from_ns, to_ns, length_ns)


def begin_of(at_ns: InstrumentedAttribute[int], length_ns: int) -> ColumnElement[int]:
    """The last multiple of `length_ns` before an instant, or at it."""
    # Written out, not bound: PostgreSQL does not see that two parameters, of SELECT and GROUP BY, are the same.
    return at_ns - at_ns % literal_column(str(length_ns))


def _windows(connection: Connection, from_ns: int, to_ns: int, length_ns: int) -> None:
    """Means are weighted by their cycles, the ratio on the CPU by the time of those where it was sampled.

    Quantiles come from the sketches. Windows of schema 0001 have none: the means of their quantiles stand for those.
    """
    row = WindowRow
    here = and_(row.start_ns >= from_ns, row.start_ns < to_ns, row.length_ns <= length_ns)
    key = (row.run_id, row.rank, row.phase, begin_of(row.start_ns, length_ns), row.bucket)
    time_ns = row.count * sum((getattr(row, f"{stage}_ns") for stage in STAGES[1:]), row.schedule_ns)
    sampled = func.sum(time_ns).filter(row.on_cpu_ratio.is_not(None))
    query = (
        select(
            *key,
            func.sum(row.count),
            func.max(row.max_ns),
            func.sum(time_ns * row.on_cpu_ratio) / func.nullif(sampled, 0),
            *(func.sum(row.count * getattr(row, name)) / func.sum(row.count) for name in (*_MEANS, *_LOADS)),
        )
        .where(here, row.count > 0)
        .group_by(*key)
    )
    names = (*_WINDOW_KEY, "count", "max_ns", "on_cpu_ratio", *_MEANS, *_LOADS)
    rows = [
        {name: int(value) if name == "count" else value for name, value in zip(names, one, strict=True)}
        for one in connection.execute(query)
    ]
    sketches: dict[tuple[Any, ...], list[bytes]] = defaultdict(list)
    for *place, sketch in connection.execute(select(*key, row.sketch).where(here)):
        if sketch is not None:
            sketches[tuple(place)].append(sketch)
    for one in rows:
        one["length_ns"] = length_ns
        one.update(_from_sketches(sketches.get(tuple(one[name] for name in _WINDOW_KEY), ())))
    connection.execute(delete(row).where(here))
    upsert(connection, row, [{"sketch": None, **one} for one in rows], _WINDOW_KEY)


def _from_sketches(sketches: Iterable[bytes]) -> dict[str, Any]:
    """The sketch of all, and its quantiles; nothing where there are none, or one is damaged."""
    try:
        whole = merge(sketches)
        values = quantiles(whole, tuple(_QUANTILES.values()))
    except ValueError:
        return {}
    return {"sketch": whole, **dict(zip(_QUANTILES, values, strict=True))} if values[0] == values[0] else {}


def _levels(connection: Connection, from_ns: int, to_ns: int, length_ns: int) -> None:
    """Means weighted by the cycles of known load.

    The standard error is the mean of the errors, as if the noise of neighbouring windows were one and the same: never
    too small. What only a verdict over single windows needs, the doubt, is given up.
    """
    row = LevelRow
    here = and_(row.start_ns >= from_ns, row.start_ns < to_ns, row.length_ns <= length_ns)
    key = (row.run_id, row.rank, row.phase, begin_of(row.start_ns, length_ns))
    means = {
        name: func.sum(row.known * column) / func.nullif(func.sum(row.known).filter(column.is_not(None)), 0)
        for name, column in (
            ("log_ratio", row.log_ratio),
            ("standard_error", row.standard_error),
            ("tail", row.tail),
        )
    }
    columns: dict[str, Any] = {
        **dict(zip(("run_id", "rank", "phase", "start_ns"), key, strict=True)),
        **means,
        "effective": func.sum(row.effective),
        "doubt": null(),
        "known": cast(func.sum(row.known), Integer),
        "total": cast(func.sum(row.total), Integer),
        "suspected": func.max(case((row.suspected, 1), else_=0)) == 1,
        "length_ns": literal_column(str(length_ns)),
    }
    _replace(connection, row, columns, key, here)


def _samples(connection: Connection, from_ns: int, to_ns: int, length_ns: int) -> None:
    """The mean of the readings."""
    row = SampleRow
    here = and_(row.at_ns >= from_ns, row.at_ns < to_ns)
    key = (row.series_id, begin_of(row.at_ns, length_ns))
    columns: dict[str, Any] = {"series_id": key[0], "at_ns": key[1], "value": func.avg(row.value)}
    _replace(connection, row, columns, key, here)


def _replace(
    connection: Connection,
    model: type[Base],
    columns: dict[str, Any],
    key: tuple[Any, ...],
    here: ColumnElement[bool],
) -> None:
    """Put the sums in the place of what they are made from. That goes first: a database that is full has room then."""
    query = select(*(column.label(name) for name, column in columns.items())).where(here).group_by(*key)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    connection.execute(delete(model).where(here))
    upsert(connection, model, rows, tuple(column.name for column in inspect(model).primary_key))
