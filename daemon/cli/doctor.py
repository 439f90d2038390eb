"""`cyclewatch doctor`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cyclewatch.daemon.cli.common import (
    EXIT_ERROR,
    EXIT_FOUND,
    ConfigOption,
    JsonOption,
    console,
    settings_or_exit,
)

_STYLES = {"good": "green", "note": "yellow", "bad": "red"}


def doctor(
    impact: Annotated[
        bool, typer.Option("--impact", help="Measure what sampling costs the servers; takes two minutes.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=2, max=25, help="With --impact: seconds with, and seconds without.")
    ] = 10.0,
    pairs: Annotated[
        int, typer.Option("--pairs", min=3, max=100, help="With --impact: how often with and without.")
    ] = 6,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is missing on this node and how to mend it; exit code 3 if something is bad."""
    if impact:
        _impact(config, seconds, pairs, as_json=as_json)
        return
    from cyclewatch.collectors.fetch import HttpFetcher
    from cyclewatch.daemon.check import Level
    from cyclewatch.daemon.doctor import examine

    checks = list(examine(settings_or_exit(config), HttpFetcher()))
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        screen = console()
        for check in checks:
            screen.print(f"{check.level.value:4}", style=_STYLES[check.level.value], end="  ")
            screen.print(f"{check.subject}: {check.finding}", markup=False)
            if check.mend:
                screen.print(f"      mend: {check.mend}", markup=False)
    if any(check.level is Level.BAD for check in checks):
        raise typer.Exit(EXIT_FOUND)


def _impact(config: Path | None, seconds: float, pairs: int, *, as_json: bool) -> None:
    from cyclewatch.daemon.control import ControlError
    from cyclewatch.daemon.impact import ImpactError, measure

    try:
        ranks = measure(settings_or_exit(config), pairs, seconds, lambda text: typer.echo(text, err=True))
    except (ImpactError, ControlError) as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    if as_json:
        document = [
            {**asdict(rank), "phases": [{**asdict(one), "sentence": one.sentence} for one in rank.phases]}
            for rank in ranks
        ]
        typer.echo(json.dumps({"seconds": seconds, "pairs": pairs, "ranks": document}, indent=2))
        return
    for rank in ranks:
        for one in rank.phases:
            size = f"{one.cycles:,} cycles of {one.median_ns / 1e6:.3f} ms in {one.pairs} pairs"
            typer.echo(f"{rank.target} {rank.rank}: {one.sentence}; {size}")
        if not rank.phases:
            typer.echo(f"{rank.target} {rank.rank}: too few cycles to tell: is there traffic?")
