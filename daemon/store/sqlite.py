"""SQLite: how it is opened, how large it is, whether it is sound, and how it is copied while it is written to."""

import contextlib
import os
import sqlite3
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from cyclewatch.daemon.store.json_text import json_text

_BUSY_TIMEOUT_MS = 5_000
_COPY_PAGES = 2_000
_COPY_PAUSE_S = 0.01
_FREED_PAGES = 1_000


def sqlite_engine(address: URL) -> Engine:
    """An engine for a file; nothing is opened yet."""
    engine = create_engine(address, json_serializer=json_text)
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: object, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    if cursor.execute("PRAGMA page_count").fetchone() == (0,):
        # So that pages that were freed can be given back; it takes effect before the first table is made alone.
        cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def is_full(error: Exception) -> bool:
    """Whether a file could not grow any more."""
    return getattr(getattr(error, "orig", None), "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def used_bytes(connection: Connection) -> int:
    """Bytes of the file that hold something; what was freed is used again before the file grows."""
    return (_number(connection, "page_count") - _number(connection, "freelist_count")) * _number(
        connection, "page_size"
    )


def mostly_free(connection: Connection) -> bool:
    """Whether so much of the file is free that it will not soon be used again."""
    return _number(connection, "freelist_count") > _number(connection, "page_count") // 2


def _number(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def give_back(connection: Connection) -> None:
    """Give some of the freed pages back to the file system, where the file was made by schema 0009 or later.

    Raises:
        OperationalError: the file is locked, or cannot be written.
    """
    file = connection.connection.driver_connection
    assert isinstance(file, sqlite3.Connection)
    # As a script: as a statement the driver would do the first step alone, which gives back one page.
    script = f"PRAGMA incremental_vacuum({_FREED_PAGES})"
    try:
        file.executescript(script)
    except sqlite3.Error as error:  # past SQLAlchemy, which would have made it one of its own
        raise OperationalError(script, None, error) from error


def flaws(connection: Connection) -> list[str]:
    """What SQLite finds wrong with the file: damaged pages, indexes that disagree, rows without their parents."""
    said = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(20)")]
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(20)
    return [
        *(line for line in said if line != "ok"),
        *(f"a row of {table} refers to one of {parent} that is not there" for table, _, parent, _ in orphans),
    ]


def backup(source: Path, destination: Path) -> None:
    """Copy the database to a file that is not there yet, as it is at one moment, while others go on writing.

    Raises:
        FileExistsError: the file is there already.
        OSError: it cannot be written.
        sqlite3.Error: the database cannot be read, or the disk is full.
    """
    partial = destination.with_name(destination.name + ".partial")
    if destination.exists():
        raise FileExistsError(17, "is there already: name another file", str(destination))
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
            contextlib.closing(sqlite3.connect(partial)) as new,
        ):
            # One reading transaction: otherwise the copy would begin anew whenever somebody writes.
            old.execute("BEGIN")
            old.execute("SELECT count(*) FROM sqlite_master").fetchone()
            old.backup(new, pages=_COPY_PAGES, sleep=_COPY_PAUSE_S)
            new.execute("PRAGMA journal_mode=DELETE")
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
