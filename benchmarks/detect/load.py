"""Table 3: a simulated server under load, judged by the daemon's own path from cycles to regressions.

    PYTHONPATH=benchmarks python -m detect.load [--hours 1000] [--runs 200] [--workers N] [--quick] [--json FILE]

Load swings by half of its mean, prefills mix with decodes, the cache-hit ratio jumps: see `TRAFFIC` and `detectors/
simulation/`. A window of 5 s is a sample of the cycles a real one has: 32 decodes and, at mean load, 20 prefills, each
beside one more decode. Every run learns its own baseline. Counted are the regressions of all series of the target
together. A slowdown hits all phases; it is found if one is reported in any phase within half an hour of its start;
delay and effect are those of the first report. One that is reported, or said to have started, before the true start
(less a minute of tolerance) is a false one.
"""

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from cyclewatch.collectors.records import STAGES, Records
from cyclewatch.config.settings import Detection, Windows
from cyclewatch.daemon.watch import SeriesKey, SeriesWatch
from cyclewatch.detectors.decision import Parameters
from cyclewatch.detectors.phases import Phase, judged, load_buckets, phase_by_number, phases_of
from cyclewatch.detectors.simulation import Noise, Simulation, Slowdown, Traffic
from cyclewatch.detectors.tracking import State
from cyclewatch.detectors.windows import CellWindow, Window, summarise

SEED = 20_261_121
TRAFFIC = Traffic(swing=0.5, cache_hit=0.5, cache_hit_change=0.3)
NOISES = {
    "2 %, AR 0.5": Noise(window_sigma=0.02, correlation=0.5),
    "5 %, AR 0.5": Noise(window_sigma=0.05, correlation=0.5),
    "2 %, AR 0.8": Noise(window_sigma=0.02, correlation=0.8),
}
AIMED_AT = "2 %, AR 0.5"
STEP, SMALL_STEP, SMALL_MIN_EFFECT = 0.03, 0.01, 0.005

_AVERAGED = (
    "cycle_ns",
    *(f"{stage}_ns" for stage in STAGES),
    "batch_size",
    "new_tokens",
    "kv_tokens",
    "queue_length",
)

WINDOW_NS = 5 * 10**9
HOUR_WINDOWS = 720
HOURS_A_RUN = 10
BASELINE_WINDOWS = 180
"""Windows before anything counts: 10 minutes of baseline, and 5 more for phases with too few cycles now and then."""
OBSERVED_WINDOWS = 360
STARTS = 120
"""Slowdowns start at one of so many windows after the baseline."""
TOLERANCE_NS = 60 * 10**9


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
    """A regression as it was first reported; nanoseconds of the simulated clock."""

    phase: str
    started_at_ns: int
    detected_at_ns: int
    effect: float


@dataclass(frozen=True)
class Steps:
    """What became of slowdowns of one size; `delay_min` is the median in minutes, None where none was found."""

    runs: int
    found: int
    delay_min: float | None
    within_third: int
    false: int
    unsettled: int


@dataclass(frozen=True)
class Row:
    """One cell of the table: false regressions of `hours` by phase, steps of 3 % and of 1 %."""

    noise: str
    hours: float
    false: dict[str, int]
    false_runs: int
    false_per_1000h: float
    interval: tuple[float, float]
    steps: Steps
    small_steps: Steps


def play(task: Task) -> tuple[Task, list[Report], bool]:
    """Run one task; the regressions opened, and whether some phase had its baseline when the slowdown began."""
    slowdowns = () if task.start is None else (Slowdown(start_window=task.start, size=task.size),)
    simulation = Simulation(task.seed, traffic=TRAFFIC, noise=NOISES[task.noise], slowdowns=slowdowns)
    parameters = Parameters.of(Detection(min_effect=task.min_effect), Windows(length_s=WINDOW_NS / 1e9))
    watches: dict[str, SeriesWatch] = {}
    reports: dict[str, Report] = {}
    settled = task.start is None
    for number, (start_ns, records, _) in enumerate(simulation.windows(task.windows)):
        window = summary(number, records)
        if number == 0:
            _check(window, summarise(number, records))
        if number == task.start:
            settled = any(watch.detector.settled for watch in watches.values())
        for phase, cycles in window.cycles.items():
            if phase not in watches:
                watches[phase] = SeriesWatch(SeriesKey("node", "tp0", phase, ""), parameters)
            cells = [cell for cell in window.cells if cell.phase is phase]
            _, found = watches[phase].update(start_ns, cycles, cells)
            if found is not None and found.state is State.OPEN and found.key not in reports:
                reports[found.key] = Report(phase.value, found.started_at_ns, found.detected_at_ns, found.effect)
    return task, sorted(reports.values(), key=lambda report: report.detected_at_ns), settled


def summary(index: int, records: Records) -> Window:
    """What `summarise` gives, ten times faster: runs check their first window against it."""
    usable, numbers = judged(records), phases_of(records)
    cycles = {
        phase_by_number(int(number)): records[usable & (numbers == number)] for number in np.unique(numbers[usable])
    }
    cells = tuple(cell for phase, chosen in cycles.items() for cell in _cells(phase, chosen))
    return Window(index, cycles, cells, records=len(records), set_aside=0, stalled_ns=0, collected_ns=0)


def _cells(phase: Phase, records: Records) -> Iterator[CellWindow]:
    buckets = load_buckets(phase, records)
    order = np.lexsort((records["cycle_ns"], buckets))
    columns = np.stack([records[name][order] for name in _AVERAGED]).astype(np.float64)
    starts = np.flatnonzero(np.diff(buckets[order], prepend=-1))
    counts = np.diff(starts, append=len(order))
    cycle, on_cpu = columns[0], records["on_cpu_ns"][order].astype(np.float64)
    means = (np.add.reduceat(columns, starts, axis=1) / counts).T.tolist()
    with np.errstate(invalid="ignore"):
        ratios = np.add.reduceat(np.maximum(on_cpu, 0), starts) / np.add.reduceat(cycle * (on_cpu >= 0), starts)
    quantiles = []
    for part in (0.5, 0.9, 0.99):
        place = starts + (counts - 1) * part
        low = place.astype(np.int64)
        high = np.minimum(low + 1, starts + counts - 1)
        quantiles.append(cycle[low] + (cycle[high] - cycle[low]) * (place - low))
    largest = cycle[starts + counts - 1]
    for bucket, count, mean, q, longest, ratio in zip(
        buckets[order][starts].tolist(),
        counts.tolist(),
        means,
        np.stack(quantiles, axis=1).tolist(),
        largest.tolist(),
        ratios.tolist(),
        strict=True,
    ):
        p50, p90, p99 = q
        batch_size, new_tokens, kv_tokens, queue_length = mean[1 + len(STAGES) :]
        yield CellWindow(
            phase=phase,
            bucket=bucket,
            count=count,
            mean_ns=mean[0],
            p50_ns=p50,
            p90_ns=p90,
            p99_ns=p99,
            max_ns=longest,
            stages_ns=tuple(mean[1 : 1 + len(STAGES)]),
            on_cpu_ratio=ratio,
            batch_size=batch_size,
            new_tokens=new_tokens,
            kv_tokens=kv_tokens,
            queue_length=queue_length,
        )


def _check(window: Window, expected: Window) -> None:
    """Refuse to go on where `summary` is not what `summarise` gives."""
    for one, other in zip(window.cells, expected.cells, strict=True):
        for name, value in asdict(one).items():
            if isinstance(value, str):
                assert value == getattr(other, name), name
            else:
                assert np.allclose(value, getattr(other, name), rtol=1e-12, equal_nan=True), name


def tasks(hours: float, runs: int, others: float) -> list[Task]:
    """All runs. Cells that are no aim get the part `others` of the hours and runs."""
    planned = []
    for cell, noise in enumerate(NOISES):
        share = 1.0 if noise == AIMED_AT else others
        seed = SEED + cell * 1_000_000
        windows = BASELINE_WINDOWS + HOURS_A_RUN * HOUR_WINDOWS
        planned += [Task(noise, seed + run, windows) for run in range(max(1, round(hours * share / HOURS_A_RUN)))]
        for kind, (size, min_effect) in enumerate(((STEP, Detection().min_effect), (SMALL_STEP, SMALL_MIN_EFFECT))):
            for run in range(max(1, round(runs * share))):
                start = BASELINE_WINDOWS + run * 37 % STARTS
                one = seed + (kind + 1) * 100_000 + run
                planned.append(Task(noise, one, start + OBSERVED_WINDOWS, start, size, min_effect))
    return planned


def run(hours: float = 1000, runs: int = 200, workers: int | None = None, others: float = 0.25) -> list[Row]:
    """Run the whole table on `workers` processes (None: one a core)."""
    planned = sorted(tasks(hours, runs, others), key=lambda task: -task.windows)
    with Pool(workers) as pool:
        results = list(pool.imap_unordered(play, planned))
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
                steps=_steps([result for result in cell if result[0].size == STEP]),
                small_steps=_steps([result for result in cell if result[0].size == SMALL_STEP]),
            )
        )
    return rows


def _steps(results: Sequence[tuple[Task, list[Report], bool]]) -> Steps:
    delays, near, false = [], 0, 0
    for task, reports, _ in results:
        assert task.start is not None
        start_ns = task.start * WINDOW_NS
        true = [r for r in reports if r.detected_at_ns > start_ns and r.started_at_ns >= start_ns - TOLERANCE_NS]
        false += len(reports) - len(true)
        if true:
            delays.append((true[0].detected_at_ns - start_ns) / 60e9)
            near += abs(true[0].effect - task.size) <= task.size / 3
    unsettled = sum(not settled for _, _, settled in results)
    return Steps(len(results), len(delays), median(delays) if delays else None, near, false, unsettled)


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
    groups = f"{'':12} | {'without a slowdown':^44} | {'3 % in all phases':^39} | {'1 %, min. effect 0.5 %':^30}"
    names = (
        f"{'noise':12} | {'hours':>6} {'false':>5} {'per 1,000 h':>12} {'95 % interval':>18} "
        f"| {'found':>8} {'delay':>8} {'± third':>8} {'false':>5} {'runs':>6} "
        f"| {'found':>8} {'delay':>8} {'false':>5} {'runs':>6}"
    )
    lines = [groups, names, "-" * len(names)]
    for row in rows:
        interval = f"{row.interval[0]:.2f} to {row.interval[1]:.2f}"
        lines.append(
            f"{row.noise:12} | {row.hours:6.0f} {sum(row.false.values()):5} {row.false_per_1000h:12.2f} {interval:>18} "
            f"| {_share(row.steps.found, row.steps.runs)} {_minutes(row.steps.delay_min)} "
            f"{_share(row.steps.within_third, row.steps.found)} {row.steps.false:5} {row.steps.runs:6} "
            f"| {_share(row.small_steps.found, row.small_steps.runs)} {_minutes(row.small_steps.delay_min)} "
            f"{row.small_steps.false:5} {row.small_steps.runs:6}"
        )
    for row in rows:
        phases = ", ".join(f"{phase} {count}" for phase, count in row.false.items()) or "none"
        unsettled = row.steps.unsettled + row.small_steps.unsettled
        lines.append(f"{row.noise}: false in {phases}; runs without any baseline at the start: {unsettled}")
    aimed = next(row for row in rows if row.noise == AIMED_AT)
    lines.append(f"aims at {AIMED_AT}: {', '.join(aims(aimed))}")
    return lines


def aims(row: Row) -> list[str]:
    """What was to be shown, and whether it was."""
    steps, small = row.steps, row.small_steps
    shown = {
        "at most 1 false in 1,000 h": row.false_per_1000h <= 1,
        "3 % found in 95 %": steps.found >= 0.95 * steps.runs,
        "within 3 min": steps.delay_min is not None and steps.delay_min <= 3,
        "effect within a third (median run)": steps.within_third >= 0.5 * max(steps.found, 1),
        "1 % found in 60 % within 30 min": small.found >= 0.6 * small.runs,
    }
    return [f"{aim}: {'met' if met else 'NOT met'}" for aim, met in shown.items()]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:8.1%}" if whole else f"{'-':>8}"


def _minutes(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:4.1f} min"


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
