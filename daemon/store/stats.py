"""How large the store is, and of what."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, func, select

from cyclewatch.daemon.store import (
    incident_models,  # noqa: F401 (its tables belong to `Base.metadata`)
    models,
)
from cyclewatch.daemon.store.sqlite import used_bytes


@dataclass(frozen=True)
class Statistics:
    """Rows by table, bytes in use, and when the first and the last window began (UTC nanoseconds).

    `windows` counts the windows by their length in nanoseconds, `nodes` are those that ever had a server.
    """

    size_bytes: int
    rows: dict[str, int]
    windows: dict[int, int]
    first_ns: int | None
    last_ns: int | None
    nodes: tuple[str, ...]


def statistics(engine: Engine) -> Statistics:
    """The statistics; every row is counted, which takes seconds in a large database.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    window, run = models.WindowRow, models.RunRow
    with engine.connect() as connection:
        by_length = select(window.length_ns, func.count().label("windows")).group_by(window.length_ns)
        first_ns, last_ns = connection.execute(select(func.min(window.start_ns), func.max(window.start_ns))).one()
        return Statistics(
            size_bytes=_size_bytes(connection),
            rows=dict(_rows(connection)),
            windows={row.length_ns: row.windows for row in connection.execute(by_length.order_by(window.length_ns))},
            first_ns=first_ns,
            last_ns=last_ns,
            nodes=tuple(connection.execute(select(run.node).distinct().order_by(run.node)).scalars()),
        )


def _rows(connection: Connection) -> Iterator[tuple[str, int]]:
    for name, table in sorted(models.Base.metadata.tables.items()):
        yield name, connection.execute(select(func.count()).select_from(table)).scalar_one()


def _size_bytes(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        return used_bytes(connection)
    return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
