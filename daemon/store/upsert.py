"""Inserting rows that may be there already, on both databases, and making texts fit."""

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, String, Table

from cyclewatch.daemon.store.models import Base

_HASH_LENGTH = 16


def upsert(
    connection: Connection,
    model: type[Base],
    rows: list[dict[str, Any]],
    key: Sequence[str],
    keep: Sequence[str] = (),
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
    if changed:
        statement = insert.on_conflict_do_update(index_elements=list(key), set_=changed)
    else:
        statement = insert.on_conflict_do_nothing(index_elements=list(key))
    connection.execute(statement, _fitted(table, rows))


def _fitted(table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose texts fit: PostgreSQL refuses what is longer than its column, and the character 0."""
    lengths = {
        column.name: column.type.length
        for column in table.columns
        if isinstance(column.type, String) and column.name in rows[0]
    }
    return [{**row, **{name: cut(row[name], length) for name, length in lengths.items()}} for row in rows]


def cut(text: str, length: int | None) -> str:
    """A text as it can be stored. One that is too long ends in a hash of the whole, so that two of them stay two."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if length is None or len(text) <= length:
        return text
    whole = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_HASH_LENGTH]
    return text[: max(0, length - _HASH_LENGTH)] + whole[:length]
