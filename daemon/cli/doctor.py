"""`cyclewatch doctor`."""

import json
from dataclasses import asdict

import typer

from cyclewatch.daemon.cli.common import EXIT_FOUND, ConfigOption, JsonOption, console, settings_or_exit

_STYLES = {"good": "green", "note": "yellow", "bad": "red"}


def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say what is missing on this node and how to mend it; exit code 3 if something is bad."""
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
