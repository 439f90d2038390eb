"""Table 3: a simulated server under load, judged by the daemon's own path from cycles to regressions.

    PYTHONPATH=benchmarks python -m detect.load [--hours 1000] [--runs 200] [--workers N] [--quick] [--json FILE]

Load swings by half of its mean, prefills mix with decodes, the cache-hit ratio jumps: see `TRAFFIC` and `detectors/
simulation/`. A window of 5 s is a sample of the cycles a real one has: 32 decodes and, at mean load, 20 prefills, each
beside one more decode. Every run learns its own baseline. Counted are the regressions of all series of the target
together, each once. A slowdown hits all phases; it is found if one is reported in any phase within half an hour of
its start; delay and first effect are those of the first report, the last effect what that regression was said to be
in the end. One reported before the true start is early; one reported later but said to have started long before it is
misplaced, and neither counts as found. How long is a matter of noise: the place of a step is uncertain as (long-run
sigma / size)^2, and `PLACE` of that is allowed: a minute for 3 % where the noise is 2 %, AR 0.5.
"""

import argparse
import json
import math
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon does

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from time import perf_counter

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.daemon.watch import SeriesKey, SeriesWatch
from cyclewatch.detectors.simulation import Noise, Simulation, Slowdown, Traffic
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.tracking import State
from cyclewatch.detectors.windows import summarise

SEED = 20_261_121
TRAFFIC = Traffic(swing=0.5, cache_hit=0.5, cache_hit_change=0.3)
NOISES = {
    "2 %, AR 0.5": Noise(window_sigma=0.02, correlation=0.5),
    "5 %, AR 0.5": Noise(window_sigma=0.05, correlation=0.5),
    "2 %, AR 0.8": Noise(window_sigma=0.02, correlation=0.8),
}
AIMED_AT = "2 %, AR 0.5"
STEPS = {0.03: 0.02, 0.01: 0.005}
"""Sizes of the slowdowns, and the minimum effect that is set for each."""

WINDOW_NS = 5 * 10**9
HOUR_WINDOWS = 720
HOURS_A_RUN = 10
BASELINE_WINDOWS = 180
HISTORY_WINDOWS = 1440  # a server that has run for two hours: what a small step is held against
"""Windows before anything counts: 10 minutes of baseline, and 5 more for phases with too few cycles now and then."""
OBSERVED_WINDOWS = 360
STARTS = 120
"""Slowdowns start at one of so many windows after the baseline."""
PLACE = 9.0
"""Windows of misplacement allowed, in units of (long-run sigma / size)^2."""


@dataclass(frozen=True)
class Task:
    """One run; `start` is the first window of the slowdown, None for none."""

    noise: str
    seed: int
    windows: int
    start: int | None = None
    size: float = 0.0
    min_effect: float = Detection().min_effect


@dataclass(frozen=True)
class Report:
    """A regression as it was first reported, and its last effect; nanoseconds of the simulated clock."""

    phase: str
    started_at_ns: int
    detected_at_ns: int
    effect: float
    last_effect: float


@dataclass(frozen=True)
class Steps:
    """What became of slowdowns of one size.

    `delay_min` is the median in minutes, None where none was found. `first_near` and `last_near` of those found had
    an effect within a third. `early` and `misplaced` regressions are false. `unsettled` runs had no baseline in time.
    """

    size: float
    min_effect: float
    runs: int
    found: int
    delay_min: float | None
    first_near: int
    last_near: int
    early: int
    misplaced: int
    unsettled: int


@dataclass(frozen=True)
class Row:
    """One cell of the table: false regressions of `hours` by phase, and the slowdowns."""

    noise: str
    hours: float
    false: dict[str, int]
    false_runs: int
    false_per_1000h: float
    interval: tuple[float, float]
    steps: tuple[Steps, ...]


def play(task: Task) -> tuple[Task, list[Report], bool]:
    """Run one task; the regressions opened, and whether some phase had its baseline when the slowdown began."""
    slowdowns = () if task.start is None else (Slowdown(start_window=task.start, size=task.size),)
    simulation = Simulation(task.seed, traffic=TRAFFIC, noise=NOISES[task.noise], slowdowns=slowdowns)
    parameters = Parameters.of(Detection(min_effect=task.min_effect), Windows(length_s=WINDOW_NS / 1e9))
    watches: dict[str, SeriesWatch] = {}
    reports: dict[str, Report] = {}
    settled = task.start is None
    for number, (start_ns, records, _) in enumerate(simulation.windows(task.windows)):
        window = summarise(number, records, sketches=False)
        if number == task.start:
            settled = any(watch.detector.settled for watch in watches.values())
        for phase, cycles in window.cycles.items():
            if phase not in watches:
                watches[phase] = SeriesWatch(SeriesKey("node", "tp0", phase, ""), parameters)
            cells = [cell for cell in window.cells if cell.phase is phase]
            _, changes = watches[phase].update(start_ns, cycles, cells)
            for found in (change.regression for change in changes):
                if found.state is State.OPEN:
                    first = Report(phase.value, found.started_at_ns, found.detected_at_ns, found.effect, found.effect)
                    reports[found.key] = replace(reports.get(found.key, first), last_effect=found.effect)
    return task, sorted(reports.values(), key=lambda report: report.detected_at_ns), settled


def tasks(hours: float, runs: int, others: float) -> list[Task]:
    """All runs. Cells that are no aim get the part `others` of the hours and runs."""
    planned = []
    for cell, noise in enumerate(NOISES):
        share = 1.0 if noise == AIMED_AT else others
        seed = SEED + cell * 1_000_000
        windows = BASELINE_WINDOWS + HOURS_A_RUN * HOUR_WINDOWS
        planned += [Task(noise, seed + run, windows) for run in range(max(1, round(hours * share / HOURS_A_RUN)))]
        for kind, (size, min_effect) in enumerate(STEPS.items()):
            for run in range(max(1, round(runs * share))):
                start = HISTORY_WINDOWS + run * 37 % STARTS
                one = seed + (kind + 1) * 100_000 + run
                planned.append(Task(noise, one, start + OBSERVED_WINDOWS, start, size, min_effect))
    return planned


def run(hours: float = 1000, runs: int = 200, workers: int | None = None, others: float = 0.25) -> list[Row]:
    """Run the whole table on `workers` processes (None: one a core)."""
    planned = sorted(tasks(hours, runs, others), key=lambda task: -task.windows)
    with Pool(workers) as pool:
        return rows_of(list(pool.imap_unordered(play, planned)))


def rows_of(results: Sequence[tuple[Task, list[Report], bool]]) -> list[Row]:
    """The cells that tasks came to."""
    rows = []
    for noise in NOISES:
        cell = [result for result in results if result[0].noise == noise]
        quiet = [(task, reports) for task, reports, _ in cell if task.start is None]
        false = [report for _, reports in quiet for report in reports]
        duration = sum(task.windows - BASELINE_WINDOWS for task, _ in quiet) / HOUR_WINDOWS
        low, high = poisson_interval(len(false))
        rows.append(
            Row(
                noise=noise,
                hours=duration,
                false={phase: sum(one.phase == phase for one in false) for phase in sorted({r.phase for r in false})},
                false_runs=sum(bool(reports) for _, reports in quiet),
                false_per_1000h=1000 * len(false) / duration,
                interval=(1000 * low / duration, 1000 * high / duration),
                steps=tuple(_steps([result for result in cell if result[0].size == size]) for size in STEPS),
            )
        )
    return rows


def _steps(results: Sequence[tuple[Task, list[Report], bool]]) -> Steps:
    delays, first_near, last_near, early, misplaced = [], 0, 0, 0, 0
    size, noise = results[0][0].size, NOISES[results[0][0].noise]
    long_run = noise.window_sigma**2 * (1 + noise.correlation) / (1 - noise.correlation)
    tolerance_ns = PLACE * long_run / size**2 * WINDOW_NS
    for task, reports, _ in results:
        assert task.start is not None
        start_ns = task.start * WINDOW_NS
        late = [report for report in reports if report.detected_at_ns > start_ns]
        true = [report for report in late if report.started_at_ns >= start_ns - tolerance_ns]
        early += len(reports) - len(late)
        misplaced += len(late) - len(true)
        if true:
            delays.append((true[0].detected_at_ns - start_ns) / 60e9)
            first_near += abs(true[0].effect - size) <= size / 3
            last_near += abs(true[0].last_effect - size) <= size / 3
    return Steps(
        size=size,
        min_effect=results[0][0].min_effect,
        runs=len(results),
        found=len(delays),
        delay_min=median(delays) if delays else None,
        first_near=first_near,
        last_near=last_near,
        early=early,
        misplaced=misplaced,
        unsettled=sum(not settled for _, _, settled in results),
    )


def poisson_interval(count: int, outside: float = 0.05) -> tuple[float, float]:
    """Exact interval (Garwood 1936) for the mean of a Poisson number of which `count` were seen."""

    def at_most(number: int, mean: float) -> float:
        return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(number + 1))

    def solve(falling: Callable[[float], float]) -> float:
        low, high = 0.0, 20.0 + 3 * count
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if falling(middle) > outside / 2 else (low, middle)
        return high

    lower = 0.0
    if count:
        low, high = 0.0, float(count)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if 1 - at_most(count - 1, middle) < outside / 2 else (low, middle)
        lower = low
    return lower, solve(lambda mean: at_most(count, mean))


def table(rows: Sequence[Row]) -> list[str]:
    """The table as text."""
    lines = [
        "3. Under load, per target, all its series together",
        f"  {'no slowdown':12} {'hours':>6} {'false':>6} {'per 1,000 h':>12} {'95 % interval':>18}   by phase",
    ]
    for row in rows:
        interval = f"{row.interval[0]:.2f} to {row.interval[1]:.2f}"
        phases = ", ".join(f"{phase} {count}" for phase, count in row.false.items())
        lines.append(
            f"  {row.noise:12} {row.hours:6.0f} {sum(row.false.values()):6} {row.false_per_1000h:12.2f} {interval:>18}"
            f"   {phases}".rstrip()
        )
    lines.append(
        f"  {'slowdown':22} {'runs':>5} {'found':>8} {'delay':>9} {'± third':>8} {'in the end':>10} {'early':>6} "
        f"{'misplaced':>10} {'no baseline':>12}"
    )
    for index in range(len(STEPS)):
        for row in rows:
            step = row.steps[index]
            lines.append(
                f"  {f'{step.size:.0%}, noise {row.noise}':22} {step.runs:5} {_share(step.found, step.runs)} "
                f"{_minutes(step.delay_min)} {_share(step.first_near, step.found)} "
                f"{_share(step.last_near, step.found):>10} {step.early:6} {step.misplaced:10} {step.unsettled:12}"
            )
    aimed = next(row for row in rows if row.noise == AIMED_AT)
    lines += [f"  aim at noise {AIMED_AT}: {aim}: {'met' if met else 'NOT met'}" for aim, met in aims(aimed).items()]
    return lines


def aims(row: Row) -> dict[str, bool]:
    """What was to be shown, and whether it was."""
    step, small = row.steps
    return {
        "at most 1 false regression in 1,000 h": row.false_per_1000h <= 1,
        "3 % found in 95 %": step.found >= 0.95 * step.runs,
        "median delay at most 3 min": step.delay_min is not None and step.delay_min <= 3,
        "effect within a third in most runs, in the end": step.last_near > 0.5 * step.found,
        "1 % found in 60 % within 30 min": small.found >= 0.6 * small.runs,
    }


def _share(part: int, whole: int) -> str:
    return f"{part / whole:8.1%}" if whole else f"{'-':>8}"


def _minutes(value: float | None) -> str:
    return f"{'-':>9}" if value is None else f"{value:5.1f} min"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1000, help="simulated hours without a slowdown (default: 1000)")
    parser.add_argument("--runs", type=int, default=200, help="runs of each slowdown (default: 200)")
    parser.add_argument("--others", type=float, default=0.25, help="part of both for the cells that are no aim")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    parser.add_argument("--quick", action="store_true", help="60 hours, 20 runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    options = parser.parse_args()
    hours, runs = (60.0, 20) if options.quick else (options.hours, options.runs)
    began = perf_counter()
    rows = run(hours, runs, options.workers, options.others)
    print(f"seeds from {SEED}, one a run; {options.workers} processes, {perf_counter() - began:.0f} s")
    print("\n".join(table(rows)))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
