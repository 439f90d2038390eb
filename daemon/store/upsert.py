"""Inserting rows that may be there already, on both databases, and making texts fit."""

import hashlib
import importlib
from collections.abc import Sequence
from functools import cache
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
    """Insert rows, or update the ones whose `key` is there already, leaving the columns in `keep` as they were.

    All rows have the same columns.
    """
    if not rows:
        return
    table = model.__table__
    assert isinstance(table, Table)
    names = tuple(rows[0])
    statement = _statement(connection.dialect.name, table, names, tuple(key), tuple(keep))
    connection.execute(statement, _fitted(rows, _lengths(table, names)))


@cache
def _statement(dialect: str, table: Table, names: tuple[str, ...], key: tuple[str, ...], keep: tuple[str, ...]) -> Any:  # noqa: ANN401 (an INSERT of either dialect)
    """Kept, since building them anew was a third of what a transaction took."""
    # Both dialects have an INSERT of their own with ON CONFLICT; only the one in use is loaded.
    insert = importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    changed = {name: insert.excluded[name] for name in names if name not in key and name not in keep}
    if changed:
        return insert.on_conflict_do_update(index_elements=list(key), set_=changed)
    return insert.on_conflict_do_nothing(index_elements=list(key))


@cache
def _lengths(table: Table, names: tuple[str, ...]) -> dict[str, int | None]:
    """The columns that hold text, with the length of each; None for any."""
    return {
        column.name: column.type.length
        for column in table.columns
        if isinstance(column.type, String) and column.name in names
    }


def _fitted(rows: list[dict[str, Any]], lengths: dict[str, int | None]) -> list[dict[str, Any]]:
    """Rows whose texts fit: PostgreSQL refuses what is longer than its column, and the character 0."""
    if not lengths:
        return rows
    return [{**row, **{name: cut(row[name], length) for name, length in lengths.items()}} for row in rows]


def cut(text: str, length: int | None) -> str:
    """A text as it can be stored. One that is too long ends in a hash of the whole, so that two of them stay two."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if length is None or len(text) <= length:
        return text
    whole = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_HASH_LENGTH]
    return text[: max(0, length - _HASH_LENGTH)] + whole[:length]
