"""`cyclewatch db`: look after the database."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.cli.common import (
    EXIT_ERROR,
    EXIT_FOUND,
    ConfigOption,
    JsonOption,
    console,
    errors_exit,
    settings_or_exit,
    utc,
)
from cyclewatch.daemon.store.database import HEAD, open_database, reason_of, url_without_password

app = typer.Typer(no_args_is_help=True, help="Look after the database: upgrade, check, copy and thin it.")

_LENGTHS = {60 * 10**9: "by the minute", 3600 * 10**9: "by the hour"}


@app.command()
def upgrade(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Bring the schema to this release's; the daemon does so too when it starts."""
    settings = settings_or_exit(config)
    with _opened(settings, create=True):
        document = {"database": url_without_password(settings.database_url), "schema": HEAD}
    _say(document, f"{document['database']}: schema {HEAD}", as_json=as_json)


@app.command()
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Look for damage; exit code 3 where there is some."""
    from cyclewatch.daemon.store.sqlite import flaws

    settings = settings_or_exit(config)
    with _opened(settings) as engine, engine.connect() as connection:
        found = flaws(connection) if engine.dialect.name == "sqlite" else []
    name = url_without_password(settings.database_url)
    text = "\n".join(found) or f"{name}: sound, schema {HEAD}"
    _say({"database": name, "schema": HEAD, "flaws": found}, text, as_json=as_json)
    if found:
        typer.echo("cyclewatch: the database is damaged: stop the daemon and put a backup in its place", err=True)
        raise typer.Exit(EXIT_FOUND)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="File to write; it must not be there yet.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy an SQLite database, as it is at one moment, while the daemon goes on."""
    from cyclewatch.daemon.store.sqlite import backup as copy

    settings = settings_or_exit(config)
    with _opened(settings) as engine:
        if engine.dialect.name != "sqlite":
            raise _fail("backup copies SQLite alone: use pg_dump for PostgreSQL")
        try:
            copy(Path(str(engine.url.database)), file)
        except OSError as error:
            raise _fail(f"{error.filename or file}: {error.strerror}") from None
        except sqlite3.Error as error:
            raise _fail(f"{file}: {error}") from None
    size_bytes = file.stat().st_size
    _say({"file": str(file), "bytes": size_bytes}, f"{file}: {_size(size_bytes)}", as_json=as_json)


@app.command()
def prune(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Thin and delete now what the settings no longer keep; the daemon does so little by little."""
    from cyclewatch.daemon.store.retention import Upkeep
    from cyclewatch.daemon.store.start import node_name
    from cyclewatch.daemon.store.stats import statistics

    settings = settings_or_exit(config)
    with _opened(settings) as engine:
        upkeep = Upkeep(engine, node_name(settings), settings.store, time.time_ns, lambda: None)
        before = statistics(engine)
        with nullcontext() if as_json else console().status("thinning"):
            upkeep.catch_up()
        after = statistics(engine)
    rows = sum(before.rows.values()), sum(after.rows.values())
    document = {
        "rows_before": rows[0],
        "rows_after": rows[1],
        "bytes_before": before.size_bytes,
        "bytes_after": after.size_bytes,
    }
    sizes = f"{_size(before.size_bytes)} before, {_size(after.size_bytes)} now"
    _say(document, f"{rows[0]} rows before, {rows[1]} now; {sizes}", as_json=as_json)


@app.command()
def stats(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show how large the database is, and of what; every row is counted."""
    from cyclewatch.daemon.store.spool import Spool
    from cyclewatch.daemon.store.stats import statistics

    settings = settings_or_exit(config)
    with _opened(settings) as engine:
        found = statistics(engine)
    waiting_bytes = Spool(settings.state_dir / "spool", settings.store.spool_bytes).size_bytes
    document = {
        "database": url_without_password(settings.database_url),
        "schema": HEAD,
        "bytes": found.size_bytes,
        "waiting_bytes": waiting_bytes,
        "first_window": utc(found.first_ns),
        "last_window": utc(found.last_ns),
        "nodes": list(found.nodes),
        "windows_by_length_s": {str(length // 10**9): count for length, count in found.windows.items()},
        "rows": found.rows,
    }
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"{document['database']}: schema {HEAD}, {_size(found.size_bytes)}")
    if waiting_bytes:
        typer.echo(f"waiting on disk until the database takes it: {_size(waiting_bytes)}")
    if found.first_ns is not None:
        typer.echo(f"windows from {document['first_window']} to {document['last_window']}")
    for length, count in found.windows.items():
        typer.echo(f"  {count} {_LENGTHS.get(length, f'of {length / 1e9:g} s')}")
    for name, count in found.rows.items():
        typer.echo(f"{name}: {count} rows")


@contextmanager
def _opened(settings: Settings, *, create: bool = False) -> Iterator[Engine]:
    """The database; whatever it does not do ends the command with one sentence and exit code 1."""
    with errors_exit():
        engine = open_database(settings.database_url, create=create)
    try:
        yield engine
    except SQLAlchemyError as error:
        raise _fail(f"database {url_without_password(settings.database_url)}: {reason_of(error)}") from None
    finally:
        engine.dispose()


def _say(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(document, indent=2) if as_json else text)


def _fail(sentence: str) -> typer.Exit:
    typer.echo(f"cyclewatch: {sentence}", err=True)
    return typer.Exit(EXIT_ERROR)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
