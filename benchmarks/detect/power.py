"""Table 2: one shift near the end of a series, and how often it is found where it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Found:
    """Of each series, shape (rows,): whether a change point lies at the shift, and whether one lies elsewhere."""

    hit: Flags
    elsewhere: Flags

    def __str__(self) -> str:
        """Both as percentages."""
        rows = len(self.hit)
        return f"{percent(int(self.hit.sum()), rows)} ({percent(int(self.elsewhere.sum()), rows)})"


def judge(found: Iterable[Iterable[float]]) -> Found:
    """What of the change points of each series lies where the shift is."""
    far = [[abs(index - BEFORE) > TOLERANCE for index in indexes] for indexes in found]
    return Found(np.array([not all(row) for row in far]), np.array([any(row) for row in far]))


def shortfall(mine: Flags, best: Flags) -> tuple[float, float]:
    """How many hits of `mine` are missing at the aimed share of `best`, both of shape (rows,), in its standard error.

    The series are the same for both, so the error is that of the sum over series of the difference of each.
    """
    differences = AIM * best.astype(np.float64) - mine
    return AIM * int(best.sum()) - int(mine.sum()), float(np.sqrt(len(best)) * differences.std())


def by_the_ceiling(values: Floats, rho: float, threshold: float) -> list[list[float]]:
    """The change point, or none, of each row of `values`, shape (rows, n)."""
    ratios, indexes = ceiling.scan(values, rho, SIGMA)
    return [[index] if ratio > threshold else [] for ratio, index in zip(ratios, indexes, strict=True)]


def aim(rows: dict[str, dict[str, Found]]) -> str:
    """Whether ours reaches the aimed share of the ceiling in every row, and which rows fall short by how much."""
    short, sure = [], False
    for name, found in rows.items():
        mine, best = found[OURS].hit, found[CEILING].hit
        missing, error = shortfall(mine, best)
        if missing > 0:
            beyond = missing > 2 * error
            sure = sure or beyond
            why = "" if beyond else ", within two standard errors"
            short.append(f"{name} ({int(mine.sum())} of {int(best.sum())} hits{why})")
    how = verdict(met=not sure) + (" within the sampling error" if short and not sure else "")
    return f"the aim, ours at least {AIM:.0%} of the ceiling, is {how}" + (f"; short: {', '.join(short)}" * bool(short))


def table(options: Options) -> Table:
    """Run it."""
    count = options.count(SERIES)
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    judged: dict[str, dict[str, Found]] = {}
    notes = [
        f"in brackets: series with a change point further than {TOLERANCE} from the shift",
        f"ceiling: a scan that knows rho and sigma, {ALARM_RATE:.0%} false alarms on series of {NULL_POINTS} points",
    ]
    for number, rho in enumerate(RHOS):
        # Never fewer: the threshold is a quantile at the edge.
        threshold = ceiling.threshold(stream(options.seed, 2, number), rho, NULL_SERIES, NULL_POINTS, ALARM_RATE)
        notes.append(f"its threshold at rho {rho}: {threshold:.2f} (twice the log likelihood ratio)")
        for shift in SHIFTS:
            cell = stream(options.seed, 2, number, round(1000 * shift))
            values = step(cell, count, BEFORE + AFTER, BEFORE, shift, rho, SIGMA)
            found = {CEILING: judge(by_the_ceiling(values, rho, threshold))}
            for entry in options.contestants:
                if entry.find:
                    found[entry.name] = judge(map(entry.find, values))
            noise = f"AR(1) {rho}" if rho else "independent"
            judged[f"{noise} {shift:.0%}"] = found
            hits = {name: int(one.hit.sum()) for name, one in found.items()}
            ratio = percent(hits[OURS], hits[CEILING]) if OURS in hits else "-"
            others = (str(found.get(entry.name, "-")) for entry in options.contestants)
            rows.append((noise, f"{shift:.0%}", str(found[CEILING]), ratio, *others))
            elsewhere = {name: int(one.elsewhere.sum()) for name, one in found.items()}
            figures.append({"rho": rho, "shift": shift, "count": count, "hits": hits, "elsewhere": elsewhere})
    if any(entry.name == OURS and entry.find for entry in options.contestants):
        notes.append(aim(judged))
    return Table(
        "power",
        f"2. Power: {BEFORE} points before a shift and {AFTER} after, sigma {SIGMA:.0%}, {count} series each; "
        f"found within {TOLERANCE}",
        ("noise", "shift", CEILING, "ours/ceiling", *(entry.name for entry in options.contestants)),
        rows,
        figures,
        notes,
    )
