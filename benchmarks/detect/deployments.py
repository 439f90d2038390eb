"""Another version of a simulated server under load, held against the one before it by the daemon's own path.

    PYTHONPATH=benchmarks python -m detect.deployments [--runs 50] [--workers N]

Load and windows are those of `detect.load`; the configuration before ran for a random time of 15 minutes to two hours,
the new one is slower from its first cycle on by the size of the row. A series counts once both have a baseline, decodes
and extends each by themselves. `false` is what is said of the opposite direction, or of equal speed.
"""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon does

from dataclasses import dataclass
from multiprocessing import Pool
from statistics import median

import numpy as np

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.daemon.watch import SeriesKey, SeriesWatch
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.simulation import Simulation, Slowdown
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.windows import summarise
from detect.load import NOISES, TRAFFIC, WINDOW_NS

SEED = 20_271_121
SIZES = (0.0, 0.03, 0.05, 0.1)
SHORTEST, LONGEST = 180, 1440
NEW_WINDOWS = 240
PARAMETERS = Parameters.of(Detection(), Windows(length_s=WINDOW_NS / 1e9))


@dataclass(frozen=True)
class Task:
    """One deployment."""

    noise: str
    size: float
    seed: int


def play(task: Task) -> tuple[Task, list[float | None]]:
    """The effect that was found in each series that has both baselines; None where none was."""
    windows = int(np.random.default_rng(task.seed).integers(SHORTEST, LONGEST))
    slower = (Slowdown(start_window=0, size=task.size),) if task.size else ()
    old: dict[Phase, SeriesWatch] = {}
    new: dict[Phase, SeriesWatch] = {}
    found: list[float | None] = []
    before = Simulation(task.seed, traffic=TRAFFIC, noise=NOISES[task.noise])
    after = Simulation(task.seed + 1, traffic=TRAFFIC, noise=NOISES[task.noise], slowdowns=slower)
    for simulation, watches, length in ((before, old, windows), (after, new, NEW_WINDOWS)):
        for number, (start_ns, records, _) in enumerate(simulation.windows(length)):
            window = summarise(number, records, sketches=False)
            for phase, cycles in window.cycles.items():
                watch = watches.setdefault(phase, SeriesWatch(SeriesKey("node", "tp0", phase, ""), PARAMETERS))
                at_ns = start_ns + (0 if watches is old else (windows + 60) * WINDOW_NS)
                verdict, _ = watch.update(at_ns, cycles, [cell for cell in window.cells if cell.phase is phase])
                if watches is new and verdict.settled and phase in old and old[phase].detector.settled:
                    change = watch.succeed(old[phase], verdict.reference, at_ns)
                    found.append(None if change is None else change.change.effect)
    return task, found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    cells = [(noise, size) for noise in NOISES for size in SIZES]
    tasks = [
        Task(noise, size, SEED + 1_000_000 * cell + 2 * run)
        for cell, (noise, size) in enumerate(cells)
        for run in range(options.runs)
    ]
    with Pool(options.workers) as pool:
        results = pool.map(play, tasks, chunksize=1)
    print(f"seeds from {SEED}, two a run")
    print(f"  {'noise':<12} {'slower by':>9} {'series':>7} {'found':>7} {'false':>6}  median effect")
    for noise, size in cells:
        effects = [effect for task, found in results if (task.noise, task.size) == (noise, size) for effect in found]
        true = [effect for effect in effects if effect is not None and effect > 0 and size > 0]
        false = sum(effect is not None for effect in effects) - len(true)
        said = f"{median(true):+.1%}" if true else ""
        print(f"  {noise:<12} {size:9.0%} {len(effects):7} {len(true):7} {false:6}  {said}")


if __name__ == "__main__":
    main()
