"""Opening the database and bringing its schema up to date."""

from pathlib import Path

from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

HEAD = "0001"
"""Newest revision of the schema; a test holds it equal to Alembic's head."""

_BUSY_TIMEOUT_MS = 5_000


class StoreError(Exception):
    """The database cannot be used; the message names it and says what to do."""


def open_database(url: str, *, create: bool) -> Engine:
    """An engine for `url`, with its schema at `HEAD`.

    Raises:
        StoreError: no such driver, not reachable, not a database, or of a newer release.
    """
    try:
        address = make_url(url)
        sqlite = address.get_backend_name() == "sqlite"
        if sqlite and address.database:
            path = Path(address.database)
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            elif not path.exists():
                raise StoreError(f"{path}: no database yet: has `cyclewatch run` been started with this configuration?")
        engine = create_engine(address)
        if sqlite:
            event.listen(engine, "connect", _prepare_sqlite)
        _migrate(engine, address.render_as_string(hide_password=True), create=create)
    except (SQLAlchemyError, ArgumentError, ImportError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise StoreError(f"database {url_without_password(url)}: {reason}") from None
    except OSError as error:
        raise StoreError(f"database {url_without_password(url)}: {error.strerror}: {error.filename}") from None
    return engine


def url_without_password(url: str) -> str:
    """The address as it may be shown."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "that is not an address"


def _prepare_sqlite(connection: object, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _migrate(engine: Engine, name: str, *, create: bool) -> None:
    """Bring the schema to `HEAD`. Alembic is loaded only when there is something to do: it costs 12 MB."""
    with engine.connect() as connection:
        revision = None
        if inspect(connection).has_table("alembic_version"):
            revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision == HEAD:
        return
    if not create:
        raise StoreError(
            f"database {name}: schema {revision or 'missing'}, this release reads {HEAD}: start the daemon once"
        )
    from cyclewatch.daemon.store.migrate import known_revisions, upgrade  # noqa: PLC0415 (heavy, rarely needed)

    if revision is not None and revision not in known_revisions():
        raise StoreError(f"database {name}: schema {revision} is of a newer release of cyclewatch: install that one")
    upgrade(engine)
