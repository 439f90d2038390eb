"""`cyclewatch profiles`: the kernel profiles that were taken, and whether more are."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cyclewatch.daemon.cli.common import (
    EXIT_ERROR,
    ConfigOption,
    JsonOption,
    console,
    errors_exit,
    settings_or_exit,
    utc,
)
from cyclewatch.daemon.cli.profile import show_profile
from cyclewatch.daemon.store.profiles import ProfileHistory

_LISTED = 50

app = typer.Typer(help="Kernel profiles that were taken, and whether more are.", no_args_is_help=True)


@app.command("list")
def list_all(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the latest profiles and attempts, newest first."""
    from cyclewatch.daemon.reports.profile import profile_document

    documents = [profile_document(view.profile, view.id) for view in _history(config).latest(_LISTED)]
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
    elif not documents:
        typer.echo("no profile was taken yet; `cyclewatch doctor` says what it needs")
    else:
        _print_list(documents)


@app.command("show")
def show(
    number: Annotated[int, typer.Argument(help="Its number in the list.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one profile with its kernels and what it cost."""
    from cyclewatch.daemon.reports.profile import profile_document

    view = _history(config).profile(number)
    if view is None:
        typer.echo(f"cyclewatch: no profile {number}; see `cyclewatch profiles list`", err=True)
        raise typer.Exit(EXIT_ERROR)
    show_profile(profile_document(view.profile, view.id), as_json=as_json)


@app.command("on")
def switch_on(config: ConfigOption = None) -> None:
    """Take profiles again, after one cost too much or somebody switched them off."""
    _switch(config, on=True)


@app.command("off")
def switch_off(config: ConfigOption = None) -> None:
    """Take no more profiles until somebody switches them on."""
    _switch(config, on=False)


def _switch(config: Path | None, *, on: bool) -> None:
    from cyclewatch.daemon.control import ControlError, asked

    try:
        with asked(settings_or_exit(config).state_dir, {"do": "switch", "on": on}) as answer:
            typer.echo(f"profiling is {'on' if answer['on'] else 'off'}; Kineto's channel: {answer['channel']}")
    except ControlError as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None


def _history(config: Path | None) -> ProfileHistory:
    from cyclewatch.daemon.store.database import open_database

    settings = settings_or_exit(config)
    with errors_exit():
        return ProfileHistory(open_database(settings.database_url, create=False))


def _print_list(documents: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("id", "target", "rank", "taken", "because of", "by", "state", "stall", "after", "refused because"):
        table.add_column(column)
    for one in documents:
        cost = one["cost"]
        stall_ns, after = cost.get("stall_ns"), cost.get("after_ratio")
        table.add_row(
            str(one["id"]),
            one["target"],
            one["rank"],
            utc(one["began_at_ns"]),
            one["reason"],
            one["method"] or "-",
            one["state"],
            "-" if stall_ns is None else f"{stall_ns / 1e6:.1f} ms",
            "-" if after is None else f"{after - 1:+.1%}",
            one["detail"],
        )
    console().print(table)
