"""The outbox in the database: messages that wait for their sinks, and what became of them."""

import importlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select, update

from cyclewatch.daemon.alerts.message_json import message_document
from cyclewatch.daemon.alerts.outbox import Entry, Standing
from cyclewatch.daemon.store.incident_models import OutboxRow


def put(connection: Connection, entries: Iterable[Entry], now_ns: int) -> None:
    """Store `entries` in the caller's transaction; one whose key is there already is left out.

    An entry that is not held tells all of its incident, so what is held of it for the same sink is told with it.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    insert: Any = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(OutboxRow)
    for entry in entries:
        values = {
            "key": entry.key,
            "thread": entry.thread,
            "sink": entry.sink,
            "state": entry.standing.value,
            "message": message_document(entry.message),
            "created_at_ns": now_ns,
            "not_before_ns": entry.not_before_ns,
            "attempts": 0,
            "reason": "",
        }
        stored = connection.execute(insert.values(values).on_conflict_do_nothing(index_elements=["key"]))
        if stored.rowcount == 1 and entry.standing is Standing.PENDING:
            connection.execute(
                update(OutboxRow)
                .where(
                    OutboxRow.thread == entry.thread,
                    OutboxRow.sink == entry.sink,
                    OutboxRow.state == Standing.HELD.value,
                )
                .values(state=Standing.TOLD_TOGETHER.value, done_at_ns=now_ns)
            )


def told(connection: Connection, thread: str) -> frozenset[str]:
    """The sinks that have been told of an incident, or are going to be.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    query = select(OutboxRow.sink).where(OutboxRow.thread == thread).distinct()
    return frozenset(connection.execute(query).scalars())
