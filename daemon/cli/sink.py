"""`cyclewatch sink`: where alerts go, and whether they arrive."""

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.config.alerts import Alerts
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerts.exchange import Delivered, Outcome, Refused, Request, Retry
from cyclewatch.daemon.alerts.message import Message, trial
from cyclewatch.daemon.alerts.outbox import Slot
from cyclewatch.daemon.alerts.post import Poster
from cyclewatch.daemon.alerts.senders.registry import SENDERS
from cyclewatch.daemon.alerts.senders.sender import Sender
from cyclewatch.daemon.alerts.sinks import SinkError, poster_for, sender_for
from cyclewatch.daemon.cli.common import (
    EXIT_CONFIG,
    EXIT_ERROR,
    EXIT_FOUND,
    ConfigOption,
    JsonOption,
    console,
    settings_or_exit,
)
from cyclewatch.daemon.clock import SystemClock, boot_id
from cyclewatch.daemon.store.database import StoreError, open_database, reason_of
from cyclewatch.daemon.store.outbox import Outbox

app = typer.Typer(help="Where alerts go: list it, try it.", no_args_is_help=True)

_LONGEST_WAIT_S = 90.0
"""No rate of a service makes one wait longer, unless it has asked for it."""


@app.command("list")
def list_all(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the sinks, without their secrets; exit code 3 if one cannot be used."""
    alerts = settings_or_exit(config).alerts
    rows = [_row(name, alerts) for name in alerts.sinks]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not rows:
        typer.echo("no sink is configured; docs/alerts.md says how")
    else:
        _print_table(rows)
    if any(row["problem"] for row in rows):
        raise typer.Exit(EXIT_FOUND)


@app.command("test")
def send_test(
    name: Annotated[str, typer.Argument(help="Its name in the configuration.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, with masks for secrets; send nothing.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test message, at the rate of the sink; exit code 1 if it was not taken, 2 if it is configured wrongly."""
    settings = settings_or_exit(config)
    try:
        sender = sender_for(name, settings.alerts, os.environ)
        poster = poster_for(sender, settings.alerts, os.environ)
    except SinkError as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_CONFIG) from None
    now_ns = time.time_ns()
    message = trial(name, settings.node or socket.gethostname(), now_ns)
    if dry_run:
        # Made with masks from the beginning: no secret comes near the output.
        masked = SENDERS[settings.alerts.sinks[name].type](sender.destination.without_secrets())
        _print_request(masked.payload(message, now_ns), as_json=as_json)
        return
    outcome = _sent(name, settings, sender, poster, message)
    document = {"sink": name, "type": settings.alerts.sinks[name].type, "url": sender.destination.shown}
    document |= _told(outcome)
    typer.echo(json.dumps(document, indent=2) if as_json else _sentence(document))
    if not isinstance(outcome, Delivered):
        raise typer.Exit(EXIT_ERROR)


def _sent(name: str, settings: Settings, sender: Sender, poster: Poster, message: Message) -> Outcome:
    """Send it when the rate of the sink allows, which the daemon keeps too: both count their attempts in the database.

    Without a database nothing can be counted, and it is sent at once.
    """
    from cyclewatch.daemon.alerts.deliver import deliver

    now, boot = SystemClock().now, boot_id(settings.host.proc)
    outcome: Outcome | None = None
    try:
        engine = open_database(settings.database_url, create=False)
        try:
            slot = _awaited(lambda: Outbox(engine).begin(name, sender.rates, now(), boot))
            if slot.attempt is None:
                return Retry(slot.wait_ns / 1e9, "its rate is used up, or it has asked to be left alone: test it later")
            outcome = deliver(sender, message, poster, now().wall_ns)
            rest_s = outcome.after_s if isinstance(outcome, Retry) else None
            Outbox(engine).end(slot.attempt, now(), boot, int((rest_s or 0.0) * 1e9))
        finally:
            engine.dispose()
    except (StoreError, SQLAlchemyError) as error:
        typer.echo(f"cyclewatch: the test is not counted against the rate of the sink: {reason_of(error)}", err=True)
    return deliver(sender, message, poster, now().wall_ns) if outcome is None else outcome


def _awaited(begin: Callable[[], Slot]) -> Slot:
    """The slot, or one without an attempt where it would take too long to get one."""
    until_s = time.monotonic() + _LONGEST_WAIT_S
    slot = begin()
    while slot.attempt is None and time.monotonic() + slot.wait_ns / 1e9 <= until_s:
        time.sleep(slot.wait_ns / 1e9)
        slot = begin()
    return slot


def _row(name: str, alerts: Alerts) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sink": name,
        "type": alerts.sinks[name].type,
        "url": None,
        "rates": [],
        "resend_s": None,
        "problem": None,
    }
    try:
        sender = sender_for(name, alerts, os.environ)
    except SinkError as error:
        return {**row, "problem": str(error)}
    return {
        **row,
        "url": sender.destination.shown,
        "rates": [{"count": rate.count, "seconds": rate.seconds} for rate in sender.rates],
        "resend_s": sender.resend_s,
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("sink", "type", "goes to", "takes at most", "state"):
        table.add_column(column)
    for row in rows:
        rates = ", ".join(f"{rate['count']} in {rate['seconds']:g} s" for rate in row["rates"])
        table.add_row(row["sink"], row["type"], row["url"] or "", rates, row["problem"] or "ready")
    console().print(table)


def _print_request(request: Request, *, as_json: bool) -> None:
    document = {
        "method": "POST",
        "url": request.url,
        "headers": dict(request.headers),
        "body": json.loads(request.body),
    }
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"POST {request.url}")
    for header, value in request.headers.items():
        typer.echo(f"{header}: {value}")
    typer.echo(f"\n{json.dumps(document['body'], indent=2, ensure_ascii=False)}")


def _told(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Delivered():
            return {"outcome": "delivered", "retry_after_s": None, "reason": None}
        case Retry(after_s, reason):
            return {"outcome": "retry", "retry_after_s": after_s, "reason": reason}
        case Refused(reason):
            return {"outcome": "refused", "retry_after_s": None, "reason": reason}


def _sentence(document: dict[str, Any]) -> str:
    match document["outcome"]:
        case "delivered":
            return f"{document['sink']}: taken by {document['url']}"
        case "retry":
            after = f" after {document['retry_after_s']:g} s" if document["retry_after_s"] is not None else ""
            return f"{document['sink']}: not now, to be tried again{after}: {document['reason']}"
        case _:
            return f"{document['sink']}: refused: {document['reason']}"
