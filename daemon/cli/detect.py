"""`cyclewatch detect`: changes in series that lie in files."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cyclewatch.daemon.cli.common import EXIT_ERROR, JsonOption, console

if TYPE_CHECKING:
    from cyclewatch.daemon.series_rows import Series
    from cyclewatch.detectors.change_points.covariates import PhaseDetection
    from cyclewatch.detectors.change_points.offline import Settings
    from cyclewatch.detectors.phases import Floats

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 72
_CELL = 40


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


def detect(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="CSV (time,value) or JSON; - for standard input.")],
    as_json: JsonOption = False,
    min_effect: Annotated[
        float | None,
        typer.Option(min=0.0, callback=_finite, help="Smallest change to report: 0.02 is 2 %. Default 0: any."),
    ] = None,
    false_alarm: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=0.5,
            callback=_finite,
            help="Probability of any change being reported in a file without one. Default 0.012.",
        ),
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(min=2, max=1_000_000, help="Values that a level must last. Default 5.")
    ] = None,
) -> None:
    """Find lasting changes of the level of a series; exit code 1 if a file cannot be used, and 2 for a wrong option.

    With columns phase, batch_size, new_tokens or kv_tokens beside the value, what the load explains is taken out first.
    """
    from cyclewatch.daemon.series_file import STANDARD_INPUT, read_series, read_series_file
    from cyclewatch.daemon.series_rows import SeriesFileError
    from cyclewatch.detectors.change_points.offline import Settings

    if files.count(STANDARD_INPUT) > 1:
        raise typer.BadParameter("standard input can be read only once")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal cannot show
    given = {"min_effect": min_effect, "false_alarm": false_alarm, "min_length": min_length}
    settings = Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    failed = False
    for file in files:
        try:
            if file == STANDARD_INPUT:
                series = read_series(typer.get_binary_stream("stdin"), "standard input")
            else:
                series = read_series_file(Path(file))
        except SeriesFileError as error:
            typer.echo(f"cyclewatch: {error}", err=True)
            failed = True
            continue
        found = _search(series, settings)
        if not as_json:
            _print(file, series, found)
        elif len(files) > 1:
            typer.echo(json.dumps({"file": file, **_document(series, found, settings)}, allow_nan=False))
        else:
            typer.echo(json.dumps(_document(series, found, settings), indent=2, allow_nan=False))
    if failed:
        raise typer.Exit(EXIT_ERROR)


def _search(series: "Series", settings: "Settings") -> "list[PhaseDetection]":
    """Changes by phase; indices are positions in the order of time."""
    import numpy as np

    from cyclewatch.detectors.change_points.covariates import Covariates, PhaseDetection, detect_under_load
    from cyclewatch.detectors.change_points.offline import detect as detect_in

    values, order, given = series.values[series.order], series.order, series.covariates
    with np.errstate(all="ignore"):  # numbers at the edge of what can be computed with
        if given is not None:
            load = {name: column[order] for name, column in given.load.items()}
            return list(detect_under_load(values, Covariates(given.phase[order], given.names, load), settings))
        if not np.isfinite(values).any():
            return []
        return [PhaseDetection("", detect_in(values, settings), {})]


def _document(series: "Series", found: "list[PhaseDetection]", settings: "Settings") -> dict[str, Any]:
    """The machine-readable form, kept stable."""
    document: dict[str, Any] = {
        "n": len(series.values),
        "change_points": _points(series, found, "change_points"),
        "suspicions": _points(series, found, "suspicions"),
        "parameters": asdict(settings),
    }
    if any(one.costs for one in found):
        document["parameters"]["costs"] = {one.phase or "all": _json_value(one.costs) for one in found}
    if series.warnings:
        document["warnings"] = list(series.warnings)
    return document


def _points(series: "Series", found: "list[PhaseDetection]", kind: str) -> list[dict[str, Any]]:
    """Change points or suspicions of all phases, in order of time."""
    points = []
    for one in found:
        for point in getattr(one.detection, kind):
            row = int(series.order[point.index])
            phase = {"phase": one.phase} if series.covariates is not None and one.phase else {}
            points.append((point.index, {**asdict(point), "index": row, "time": series.time(row), **phase}))
    points.sort(key=lambda point: point[0])
    keys = ("index", "time")
    return [{**{key: point[key] for key in keys}, **_json_value(point)} for _, point in points]


def _json_value(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """The value with null for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(file: str, series: "Series", found: "list[PhaseDetection]") -> None:
    from rich.table import Table

    from cyclewatch.daemon.printable import printable
    from cyclewatch.daemon.series_file import STANDARD_INPUT

    screen = console()
    points = _points(series, found, "change_points")
    count = {0: "no change", 1: "1 change"}.get(len(points), f"{len(points)} changes")
    name = "standard input" if file == STANDARD_INPUT else printable(file)
    screen.print(f"{name}: {len(series.values)} values, {count}", style="bold")
    for warning in series.warnings:
        screen.print(f"note: {printable(warning)}", style="yellow")
    line = sparkline(series.values[series.order])
    if line and not screen.options.ascii_only:
        screen.print(line)
    table = Table()
    names = ["row", "time", "phase", "what happens", "from", "to", "probability"]
    shown = [name for name in names if name != "phase" or any("phase" in point for point in points)]
    for name in shown:
        table.add_column(name)
    for point in points:
        cells = {
            "row": str(point["index"]),
            "time": _text(point["time"]),
            "phase": _text(point.get("phase")),
            "what happens": _in_words(point),
            "from": f"{point['before']:.6g}" if point["before"] is not None else "-",
            "to": f"{point['after']:.6g}" if point["after"] is not None else "-",
            "probability": f"{point['probability']:.4%}",
        }
        table.add_row(*(cells[name] for name in shown))
    if points:
        screen.print(table)
    for point in _points(series, found, "suspicions"):
        where = f"row {point['index']}" + (f", {_text(point['phase'])}" if "phase" in point else "")
        screen.print(f"not counted: {where}: {_percent(point['effect'])}: {point['reason']}")


def _in_words(point: dict[str, Any]) -> str:
    if point["effect"] is None:
        return "the level changes"
    low, high = point["ci"]
    verb = "rises" if point["effect"] > 0 else "falls"
    return f"{verb} by {abs(point['effect']):.1%} ({_percent(low)} to {_percent(high)})"


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:+.1%}"


def _text(value: object) -> str:
    from cyclewatch.daemon.printable import printable

    return "-" if value is None else printable(str(value), _CELL)


def sparkline(values: "Floats") -> str:
    """A line of blocks for `values`, shape (n,): medians of neighbours, from the lowest to the highest."""
    import numpy as np

    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return ""
    parts = np.array_split(finite, min(len(finite), _SPARKLINE_WIDTH))
    middles = np.array([np.median(part) for part in parts])
    middles = middles / (float(np.max(np.abs(middles))) or 1.0)
    low, high = float(middles.min()), float(middles.max())
    if high <= low:
        return _BLOCKS[0] * len(parts)
    heights = (middles - low) / (high - low) * (len(_BLOCKS) - 1)
    return "".join(_BLOCKS[round(float(height))] for height in heights)
