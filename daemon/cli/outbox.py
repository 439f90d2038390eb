"""`cyclewatch outbox`: messages that wait for their sinks, and those that were given up."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.daemon.cli.common import (
    EXIT_ERROR,
    LIMIT,
    ConfigOption,
    JsonOption,
    LimitOption,
    console,
    errors_exit,
    listed,
    settings_or_exit,
    utc,
)
from cyclewatch.daemon.printable import printable
from cyclewatch.daemon.store.database import open_database, reason_of
from cyclewatch.daemon.store.outbox_view import OutboxView, ResendError, StoredEntry

app = typer.Typer(help="Messages that wait for their sinks, and those that were given up.", no_args_is_help=True)

_REASON_MAX = 80


@app.command("list")
def list_all(
    dead: Annotated[bool, typer.Option("--dead", help="Those alone that were given up.")] = False,
    done: Annotated[bool, typer.Option("--all", help="Those too that were told, as long as they are kept.")] = False,
    limit: LimitOption = LIMIT,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List messages that wait or were given up, newest first, and why."""
    with _outbox(config) as outbox:
        found = listed(outbox.entries(dead=dead, done=done, limit=limit + 1), limit)
    if as_json:
        typer.echo(json.dumps([_document(one) for one in found], indent=2))
    elif not found:
        typer.echo("no message was given up" if dead else "no message waits or was given up")
    else:
        _print_table(found)


@app.command("resend")
def resend(
    number: Annotated[int | None, typer.Argument(metavar="ID", help="Its number in the list.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="All that were given up and are not overtaken.")] = False,
    config: ConfigOption = None,
) -> None:
    """Send a message that was given up, or that waits, as soon as the rate of its sink allows.

    One whose incident has gone on since, at the same sink, is not sent: it would be taken for news.
    """
    if (number is None) == (not dead):
        raise typer.BadParameter("give the number of a message, or --dead")
    with _outbox(config) as outbox:
        if number is None:
            count = outbox.resend_dead(time.time_ns())
        else:
            outbox.resend(number, time.time_ns())
            count = 1
    typer.echo(f"{count} message{'' if count == 1 else 's'} will be sent again")


@contextlib.contextmanager
def _outbox(config: Path | None) -> Iterator[OutboxView]:
    """The outbox; what goes wrong with it becomes one sentence and exit code 1."""
    settings = settings_or_exit(config)
    with errors_exit():
        engine = open_database(settings.database_url, create=False)
    try:
        yield OutboxView(engine)
    except (ResendError, SQLAlchemyError) as error:
        typer.echo(f"cyclewatch: {reason_of(error)}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    finally:
        engine.dispose()


def _document(one: StoredEntry) -> dict[str, Any]:
    message = one.message
    return {
        "id": one.number,
        "key": one.key,
        "sink": one.sink,
        "standing": one.standing.value,
        "incident": message.incident if message else None,
        "state": message.state.value if message else None,
        "severity": message.severity.value if message else None,
        "created_at": utc(one.created_at_ns),
        "not_before": utc(one.not_before_ns),
        "attempts": one.attempts,
        "last_attempt_at": utc(one.last_attempt_ns),
        "done_at": utc(one.done_at_ns),
        "reason": one.reason,
    }


def _print_table(entries: list[StoredEntry]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("id", "sink", "message", "stands", "since", "attempts", "why"):
        table.add_column(column)
    for one in entries:
        told = f"incident {one.message.incident} {one.message.state}" if one.message else "of another release"
        since = utc(one.done_at_ns or one.created_at_ns) or ""
        reason = printable(one.reason, _REASON_MAX)
        table.add_row(str(one.number), one.sink, printable(told), one.standing, since, str(one.attempts), reason)
    console().print(table)
