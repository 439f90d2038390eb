"""Table 5: what looking through a whole series takes, and what taking one more value takes."""

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.shift_watch import ShiftWatch
from detect.contestants import OURS
from detect.report import Options, Table, verdict
from detect.series import Floats, stream, three_shifts

SIGMA, SHIFT = 0.02, 0.05
WINDOW_NS = 5 * 10**9
RHOS = {"independent": 0.0, "AR(1) 0.5": 0.5}  # what takes noise for changes is slower, or faster, for it
AIM_S = {10_000: 0.1, 100_000: 1.0}
REPEATS = {10_000: 5, 100_000: 1}
ONLINE_AIM_US, ONLINE_POINTS = 30.0, 20_000
SLOW = {("Pelt", 100_000)}  # half a minute, and over a minute where noise does not look like changes


def fastest_s(call: Callable[[], object], repeats: int) -> float:
    """The least of some runs, in seconds: what else the machine does can only add."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def online_update() -> Callable[[float], object]:
    """Takes the values of a series of level 1 and sigma 2 % one by one, as the daemon does."""
    watch = ShiftWatch(Parameters.of(Detection(), Windows()))
    numbers = itertools.count()
    return lambda value: watch.update(next(numbers) * WINDOW_NS, math.log(value))


def table(options: Options) -> Table:
    """Run it."""
    series = {
        (noise, points): three_shifts(stream(options.seed, 5, points, number), points, SHIFT, rho, SIGMA)
        for points in AIM_S
        for number, (noise, rho) in enumerate(RHOS.items())
    }
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    notes = ["in brackets: change points found, of 3; the fastest of 5 runs over 10,000 points, 1 run over 100,000"]
    for entry in options.contestants:
        cells = []
        for (noise, points), values in series.items():
            if entry.find is None or ((entry.name, points) in SLOW and not options.slow):
                cells.append("-" if entry.find is None else "skipped (--slow)")
                continue
            spent, found = _timed(entry.find, values, REPEATS[points])
            cells.append(f"{spent:.3f} s ({len(found)})")
            figures.append(
                {"name": entry.name, "noise": noise, "points": points, "seconds": spent, "found": len(found)}
            )
            if entry.name == OURS:
                met = verdict(met=spent <= AIM_S[points])
                notes.append(f"the aim, ours at most {AIM_S[points]:g} s over {points:,} points, {noise}, is {met}")
        rows.append((entry.name, *cells))
    notes.append(_online(series["AR(1) 0.5", max(AIM_S)][:ONLINE_POINTS], figures))
    columns = ("", *(f"{points:,}, {noise}" for noise, points in series))
    return Table("speed", "5. Speed: a series with three shifts, one thread", columns, rows, figures, notes)


def _timed(find: Callable[[Floats], list[int]], values: Floats, repeats: int) -> tuple[float, list[int]]:
    """The fastest run over `values`, shape (n,), and what it found."""
    found: list[int] = []

    def call() -> None:
        found[:] = find(values)

    return fastest_s(call, repeats), found


def _online(values: Floats, figures: list[dict[str, Any]]) -> str:
    """What one online update takes over `values`, shape (n,): by itself, and with the confirmations it asks for."""
    update = online_update()
    clock = time.perf_counter
    times_us = []
    for value in values.tolist():
        start = clock()
        update(value)
        times_us.append(1e6 * (clock() - start))
    alone_us, mean_us = float(np.median(times_us)), float(np.mean(times_us))
    figures.append({"name": OURS, "online_update_us": alone_us, "with_confirmations_us": mean_us})
    met = verdict(met=alone_us <= ONLINE_AIM_US)
    return (
        f"one online update: {alone_us:.1f} µs; the aim of {ONLINE_AIM_US:g} µs is {met}; in the mean, with the "
        f"confirmations under suspicion, {mean_us:.1f} µs"
    )
