"""Table 1: series without a change, and how many of them get a change point all the same."""

from typing import Any

from detect.contestants import OURS
from detect.report import Options, Table, percent, verdict
from detect.series import WITHOUT_CHANGE, stream

SERIES, POINTS = 400, 500
AIM_SHARE = 9 / 400  # 1 % and its sampling error


def table(options: Options) -> Table:
    """Run it."""
    count = options.count(SERIES)
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    for at, (kind, generate) in enumerate(WITHOUT_CHANGE.items()):
        values = generate(stream(options.seed, 1, at), count, POINTS)
        alarms = {c.name: sum(bool(c.find(row)) for row in values) for c in options.contestants if c.find}
        cells = (f"{percent(alarms[c.name], count)} ({alarms[c.name]})" if c.find else "-" for c in options.contestants)
        rows.append((kind, *cells))
        figures.append({"series": kind, "count": count, "with_change_points": alarms})
    notes = []
    if any(c.name == OURS and c.find for c in options.contestants):
        worst = max(figure["with_change_points"][OURS] for figure in figures)
        allowed = round(AIM_SHARE * count)
        notes.append(f"the aim, at most {allowed} of {count} of ours in every row, is {verdict(met=worst <= allowed)}")
    return Table(
        "false-alarms",
        f"1. False alarms: {count} series of {POINTS} points without a change; those that get a change point",
        ("noise", *(c.name for c in options.contestants)),
        rows,
        figures,
        notes,
    )
