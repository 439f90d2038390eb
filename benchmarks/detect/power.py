"""Table 2: one shift near the end of a series, and how often it is found where it is."""

from collections.abc import Iterable
from typing import Any

from detect import ceiling
from detect.contestants import OURS
from detect.report import Options, Table, percent, verdict
from detect.series import Floats, step, stream

SERIES, BEFORE, AFTER = 1000, 100, 30
SIGMA = 0.02
SHIFTS = (0.01, 0.02, 0.05, 0.10)
RHOS = (0.0, 0.5, 0.8)
TOLERANCE = 5
NULL_SERIES, NULL_POINTS, ALARM_RATE = 10_000, 500, 0.01
AIM = 0.9
CEILING = "ceiling"


def counts(found: Iterable[Iterable[float]]) -> tuple[int, int]:
    """Of series with these change points: how many have one at the shift, how many have one elsewhere."""
    off = [[abs(index - BEFORE) > TOLERANCE for index in indexes] for indexes in found]
    return sum(not all(far) for far in off), sum(any(far) for far in off)


def by_the_ceiling(values: Floats, rho: float, threshold: float) -> list[list[float]]:
    """The change point, or none, of each row of `values`, shape (rows, n)."""
    ratios, indexes = ceiling.scan(values, rho, SIGMA)
    return [[index] if ratio > threshold else [] for ratio, index in zip(ratios, indexes, strict=True)]


def table(options: Options) -> Table:
    """Run it."""
    count = options.count(SERIES)
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    notes = [
        f"in brackets: series with a change point further than {TOLERANCE} from the shift",
        f"ceiling: a scan that knows rho and sigma, {ALARM_RATE:.0%} false alarms on series of {NULL_POINTS} points",
    ]
    present = [c for c in options.contestants if c.find]
    for number, rho in enumerate(RHOS):
        # Never fewer: the threshold is a quantile at the edge.
        threshold = ceiling.threshold(stream(options.seed, 2, number), rho, NULL_SERIES, NULL_POINTS, ALARM_RATE)
        notes.append(f"its threshold at rho {rho}: {threshold:.2f} (twice the log likelihood ratio)")
        for shift in SHIFTS:
            cell = stream(options.seed, 2, number, round(1000 * shift))
            values = step(cell, count, BEFORE + AFTER, BEFORE, shift, rho, SIGMA)
            found = {CEILING: counts(by_the_ceiling(values, rho, threshold))}
            found |= {c.name: counts(c.find(row) for row in values) for c in present if c.find}
            best, mine = found[CEILING][0], found[OURS][0] if OURS in found else None
            cells = [
                f"{percent(found[name][0], count)} ({percent(found[name][1], count)})" if name in found else "-"
                for name in (CEILING, *(c.name for c in options.contestants))
            ]
            cells.insert(1, "-" if mine is None else percent(mine, best))
            rows.append((f"AR(1) {rho}" if rho else "independent", f"{shift:.0%}", *cells))
            figures.append({"rho": rho, "shift": shift, "count": count, "hits_and_elsewhere": found})
    if any(c.name == OURS for c in present):
        shares = [figure["hits_and_elsewhere"] for figure in figures]
        met = all(found[OURS][0] >= AIM * found[CEILING][0] for found in shares)
        notes.append(f"the aim, ours at least {AIM:.0%} of the ceiling in every row, is {verdict(met=met)}")
    return Table(
        "power",
        f"2. Power: {BEFORE} points before a shift and {AFTER} after, sigma {SIGMA:.0%}, {count} series each; "
        f"found within {TOLERANCE}",
        ("noise", "shift", CEILING, "ours/ceiling", *(c.name for c in options.contestants)),
        rows,
        figures,
        notes,
    )
