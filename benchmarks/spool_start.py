"""A daemon that starts after a long outage: how soon it samples, and how long what waits then takes to the database.

16 series with a saved state of about 50 KB each every 15 s, and 64 windows and 318 readings every 5 s, lie on disk; the
database is SQLite on the same disk.

    python benchmarks/spool_start.py [--mebibytes 1024]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from cyclewatch.config.settings import Settings
from cyclewatch.config.store import Store
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.start import open_store
from cyclewatch.daemon.store.unit import RingPosition, Run, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import sketch_of
from cyclewatch.detectors.windows import CellWindow

SECOND = 10**9
START_NS = 1_790_000_000 * SECOND
UNIT_NS = 5 * SECOND
CHECKPOINT = 3
"""Units from one to the next."""

SERIES = 16
NUMBERS = 6_000
BUCKETS = (1, 8, 64, 256)
READINGS = 318
RUN = Run("bench", "node", "server", START_NS, START_NS, "f00d", "0.5.23", "model", {})


def unit(number: int, generator: np.random.Generator, sketch: bytes) -> Unit:
    """What a turn leaves."""
    at_ns = START_NS + number * UNIT_NS
    cells = (
        CellWindow(Phase.DECODE, bucket, 120, 1e7, 1e7, 1.1e7, 1.2e7, 1.3e7, (1e6,) * 6, 0.5, 8, 0, 1e4, 0, sketch)
        for bucket in BUCKETS
    )
    windows = [StoredWindow(RUN.key, f"tp{rank}", at_ns, UNIT_NS, cell) for cell in cells for rank in range(SERIES)]
    samples = [StoredSample("node", f"reading{place}", (), at_ns, number) for place in range(READINGS)]
    whole = Unit(at_ns, windows=windows, samples=samples)
    if number % CHECKPOINT == 0:
        whole.runs = [RUN]
        whole.rings = [RingPosition(f"ring{rank}", number, number) for rank in range(SERIES)]
        whole.states = {
            f"server|tp{rank}|decode|f00d": {"version": 1, "levels": generator.normal(size=NUMBERS).tolist()}
            for rank in range(SERIES)
        }
    return whole


def main() -> None:
    """Fill, start, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=1024)
    size_bytes = parser.parse_args().mebibytes * 2**20
    generator = np.random.default_rng(1)
    sketch = sketch_of(generator.lognormal(np.log(1e7), 0.1, 120))
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(state_dir=Path(directory), store=Store(spool_bytes=2 * size_bytes))
        open_database(settings.database_url, create=True).dispose()
        spool, units = Spool(settings.state_dir / "spool", 2 * size_bytes), 0
        while spool.size_bytes < size_bytes:
            spool.append(unit(units, generator, sketch))
            units += 1
        spool.close()
        print(f"on disk: {units} units of {units * UNIT_NS / SECOND / 3600:.1f} h, {size_bytes / 2**20:.0f} MiB")
        began_s, rss_bytes = (time.perf_counter(), time.process_time()), psutil.Process().memory_info().rss
        store = open_store(settings, "node", time.time_ns)
        took_s = time.perf_counter() - began_s[0], time.process_time() - began_s[1]
        grown_bytes = psutil.Process().memory_info().rss - rss_bytes
        print(f"until it samples: {took_s[0]:.1f} s, {took_s[1]:.1f} s of CPU, {grown_bytes / 2**20:.0f} MiB of memory")
        began_s = time.perf_counter(), time.process_time()
        store.writer.start()
        while store.writer.waiting:
            time.sleep(0.1)
        took_s = time.perf_counter() - began_s[0], time.process_time() - began_s[1]
        print(f"until the database has it: {took_s[0]:.0f} s, {took_s[1]:.0f} s of CPU")
        store.writer.stop(10)
        store.engine.dispose()


if __name__ == "__main__":
    main()
