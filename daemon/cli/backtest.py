"""`cyclewatch backtest`: what other settings would have flagged in the stored past."""

import difflib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cyclewatch.config.settings import Detection, Settings
from cyclewatch.daemon.cli.common import (
    EXIT_CONFIG,
    EXIT_ERROR,
    ConfigOption,
    JsonOption,
    console,
    errors_exit,
    settings_or_exit,
    utc,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cyclewatch.daemon.store.levels import Flagged, LevelSeries, StoredLevels
    from cyclewatch.detectors.watching.backtest import Replayed
    from cyclewatch.detectors.watching.decision import Parameters
    from cyclewatch.detectors.watching.level_watch import Level
    from cyclewatch.detectors.watching.tracking import Regression

_SECTION = "detection."
_REPLAYED = (
    "reference_s",
    "min_effect",
    "min_tail_effect",
    "persistence_s",
    "false_alarms_per_hour",
    "history_s",
    "min_cycles",
)
"""Settings of detection that change what is made of stored levels."""

_SHOW_EVERY_NS = 3600 * 10**9
"""How often the progress is shown, in time of the series."""


@dataclass(frozen=True)
class _Asked:
    """One series: what would have been flagged, and what was."""

    series: "LevelSeries"
    replayed: "Replayed"
    now: "tuple[Regression, ...]"
    then: "list[Flagged]"


def backtest(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    target: Annotated[str | None, typer.Option("--target", help="Only this target.")] = None,
    rank: Annotated[str | None, typer.Option("--rank", help="Only this rank, as tp0.")] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="Only this phase, as decode.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="From here on: ISO 8601, UTC without a zone.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to here, as --since.")] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Another setting, as detection.min_effect=0.01; may be given again."
        ),
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Nothing got slower in this time: count what is flagged as false alarms.")
    ] = False,
) -> None:
    """Ask the decision again over the stored past, with other settings, beside what was flagged then.

    What is stored of a window is how far it was from what the workload model expected of its load, as the model had it
    then: the decision is asked again, not the model.
    """
    from cyclewatch.daemon.store.database import open_database
    from cyclewatch.daemon.store.levels import StoredLevels
    from cyclewatch.detectors.watching.decision import Parameters

    from_ns, to_ns = _instant(since, "--since"), _instant(until, "--until")
    if from_ns is not None and to_ns is not None and from_ns >= to_ns:
        raise typer.BadParameter("--since must be before --until")
    settings = settings_or_exit(config)
    detection = _detection(settings.detection, changed or [])
    with errors_exit():
        levels = StoredLevels(open_database(settings.database_url, create=False))
    wanted = {"target": target, "rank": rank, "phase": phase}
    chosen = _within(_chosen(levels.series(), wanted), from_ns, to_ns)
    parameters = Parameters.of(detection, settings.windows)
    with _progress(shown=not as_json) as bar:
        total = sum(one.last_ns - one.first_ns for one in chosen)
        task = bar.add_task("", total=max(1, total))
        asked = [_ask(levels, one, parameters, bar, task) for one in chosen]
    document = _document(asked, settings, detection, clean=clean)
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        _print(document)


def _fail(sentence: str, code: int = EXIT_ERROR) -> typer.Exit:
    typer.echo(f"cyclewatch: {sentence}", err=True)
    return typer.Exit(code)


def _instant(text: str | None, option: str) -> int | None:
    """An instant in UTC nanoseconds."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text}: not a time; write it as 2026-11-21T10:00:00Z") from None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()) * 10**9


def _detection(detection: Detection, changed: list[str]) -> Detection:
    """The settings of detection with those changed that were given; a wrong one ends the command with exit code 2."""
    from pydantic import ValidationError

    values = detection.model_dump()
    for one in changed:
        key, equals, value = (part.strip() for part in one.partition("="))
        name = key.removeprefix(_SECTION)
        if not equals:
            raise _fail(f"--set {one}: write it as KEY=VALUE, as detection.min_effect=0.01", EXIT_CONFIG)
        if not key.startswith(_SECTION) or name not in values:
            near = difflib.get_close_matches(key, [_SECTION + known for known in _REPLAYED], n=1)
            raise _fail(f"--set {key}: no such setting" + (f"; did you mean {near[0]}?" if near else ""), EXIT_CONFIG)
        if name not in _REPLAYED:
            raise _fail(
                f"--set {key}: changes nothing of what is stored; can be set: {', '.join(_REPLAYED)}", EXIT_CONFIG
            )
        values[name] = value
    try:
        return Detection(**values)
    except ValidationError as error:
        detail = error.errors()[0]
        message = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}"
        raise _fail(f"--set {_SECTION}{detail['loc'][0]}: {message}", EXIT_CONFIG) from None


def _chosen(series: "list[LevelSeries]", wanted: dict[str, str | None]) -> "list[LevelSeries]":
    """The series that were asked for; none, or a name that is not in the store, ends the command with exit code 1."""
    if not series:
        raise _fail("the store has no levels yet: they begin when a baseline stands; see `cyclewatch status`")
    for name, value in wanted.items():
        if value is None:
            continue
        known = sorted({str(getattr(one.key, name)) for one in series})
        series = [one for one in series if getattr(one.key, name) == value]
        if not series:
            raise _fail(f"no {name} {value} in the store; there is {', '.join(known)}")
    return series


def _within(series: "list[LevelSeries]", from_ns: int | None, to_ns: int | None) -> "list[LevelSeries]":
    """The series, cut to the time that was asked for; `to_ns` is not part of it."""
    first_ns = min(one.first_ns for one in series)
    last_ns = max(one.last_ns for one in series)
    cut = [
        replace(
            one,
            first_ns=one.first_ns if from_ns is None else max(one.first_ns, from_ns),
            last_ns=one.last_ns if to_ns is None else min(one.last_ns, to_ns - 1),
        )
        for one in series
    ]
    cut = [one for one in cut if one.first_ns <= one.last_ns]
    if not cut:
        raise _fail(f"no levels in that time; there are some from {utc(first_ns)} to {utc(last_ns)}")
    return cut


def _progress(*, shown: bool) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    screen = Console(stderr=True, markup=False)
    return Progress(*columns, console=screen, transient=True, disable=not (shown and sys.stderr.isatty()))


def _ask(
    levels: "StoredLevels", series: "LevelSeries", parameters: "Parameters", bar: "Progress", task: "TaskID"
) -> _Asked:
    from cyclewatch.detectors.watching.backtest import replay
    from cyclewatch.detectors.watching.online import Direction

    key = series.key
    bar.update(task, description=f"{key.target} {key.rank} {key.phase}")

    def read() -> "Iterator[Level]":
        shown_ns = series.first_ns
        for level in levels.levels(series, parameters.min_cycles):
            if level.at_ns - shown_ns > _SHOW_EVERY_NS:
                bar.advance(task, level.at_ns - shown_ns)
                shown_ns = level.at_ns
            yield level
        bar.advance(task, series.last_ns - shown_ns)

    replayed = replay(read(), parameters, key.name)
    slower = tuple(one for one in replayed.regressions if one.direction is Direction.SLOWER)
    return _Asked(series, replayed, slower, levels.flagged(series, parameters.window_ns))


def _document(asked: list[_Asked], settings: Settings, detection: Detection, *, clean: bool) -> dict[str, Any]:
    """The machine-readable form, kept stable."""
    hours = sum(one.replayed.hours for one in asked)
    now, then = sum(len(one.now) for one in asked), sum(len(one.then) for one in asked)
    totals: dict[str, Any] = {
        "series": len(asked),
        "windows": sum(one.replayed.windows for one in asked),
        "hours": hours,
        "now": now,
        "then": then,
    }
    if clean:
        rates = {name: 1000 * count / hours if hours else None for name, count in (("now", now), ("then", then))}
        totals["false_alarms_per_1000_hours"] = rates
    configured = settings.detection.model_dump()
    return {
        "settings": {
            name: {"now": value, "configured": configured[name]}
            for name, value in detection.model_dump().items()
            if name in _REPLAYED
        },
        "series": [
            {
                "target": one.series.key.target,
                "rank": one.series.key.rank,
                "phase": one.series.key.phase,
                "fingerprint": one.series.key.fingerprint,
                "from": utc(one.series.first_ns),
                "to": utc(one.series.last_ns),
                "windows": one.replayed.windows,
                "hours": one.replayed.hours,
                "now": [_flagged(found) for found in one.now],
                "then": [_flagged(found) for found in one.then],
            }
            for one in asked
        ],
        "totals": totals,
    }


def _flagged(one: "Regression | Flagged") -> dict[str, Any]:
    return {
        "kind": one.kind.value if one.kind else None,
        "started_at": utc(one.started_at_ns),
        "detected_at": utc(one.detected_at_ns),
        "ended_at": utc(one.ended_at_ns),
        "effect": one.effect,
        "ci": list(one.ci),
        "delay_s": (one.detected_at_ns - one.started_at_ns) / 1e9,
    }


def _print(document: dict[str, Any]) -> None:
    from rich.table import Table

    screen = console()
    settings = document["settings"].items()
    changes = [
        f"{_SECTION}{name} = {one['now']:g} (configured: {one['configured']:g})"
        for name, one in settings
        if one["now"] != one["configured"]
    ]
    screen.print("with " + (", ".join(changes) or "the settings as they are configured"))
    for one in document["series"]:
        place = f"{one['target']}, {one['rank']}, {one['phase']}"
        seen = f"{one['windows']:,} windows, {one['hours']:,.1f} hours after the baseline"
        screen.print(f"\n{place} (configuration {one['fingerprint']}): {seen}", style="bold")
        table = Table()
        for column in ("flagged", "kind", "since", "until", "effect", "found after"):
            table.add_column(column)
        rows = [(when, found) for when in ("now", "then") for found in one[when]]
        for when, found in sorted(rows, key=lambda row: (str(row[1]["started_at"]), row[0])):
            low, high = found["ci"]
            table.add_row(
                when,
                found["kind"] or "-",
                found["started_at"],
                found["ended_at"] or "open",
                f"{found['effect']:+.1%} ({low:+.1%} to {high:+.1%})",
                f"{found['delay_s']:,.0f} s",
            )
        if rows:
            screen.print(table)
        elif one["hours"]:
            screen.print("nothing flagged, neither now nor then")
        else:
            screen.print("too few windows for a baseline: nothing can be flagged")
    totals = document["totals"]
    screen.print(
        f"\n{totals['series']} series, {totals['windows']:,} windows, {totals['hours']:,.1f} hours: "
        f"{totals['now']} flagged with these settings, {totals['then']} then"
    )
    if rates := totals.get("false_alarms_per_1000_hours"):
        now, then = ("-" if rate is None else f"{rate:.2f}" for rate in (rates["now"], rates["then"]))
        screen.print(f"false alarms in 1,000 hours of a series: {now} with these settings, {then} then")
