"""`cyclewatch regressions`: what was found, with its causes."""

from typing import Annotated

import typer

from cyclewatch.daemon.cli.common import (
    EXIT_ERROR,
    EXIT_FOUND,
    ConfigOption,
    JsonOption,
    console,
    history_or_exit,
    settings_or_exit,
    utc,
)
from cyclewatch.daemon.reports.regression import regression_markdown
from cyclewatch.daemon.store.history import RegressionView
from cyclewatch.daemon.triage.documents import RegressionDetail, RegressionDocument, json_of

app = typer.Typer(help="Regressions that were found.", no_args_is_help=True)


@app.command("list")
def list_all(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    improvements: Annotated[bool, typer.Option("--improvements", help="Show lasting improvements too.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit with code 3 if one is open.")] = False,
) -> None:
    """List regressions, newest first."""
    views = history_or_exit(settings_or_exit(config)).regressions(all_directions=improvements)
    if as_json:
        typer.echo(json_of([RegressionDocument.model_validate(view) for view in views], indent=2))
    elif not views:
        typer.echo("no regression found")
    else:
        _print_table(views)
    if fail and any(view.state == "open" for view in views):
        raise typer.Exit(EXIT_FOUND)


@app.command("show")
def show(
    number: Annotated[int, typer.Argument(help="Its number in the list.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one regression with its split, causes and evidence."""
    view = history_or_exit(settings_or_exit(config)).regression(number)
    if view is None:
        typer.echo(f"cyclewatch: no regression {number}; see `cyclewatch regressions list`", err=True)
        raise typer.Exit(EXIT_ERROR)
    if as_json:
        typer.echo(json_of(RegressionDetail.model_validate(view), indent=2))
    else:
        typer.echo(regression_markdown(view), nl=False)


def _print_table(views: list[RegressionView]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("id", "target", "rank", "phase", "kind", "state", "since", "effect", "first cause"):
        table.add_column(column)
    for view in views:
        table.add_row(
            str(view.id),
            view.target,
            view.rank,
            view.phase,
            view.kind,
            view.state,
            utc(view.started_at_ns),
            f"{view.effect:+.1%} ({view.ci[0]:+.1%} to {view.ci[1]:+.1%})",
            view.causes[0]["subject"] if view.causes else "not shown",
        )
    console().print(table)
