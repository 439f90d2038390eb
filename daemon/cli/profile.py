"""`cyclewatch profile`: take a kernel profile now."""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from cyclewatch.daemon.cli.common import EXIT_ERROR, ConfigOption, JsonOption, console, settings_or_exit, utc

_KERNELS_SHOWN = 30


def profile(
    target: Annotated[str, typer.Argument(help="The server; not needed where there is one.")] = "",
    pid: Annotated[int | None, typer.Option("--pid", min=1, help="Any PyTorch process that asks the daemon.")] = None,
    duration_ms: Annotated[
        int | None,
        typer.Option("--duration-ms", min=10, max=10_000, help="Milliseconds to record; default from the settings."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the trace itself in this file.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the running daemon for a kernel profile, and show it; takes some 10 seconds."""
    from cyclewatch.daemon.control import ControlError, asked

    question = {"do": "profile", "target": target, "pid": pid, "duration_ms": duration_ms}
    try:
        with asked(settings_or_exit(config).state_dir, question) as answer:
            if out is not None and answer["file"]:
                shutil.copyfile(answer["file"], out)
    except ControlError as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    except OSError as error:
        typer.echo(f"cyclewatch: {error.filename}: {error.strerror}: the trace was not kept", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    show_profile(answer["profile"], as_json=as_json)
    if answer["profile"]["state"] != "kept":
        raise typer.Exit(EXIT_ERROR)


def show_profile(document: dict[str, Any], *, as_json: bool) -> None:
    """Print one profile, for programs or for people."""
    from cyclewatch.daemon.reports.profile import cost_sentence

    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    screen = console()
    number = f"profile {document['id']}" if document["id"] else "profile"
    place = " ".join(word for word in (document["target"], document["rank"]) if word)
    screen.print(f"{number} of {place} (pid {document['pid']}), {utc(document['began_at_ns'])}", style="bold")
    taken = f"taken because of: {document['reason']}, by {document['method'] or 'no way'}"
    screen.print(f"{taken}; {document['state']}" + (f": {document['detail']}" if document["detail"] else ""))
    if document["id"]:
        screen.print(cost_sentence(document["cost"]))
    for warning in document["warnings"]:
        screen.print(f"note: {warning}")
    if document["totals"]:
        _print_totals(document["totals"])
    if kernels := document.get("kernels"):
        _print_kernels(kernels)
    elif document["state"] == "kept":
        screen.print("its kernels were given up with age")


def _print_totals(totals: dict[str, Any]) -> None:
    parts = [
        f"{text} {totals[key] / 1e6:,.2f} ms"
        for key, text in (("busy_ns", "busy"), ("idle_ns", "idle"), ("span_ns", "of"))
        if totals.get(key) is not None
    ]
    parts += [f"{count} {phase} cycles" for phase, count in (totals.get("cycles") or {}).items()]
    if parts:
        console().print(", ".join(parts))


def _print_kernels(kernels: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("kernel", "family", "phase"):
        table.add_column(column)
    for column in ("calls", "total", "share", "mean", "longest"):
        table.add_column(column, justify="right")
    for one in kernels[:_KERNELS_SHOWN]:
        table.add_row(
            one["short"],
            one["family"],
            one["phase"],
            f"{one['calls']:,}",
            f"{one['total_ns'] / 1e6:,.3f} ms",
            f"{one['share']:.1%}",
            _us(one["mean_ns"]),
            _us(one["max_ns"]),
        )
    console().print(table)
    if (more := len(kernels) - _KERNELS_SHOWN) > 0:
        console().print(f"and {more} more; --json has them all")


def _us(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1e3:,.1f} µs"
