"""What it costs to ask what is behind a regression, and what a turn of the pipeline feels of it.

Eight ranks with two phases and four load buckets, a window every 5 s, and 318 readings every 2 s, in SQLite on disk.
All sixteen series became slower five minutes ago, and each asks.

    python benchmarks/inquiry_cost.py [--minutes 30]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.daemon.inquiry import Inquiry, Place
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import Run, StoredSample, StoredWindow, Unit
from cyclewatch.daemon.watch import Found
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import sketch_of
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.shift_watch import Change, Kind
from cyclewatch.detectors.watching.tracking import Regression, State
from cyclewatch.detectors.windows import CellWindow

SECOND = 10**9
RUN = Run("bench", "node", "server", 0, 2**62, "f00d", "0.5.23", "model", {})
RANKS = tuple(f"tp{rank}" for rank in range(8))
PHASES = (Phase.DECODE, Phase.EXTEND)
BUCKETS = (1, 8, 64, 256)
READINGS = 318
START_NS = 1_790_000_000 * SECOND
SLOW_NS = 300 * SECOND
LOOK_S = 0.01
SKETCH = sketch_of(np.random.default_rng(1).lognormal(np.log(1e7), 0.1, 120))


def main() -> None:
    """Fill a store, ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=30)
    minutes = parser.parse_args().minutes
    end_ns = START_NS + minutes * 60 * SECOND
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(1) as executor:
        engine = open_database(f"sqlite:///{Path(directory) / 'bench.db'}", create=True)
        fill(Transactions(engine, "node"), end_ns)
        inquiry = Inquiry(StoreHistory(engine, "node"), Path(directory), executor)
        one = found(end_ns - SLOW_NS, end_ns)
        parameters = Parameters.of(Detection(), Windows())
        places = [Place(RUN, rank, phase.value, synchronous=False) for phase in PHASES for rank in RANKS]
        inquiry.ask(places[0], one, parameters).result()
        times_ms = []
        for place in places:
            began_ns = time.perf_counter_ns()
            inquiry.ask(place, one, parameters).result()
            times_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        print(f"{minutes} minutes of {READINGS} readings and {len(places)} series, asked about the last five")
        print(f"  one question: {np.median(times_ms):.0f} ms; all, one after the other: {sum(times_ms):.0f} ms")
        quiet_until_s = time.monotonic() + 2
        print(f"  a thread that sleeps is late by {late(lambda: time.monotonic() < quiet_until_s)}")
        answers = [inquiry.ask(place, one, parameters) for place in places]
        print(f"  while all are asked, by {late(lambda: not all(answer.done() for answer in answers))}")
        engine.dispose()


def late(goes_on: Callable[[], bool]) -> str:
    """How late this thread wakes from short sleeps."""
    late_ms = [0.0]
    while goes_on():
        began_ns = time.perf_counter_ns()
        time.sleep(LOOK_S)
        late_ms.append((time.perf_counter_ns() - began_ns) / 1e6 - LOOK_S * 1e3)
    return f"{np.median(late_ms):.1f} ms, {max(late_ms):.0f} ms at most"


def fill(transactions: Transactions, end_ns: int) -> None:
    """Windows and readings; every cycle takes half as long again in the last minutes."""
    for at_ns in range(START_NS, end_ns, 5 * SECOND):
        factor = 1.5 if at_ns >= end_ns - SLOW_NS else 1.0
        cell = CellWindow(
            Phase.DECODE, 8, 120, 6e6 * factor, 1e7, 1.1e7, 1.2e7, 1.3e7, (1e6 * factor,) * 6, 0.5, 8, 0, 1e4, 0, SKETCH
        )
        windows = [
            StoredWindow(RUN.key, rank, at_ns, 5 * SECOND, replace(cell, phase=phase, bucket=bucket))
            for rank in RANKS
            for phase in PHASES
            for bucket in BUCKETS
        ]
        samples = [
            StoredSample("node", f"reading{number}", (), at_ns + late * SECOND, number + factor)
            for number in range(READINGS)
            for late in (0, 2, 4)
        ]
        transactions.write(Unit(at_ns, runs=[RUN], windows=windows, samples=samples))


def found(began_ns: int, now_ns: int) -> Found:
    """That a series became slower by half."""
    effect, ci, probability = 0.5, (0.45, 0.55), 0.9999
    change = Change(Direction.SLOWER, began_ns, now_ns, 0.0, 0.405, effect, ci, probability, 60)
    regression = Regression(
        "key", State.OPEN, Direction.SLOWER, Kind.LEVEL, began_ns, now_ns, None, 0.0, 0.405, effect, ci, probability
    )
    return Found(change, regression)


if __name__ == "__main__":
    main()
