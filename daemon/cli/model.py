"""`cyclewatch model`: what the workload model has learned."""

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.cli.common import (
    EXIT_ERROR,
    ConfigOption,
    JsonOption,
    console,
    history_or_exit,
    settings_or_exit,
    utc,
)
from cyclewatch.daemon.store.history import StoreHistory

if TYPE_CHECKING:
    from cyclewatch.detectors.load.workload import Coefficient

app = typer.Typer(help="The workload model: what a cycle is expected to take.", no_args_is_help=True)

_US, _MS = 1e3, 1e6
_FAR = 1.5
"""The step in which the model counts cached tokens beyond the baseline."""


@app.command("show")
def show(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    target: Annotated[str | None, typer.Option("--target", help="Only this target.")] = None,
) -> None:
    """Show what a cycle costs by its load, as it was learned of each series; exit code 1 if one cannot be read."""
    settings = settings_or_exit(config)
    history = history_or_exit(settings)
    documents, failed = [], False
    for key, saved_ns in _chosen(history, target).items():
        try:
            documents.append(_document(key, saved_ns, history, settings))
        except (ValueError, KeyError, TypeError) as error:
            reason = str(error) if isinstance(error, ValueError) else "not a state of a detector"
            typer.echo(f"cyclewatch: {key}: {reason}; the daemon learns this baseline anew", err=True)
            failed = True
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
    else:
        for document in documents:
            _print(document)
    if failed:
        raise typer.Exit(EXIT_ERROR)


def _chosen(history: StoreHistory, target: str | None) -> dict[str, int]:
    """Keys of the saved states that were asked for; none ends the command with exit code 1."""
    states = history.detector_states()
    if not states:
        typer.echo(
            "cyclewatch: the store has no model yet: has a server been watched? See `cyclewatch status`", err=True
        )
        raise typer.Exit(EXIT_ERROR)
    chosen = {key: at_ns for key, at_ns in states.items() if target in (None, _place(key)[0])}
    if not chosen:
        known = ", ".join(sorted({_place(key)[0] for key in states}))
        typer.echo(f"cyclewatch: no model of target {target} in the store; there is {known}", err=True)
        raise typer.Exit(EXIT_ERROR)
    return chosen


def _place(key: str) -> list[str]:
    """Target, rank, phase and fingerprint."""
    return key.rsplit("|", 3)


def _document(key: str, saved_ns: int, history: StoreHistory, settings: Settings) -> dict[str, Any]:
    """The machine-readable form, kept stable.

    Raises:
        ValueError: the state is of another version.
        KeyError: the state is not one.
        TypeError: the state is not one.
    """
    from cyclewatch.detectors.phases import Phase
    from cyclewatch.detectors.watching.decision import Parameters
    from cyclewatch.detectors.watching.series import SeriesDetector

    target, rank, phase, fingerprint = _place(key)
    state = history.detector_state(key) or {}
    detector = SeriesDetector(Phase(phase), Parameters.of(settings.detection, settings.windows))
    detector.restore(state["detector"])
    known = detector.model.explain()
    return {
        "target": target,
        "rank": rank,
        "phase": phase,
        "fingerprint": fingerprint,
        "saved_at": utc(saved_ns),
        "version": state["detector"]["model"]["version"],
        "baseline_progress": detector.progress,
        "costs": [
            {
                "feature": one.feature,
                "unit": one.unit,
                "ns": one.ns,
                "standard_error_ns": one.standard_error_ns,
                "lowest": one.lowest,
                "highest": one.highest,
            }
            for one in known.coefficients
        ],
        "offsets": [
            {"bucket": one.bucket, "beyond": one.beyond, "log_ratio": one.log_ratio, "windows": one.windows}
            for one in sorted(known.offsets, key=lambda one: (one.bucket, one.beyond))
        ],
        "physical_bound": _bound(known.coefficients, target, fingerprint, history, settings),
    }


def _bound(
    costs: "tuple[Coefficient, ...]", target: str, fingerprint: str, history: StoreHistory, settings: Settings
) -> dict[str, Any] | None:
    """What the physical bound says of the costs, or why it says nothing; None before there are any."""
    from cyclewatch.daemon.model_bound import bound_of

    runs = [run for run in history.runs() if (run.target, run.fingerprint) == (target, fingerprint)]
    if not costs or not runs:
        return None
    try:
        return bound_of(runs[-1], costs, settings.engine.hub)
    except (OSError, ValueError) as error:
        return {"unknown": str(error)}


def _print(document: dict[str, Any]) -> None:
    from rich.table import Table

    screen = console()
    place = f"{document['target']}, {document['rank']}, {document['phase']}"
    screen.print(f"{place} (configuration {document['fingerprint']})", style="bold")
    screen.print(f"saved {document['saved_at']}, version {document['version']}")
    if not document["costs"]:
        screen.print(f"learning the baseline: {document['baseline_progress']:.0%} of it seen\n")
        return
    costs = Table(title="what a cycle costs", title_justify="left")
    for column in ("for each", "costs", "standard error", "seen in the baseline"):
        costs.add_column(column)
    for one in document["costs"]:
        if not one["highest"]:
            costs.add_row(one["unit"], "-", "-", "none")
            continue
        seen = "" if one["feature"] == "fixed" else f"{one['lowest']:,.4g} to {one['highest']:,.4g}"
        costs.add_row(one["unit"], _duration(one["ns"]), _duration(one["standard_error_ns"]), seen)
    screen.print(costs)
    _print_bound(document["physical_bound"])
    buckets = "requests" if document["phase"].startswith("decode") else "new tokens"
    offsets = Table(title="and beyond that, by load", title_justify="left")
    for column in (f"{buckets}, from", "cached tokens", "offset", "windows"):
        offsets.add_column(column, justify="right")
    for one in document["offsets"]:
        offsets.add_row(
            f"{one['bucket']:,}", _cached(one["beyond"]), f"{math.expm1(one['log_ratio']):+.2%}", f"{one['windows']:,}"
        )
    screen.print(offsets)
    screen.print("")


def _print_bound(bound: dict[str, Any] | None) -> None:
    if bound is None:
        return
    if "unknown" in bound:
        console().print(f"physical bound: {bound['unknown']}")
        return
    expected, least = bound["expected_ns"], bound["at_least_ns"]
    console().print(
        f"at the most loaded ({bound['batch_size']:,.0f} requests, {bound['new_tokens']:,.0f} new and "
        f"{bound['kv_tokens']:,.0f} cached tokens): {_duration(expected)}; {bound['gpu']} needs at least "
        f"{_duration(least)} ({bound['bound_by']}), {bound['speed_of_light_ratio']:.0%} of it"
    )


def _cached(beyond: int) -> str:
    """How the cached tokens of a load lie to those of the baseline."""
    if beyond == 0:
        return "as in the baseline"
    return "fewer" if beyond < 0 else f"from {_FAR**beyond:.1f} times the most"


def _duration(ns: float) -> str:
    """A cost as people read it."""
    for size, unit in ((_MS, "ms"), (_US, "µs")):
        if ns >= size:
            return f"{ns / size:.4g} {unit}"
    return f"{ns:.3g} ns"
