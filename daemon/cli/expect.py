"""`cyclewatch expect` announces a change; `cyclewatch expectations` lists and ends what was announced."""

import time
from typing import Annotated

import typer

from cyclewatch.daemon.cli.common import LIMIT, ConfigOption, JsonOption, LimitOption, console, listed, utc
from cyclewatch.daemon.cli.triage import ForOption, FromOption, OverOption, ReasonOption, WhoOption, acting, name_of
from cyclewatch.daemon.incidents.incident import Expectation
from cyclewatch.daemon.triage.documents import ExpectationDocument, json_of
from cyclewatch.daemon.triage.requests import ExpectationRequest

app = typer.Typer(help="Announced changes, whose effects are no alarms.", no_args_is_help=True)


def expect(
    target: Annotated[str, typer.Argument(help="Name of a target, or a pattern: 'node7:*'.")],
    length: ForOption,
    why: ReasonOption,
    begin: FromOption = "now",
    who: WhoOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Announce a change: what begins on matching targets in its time is reported as its effect, not as an alarm."""
    now_ns = time.time_ns()
    words = {"target": target, "from": begin, "for": length, "who": name_of(who), "why": why}
    with acting(config) as store:
        asked = ExpectationRequest.model_validate(words)
        added = store.expect(asked.target, *asked.span_ns(now_ns), asked.who, asked.why, now_ns)
    if as_json:
        typer.echo(json_of(ExpectationDocument.model_validate(added), indent=2))
    else:
        span = f"from {utc(added.from_ns)} until {utc(added.until_ns)}"
        typer.echo(f"expectation {added.number}: what begins on {added.target} {span} is no alarm")


@app.command("list")
def list_all(
    over: OverOption = False, limit: LimitOption = LIMIT, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List announced changes whose time has not passed, newest first."""
    with acting(config) as store:
        found = listed(store.expectations(time.time_ns(), over=over, limit=limit + 1), limit)
    if as_json:
        typer.echo(json_of([ExpectationDocument.model_validate(one) for one in found], indent=2))
    elif not found:
        typer.echo("nothing is announced")
    else:
        _print_table(found)


@app.command("end")
def end(
    number: Annotated[int, typer.Argument(help="Its number in the list.")],
    who: WhoOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the time of an announced change now: what begins later is an alarm again."""
    with acting(config) as store:
        ended = store.end_expectation(number, name_of(who), time.time_ns())
    if as_json:
        typer.echo(json_of(ExpectationDocument.model_validate(ended), indent=2))
    else:
        typer.echo(f"expectation {ended.number} is over")


def _print_table(expectations: list[Expectation]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("id", "target", "from", "until", "by", "why"):
        table.add_column(column)
    for one in expectations:
        table.add_row(str(one.number), one.target, utc(one.from_ns), utc(one.until_ns), one.who, one.why)
    console().print(table)
