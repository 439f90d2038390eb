"""`cyclewatch silences`: no messages, for a time."""

import time
from typing import Annotated

import typer

from cyclewatch.daemon.cli.common import LIMIT, ConfigOption, JsonOption, LimitOption, console, listed, utc
from cyclewatch.daemon.cli.triage import ForOption, FromOption, OverOption, ReasonOption, WhoOption, acting, name_of
from cyclewatch.daemon.incidents.incident import Silence
from cyclewatch.daemon.triage.documents import SilenceDocument, json_of
from cyclewatch.daemon.triage.requests import SilenceRequest

app = typer.Typer(help="No messages about some incidents, for a time.", no_args_is_help=True)


@app.command("list")
def list_all(
    over: OverOption = False, limit: LimitOption = LIMIT, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List silences that hold or will, newest first."""
    with acting(config) as store:
        found = listed(store.silences(time.time_ns(), over=over, limit=limit + 1), limit)
    if as_json:
        typer.echo(json_of([SilenceDocument.model_validate(one) for one in found], indent=2))
    elif not found:
        typer.echo("nothing is silenced")
    else:
        _print_table(found)


@app.command("add")
def add(
    length: ForOption,
    why: ReasonOption,
    target: Annotated[str, typer.Option("--target", help="Name of a target, or a pattern: 'node7:*'.")] = "*",
    cause: Annotated[str, typer.Option("--cause", help="Kind of cause, or a pattern: 'gpu_*'.")] = "*",
    begin: FromOption = "now",
    who: WhoOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send no messages about incidents whose targets and first cause match; they are told when it ends."""
    now_ns = time.time_ns()
    words = {"target": target, "cause": cause, "from": begin, "for": length, "who": name_of(who), "why": why}
    with acting(config) as store:
        asked = SilenceRequest.model_validate(words)
        added = store.silence(asked.target, asked.cause, *asked.span_ns(now_ns), asked.who, asked.why, now_ns)
    if as_json:
        typer.echo(json_of(SilenceDocument.model_validate(added), indent=2))
    else:
        typer.echo(f"silence {added.number}: {added.target}, cause {added.cause}, until {utc(added.until_ns)}")


@app.command("end")
def end(
    number: Annotated[int, typer.Argument(help="Its number in the list.")],
    who: WhoOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a silence now."""
    with acting(config) as store:
        ended = store.end_silence(number, name_of(who), time.time_ns())
    if as_json:
        typer.echo(json_of(SilenceDocument.model_validate(ended), indent=2))
    else:
        typer.echo(f"silence {ended.number} is over")


def _print_table(silences: list[Silence]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("id", "target", "cause", "from", "until", "by", "why"):
        table.add_column(column)
    for one in silences:
        table.add_row(str(one.number), one.target, one.cause, utc(one.from_ns), utc(one.until_ns), one.who, one.why)
    console().print(table)
