"""`cyclewatch status`: what is watched, and how it goes."""

import json
import time
from typing import Any

import typer

from cyclewatch.daemon.cli.common import ConfigOption, JsonOption, console, history_or_exit, settings_or_exit, utc
from cyclewatch.daemon.cli.triage import acting
from cyclewatch.detectors.attribution import Event

_STALE_S = 30.0


def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show targets, ranks, phases and open regressions, as the daemon last stored them."""
    history = history_or_exit(settings_or_exit(config))
    stored = history.status()
    stored_ns, targets = stored.get("targets", (0, {}))
    _, profiling = stored.get("profiling", (0, {}))
    age_s = max(0.0, time.time() - stored_ns / 1e9)
    open_ones = [view for view in history.regressions() if view.state == "open"]
    with acting(config) as store:
        incidents = store.incidents()
    if as_json:
        document = {
            "updated_at": utc(stored_ns) if stored_ns else None,
            "stale": age_s > _STALE_S,
            "targets": targets,
            "profiling": profiling,
            "open_regressions": len(open_ones),
            "open_incidents": len(incidents),
            "events": [{**event, "at": utc(event["at_ns"])} for event in history.change_events()],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    if not stored_ns:
        typer.echo("the daemon has not stored anything yet")
        return
    if age_s > _STALE_S:
        typer.echo(f"the daemon last stored something {age_s:.0f} s ago: is it running?")
    if not targets:
        typer.echo("no server is being watched; `cyclewatch doctor` says why")
    _print_targets(targets)
    for event in history.change_events(limit=5):
        text = Event(event["at_ns"], event["kind"], event["subject"], event["before"], event["after"]).text
        typer.echo(f"{utc(event['at_ns'])} {event['target']}: {text}")
    if profiling and not profiling["on"]:
        typer.echo(f"profiling is off since {utc(profiling['since_ns'])}: {profiling['reason']}")
    typer.echo(f"open regressions: {len(open_ones)}" + ("; see `cyclewatch regressions list`" if open_ones else ""))
    typer.echo(f"open incidents: {len(incidents)}" + ("; see `cyclewatch incidents list`" if incidents else ""))


def _print_targets(targets: dict[str, Any]) -> None:
    from rich.table import Table

    screen = console()
    for name, target in sorted(targets.items()):
        table = Table(title=name, title_justify="left")
        for column in ("rank", "phase", "median cycle", "against expected", "baseline", "regression"):
            table.add_column(column)
        for phase in sorted(target["phases"], key=lambda row: (row["rank"], row["phase"])):
            ratio = phase["ratio"]
            table.add_row(
                phase["rank"],
                phase["phase"],
                f"{phase['median_s'] * 1e3:.3f} ms",
                "-" if ratio is None else f"{ratio - 1:+.1%}",
                f"{phase['baseline_progress']:.0%}",
                "open" if phase["regression_open"] else "",
            )
        screen.print(table)
        for rank in target["ranks"]:
            if rank["disabled"]:
                screen.print(f"{rank['rank']}: the hook switched itself off: see the server's log", style="red")
            if rank["lost"] or rank["torn"]:
                screen.print(f"{rank['rank']}: {rank['lost']} records lost, {rank['torn']} torn")
