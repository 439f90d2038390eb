"""What keeping the store small costs: the time of one step, beside the time that it stands for.

Eight ranks with two phases and four load buckets, a window every 5 s, and 318 readings every 2 s, in SQLite on disk.
What a step adds up, five minutes of them, has been written by the daemon's own writer, a transaction every 5 s.

    python benchmarks/store_upkeep.py [--minutes 30]
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from cyclewatch.config.store import Store
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import Run, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import sketch_of
from cyclewatch.detectors.windows import CellWindow

SECOND = 10**9
RUN = Run("bench", "node", "server", 0, 0, "f00d", "0.5.23", "model", {})
BUCKETS = (1, 8, 64, 256)
READINGS = 318


def cells(generator: np.random.Generator) -> list[tuple[str, CellWindow]]:
    """The cells of one window of all ranks."""
    times = generator.lognormal(np.log(1e7), 0.1, 120)
    one = CellWindow(
        Phase.DECODE, 8, 120, 1e7, 1e7, 1.1e7, 1.2e7, 1.3e7, (1e6,) * 6, 0.5, 8, 0, 1e4, 0, sketch_of(times)
    )
    phases = (Phase.DECODE, Phase.EXTEND)
    return [
        (f"tp{rank}", replace(one, phase=phase, bucket=bucket))
        for rank in range(8)
        for phase in phases
        for bucket in BUCKETS
    ]


def main() -> None:
    """Write, add up, and print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=30)
    minutes = parser.parse_args().minutes
    generator = np.random.default_rng(1)
    start_ns = 1_790_000_000 * SECOND // (3600 * SECOND) * 3600 * SECOND
    with tempfile.TemporaryDirectory() as directory:
        engine = open_database(f"sqlite:///{Path(directory) / 'bench.db'}", create=True)
        transactions = Transactions(engine, "node")
        for window in range(12 * minutes):
            at_ns = start_ns + window * 5 * SECOND
            windows = [StoredWindow(RUN.key, rank, at_ns, 5 * SECOND, cell) for rank, cell in cells(generator)]
            samples = [
                StoredSample("node", f"reading{number}", (), at_ns + beat * SECOND, number)
                for beat in ((0, 2, 4) if window % 2 else (1, 3))
                for number in range(READINGS)
            ]
            transactions.write(Unit(at_ns, runs=[RUN], windows=windows, samples=samples))
        print(f"written: {transactions.rows} rows, {transactions.busy_ns / 1e6 / (12 * minutes):.0f} ms a transaction")
        now_ns = start_ns + 3 * 86_400 * SECOND
        upkeep = Upkeep(engine, "node", Store(), lambda: now_ns, transactions.forget)
        spent = []
        while True:
            began = time.perf_counter(), time.thread_time()
            waits = upkeep.step() > 1
            if waits:
                break
            spent.append((time.perf_counter() - began[0], time.thread_time() - began[1]))
        wall, cpu = np.array(spent).T
        print(f"a step of five minutes: median {np.median(wall) * 1e3:.0f} ms, longest {wall.max() * 1e3:.0f} ms")
        seconds = minutes * 60
        print(
            f"CPU: {cpu.sum() / seconds:.2%} of a core, beside {transactions.busy_ns / 1e9 / seconds:.2%} for writing"
        )
        engine.dispose()


if __name__ == "__main__":
    main()
