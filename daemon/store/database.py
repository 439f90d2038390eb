"""Opening the database and bringing its schema up to date."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote_plus

from sqlalchemy import URL, Engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from cyclewatch.daemon.store.sqlite import sqlite_engine

HEAD = "0014"
"""Newest revision of the schema; a test holds it equal to Alembic's head."""

_BACKENDS = ("sqlite", "postgresql")
_SECRET_OPTIONS = ("password", "sslpassword")
_MASK = "***"


class StoreError(Exception):
    """The database cannot be used; the message names it and says what to do."""


def open_database(url: str, *, create: bool, upgrade_apart: bool = False) -> Engine:
    """An engine for `url`, with its schema at `HEAD`; `create` makes it, or upgrades one of an earlier release.

    `upgrade_apart` upgrades in a process of its own, for a daemon that would carry Alembic's memory for months.

    Raises:
        StoreError: no such driver, not reachable, not a database, or of a newer release.
    """
    shown = url_without_password(url)
    try:
        address = make_url(url)
        backend = address.get_backend_name()
        if backend not in _BACKENDS:
            raise StoreError(f"database {shown}: {backend} is not supported: use sqlite or postgresql")
        if backend == "sqlite":
            _prepare_place(address.database, create=create)
        engine = sqlite_engine(address) if backend == "sqlite" else _postgres_engine(address)
        try:
            _migrate(engine, shown, create=create, apart=upgrade_apart)
        except BaseException:
            engine.dispose()
            raise
    except (SQLAlchemyError, ImportError, ValueError, TypeError) as error:
        raise StoreError(f"database {shown}: {reason_of(error)}") from None
    except OSError as error:
        raise StoreError(f"database {shown}: {error.strerror}: {error.filename}") from None
    return engine


def _prepare_place(database: str | None, *, create: bool) -> None:
    """Make the directory of an SQLite file, or see that there is such a file."""
    if database in (None, "", ":memory:"):
        raise StoreError("store.url: a database in memory cannot be shared with the command line: name a file")
    path = Path(str(database))
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        raise StoreError(f"{path}: no database yet: has `cyclewatch run` been started with this configuration?")


def _postgres_engine(address: URL, *, patient: bool = False) -> Engine:
    try:
        from cyclewatch.daemon.store.postgres import postgres_engine  # noqa: PLC0415 (an extra)
    except ImportError:
        raise StoreError(
            f"database {shown_address(address)}: psycopg is missing: install cyclewatch[postgres]"
        ) from None
    return postgres_engine(address.set(drivername="postgresql+psycopg"), patient=patient)


def reason_of(error: Exception) -> str:
    """The first line of what the database itself says, without statement and values."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0]


def url_without_password(url: str) -> str:
    """The address as it may be shown."""
    try:
        return shown_address(make_url(url)) if url else ""
    except (ArgumentError, ValueError):
        return "with a malformed address"


def shown_address(address: URL) -> str:
    """The address without its password, wherever it stands."""
    secrets = {name: _MASK for name in _SECRET_OPTIONS if name in address.query}
    shown = address.update_query_dict(secrets).render_as_string(hide_password=True)
    return shown.replace(quote_plus(_MASK), _MASK)


def _migrate(engine: Engine, name: str, *, create: bool, apart: bool) -> None:
    """Bring the schema to `HEAD`. Alembic is loaded only when there is something to do: it costs 12 MB."""
    with engine.connect() as connection:
        revision = None
        if inspect(connection).has_table("alembic_version"):
            revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision == HEAD:
        return
    if not create:
        raise StoreError(
            f"database {name}: schema {revision or 'missing'}, this release reads {HEAD}: run `cyclewatch db upgrade`"
        )
    if apart:
        _upgrade_apart(engine, name)
        return
    from cyclewatch.daemon.store.migrate import known_revisions, upgrade  # noqa: PLC0415 (heavy, rarely needed)

    if revision is not None and revision not in known_revisions():
        raise StoreError(f"database {name}: schema {revision} is of a newer release of cyclewatch: install that one")
    if engine.dialect.name == "sqlite":
        upgrade(engine)
        return
    patient = _postgres_engine(engine.url, patient=True)
    try:
        upgrade(patient)
    finally:
        patient.dispose()


def _upgrade_apart(engine: Engine, name: str) -> None:
    address = engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "cyclewatch.daemon.store.migrate"]
    # By standard input: a command line, with the password in it, would be for all to see.
    done = subprocess.run(command, input=address, text=True, capture_output=True, check=False)  # noqa: S603 (our own module)
    if done.returncode:
        reason = done.stderr.strip().splitlines()
        raise StoreError(reason[-1] if reason else f"database {name}: the upgrade ended with {done.returncode}")
