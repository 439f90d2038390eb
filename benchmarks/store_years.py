"""Two years of eight servers in one SQLite file: its size, and how long any range of a timeline takes.

Each server has a rank with three phases at four loads, and was started anew every month. 318 readings came every 2 s.
All of it is written set by set, in order of time, as it lies after the upkeep of two years: single windows of the last
two days, minutes of the last thirty, hours of the rest. The last hours for timelines are summed up by the upkeep.

    python benchmarks/store_years.py [--readings 318]

Takes some minutes, and 7 GB in the directory for temporary files.
"""

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
from sqlalchemy import Connection, Engine

from cyclewatch.config.store import Store
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.hours import HOURS
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.rollup import HOUR_NS, MINUTE_NS
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.timeline import cycles_over, readings_over
from cyclewatch.detectors.statistics.sketch import sketch_of

SECOND = 10**9
DAY_NS = 24 * HOUR_NS
NOW_NS = 1_790_000_000 * SECOND // DAY_NS * DAY_NS
TARGETS = 8
PHASES = ("decode", "extend", "mixed")
BUCKETS = (1, 8, 64, 256)
RUN_NS = 30 * DAY_NS
POINTS = 400
ROUNDS = 7
AIM_MS = 300.0
TIERS = {
    "hour": (730 * DAY_NS, 30 * DAY_NS, HOUR_NS),
    "minute": (30 * DAY_NS, 2 * DAY_NS, MINUTE_NS),
    "fine": (2 * DAY_NS, 0, 5 * SECOND),
}
"""From when to when before now, and how far apart."""
READ_EVERY_NS = 2 * SECOND
BEGAN_NS = NOW_NS - 730 * DAY_NS
RANGES = {
    "last hour": (NOW_NS - HOUR_NS, NOW_NS),
    "last day": (NOW_NS - DAY_NS, NOW_NS),
    "last two days": (NOW_NS - 2 * DAY_NS, NOW_NS),
    "last week": (NOW_NS - 7 * DAY_NS, NOW_NS),
    "last month": (NOW_NS - 30 * DAY_NS, NOW_NS),
    "two years": (BEGAN_NS, NOW_NS),
    "an hour two years ago": (BEGAN_NS + 17 * HOUR_NS, BEGAN_NS + 18 * HOUR_NS),
    "a day a year ago": (NOW_NS - 366 * DAY_NS, NOW_NS - 365 * DAY_NS),
}

# CROSS JOIN, so that time is the outer loop: rows lie in the order in which they came.
INSTANTS = "WITH RECURSIVE t(at) AS (SELECT :first UNION ALL SELECT at + :step FROM t WHERE at + :step < :end)"
CELLS = "FROM t CROSS JOIN runs r ON at >= r.started_at_ns AND at < r.last_seen_ns CROSS JOIN json_each(:phases) p"
VARYING = "1e7 * (1 + 0.01 * ((at / 1000000000) % 97)) * r.id"
WINDOWS = f"""{INSTANTS} INSERT INTO windows
    (run_id, rank, phase, start_ns, bucket, length_ns, count, mean_ns, p50_ns, p90_ns, p99_ns, max_ns,
     schedule_ns, input_ns, launch_ns, wait_ns, result_ns, rest_ns,
     on_cpu_ratio, batch_size, new_tokens, kv_tokens, queue_length, sketch)
    SELECT r.id, 'tp0', p.value, at, b.value, :step, :count, {VARYING}, {VARYING}, {VARYING}, {VARYING}, {VARYING},
           1e5 + 0.5, 1e5 + 0.5, 1e6 + 0.5, 1e6 + 0.5, 1e5 + 0.5, 1e5 + 0.5,
           0.51, b.value + 0.5, 0, 1e4 + 0.5, 0.5, :sketch
    {CELLS} CROSS JOIN json_each(:buckets) b"""
LEVELS = f"""{INSTANTS} INSERT INTO levels
    (run_id, rank, phase, start_ns, log_ratio, standard_error, effective, tail, doubt,
     known, total, suspected, length_ns)
    SELECT r.id, 'tp0', p.value, at, 0.001 * (at % 7), 0.002, 50.5, 0.1, :doubt, :count, :count, 0, :length {CELLS}"""
HOUR_ROWS = f"""{INSTANTS} INSERT INTO hours
    (run_id, rank, phase, start_ns, count, mean_ns, p50_ns, p99_ns, max_ns, log_ratio)
    SELECT r.id, 'tp0', p.value, at, :count, {VARYING}, {VARYING}, {VARYING}, {VARYING}, 0.001 {CELLS}"""
SAMPLES = f"""{INSTANTS} INSERT INTO samples (series_id, at_ns, value)
    SELECT s.id, at, at % 1009 + 0.5 FROM t CROSS JOIN series s"""


def fill(path: Path, readings: int) -> None:
    """Write two years; with indexes by time made at the end, since that takes a third of the time."""
    generator = np.random.default_rng(1)
    common = {
        "phases": json.dumps(PHASES),
        "buckets": json.dumps(BUCKETS),
        "sketch": sketch_of(generator.lognormal(np.log(1e7), 0.1, 120)),
        "doubt": bytes(16),
    }
    with closing(sqlite3.connect(path)) as file:
        file.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-1000000")
        runs = [
            (f"run{target}-{begin_ns}", f"server{target}", begin_ns, min(begin_ns + RUN_NS, NOW_NS))
            for begin_ns in range(BEGAN_NS, NOW_NS, RUN_NS)
            for target in range(TARGETS)
        ]
        file.executemany(
            "INSERT INTO runs (key, node, target, started_at_ns, last_seen_ns, fingerprint, version, model, arguments)"
            " VALUES (?, 'node', ?, ?, ?, 'f00d', '0.5.23', 'model', '{}')",
            runs,
        )
        file.executemany(
            "INSERT INTO series (node, key, target, name, labels) VALUES ('node', ?, 'node', ?, '{}')",
            [(f"reading{number}", f"reading{number}") for number in range(readings)],
        )
        indexes = file.execute(
            "SELECT name, sql FROM sqlite_master WHERE name LIKE 'ix_%_ns' AND tbl_name IN"
            " ('windows', 'levels', 'samples')"
        ).fetchall()
        for name, _ in indexes:
            file.execute(f"DROP INDEX {name}")
        for name, (since_ns, until_ns, step_ns) in TIERS.items():
            tier = {**common, "first": NOW_NS - since_ns, "end": NOW_NS - until_ns, "step": step_ns}
            tier |= {"count": 20 * step_ns // SECOND, "length": 0 if name == "fine" else step_ns}
            tier |= {"doubt": common["doubt"] if name == "fine" else None}
            for statement in (WINDOWS, LEVELS):
                file.execute(statement, tier)
            file.execute(SAMPLES, tier | {"step": READ_EVERY_NS if name == "fine" else step_ns})
        hours = {**common, "first": BEGAN_NS, "end": NOW_NS - DAY_NS, "step": HOUR_NS, "count": 288_000}
        file.execute(HOUR_ROWS, hours)
        file.executemany(
            "INSERT INTO rollups (name, until_ns) VALUES (?, ?)",
            [("minute", NOW_NS - 2 * DAY_NS), ("hour", NOW_NS - 30 * DAY_NS), (HOURS, NOW_NS - DAY_NS)],
        )
        for _, statement in indexes:
            file.execute(statement)
        file.commit()


def sizes(path: Path) -> None:
    """Print bytes and rows by table, with its indexes."""
    with closing(sqlite3.connect(path)) as file:
        print(f"size on disk: {path.stat().st_size / 1e9:.2f} GB")
        for table in ("windows", "levels", "hours", "samples"):
            rows = file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            print(f"  {table}: {rows:,} rows")


def sum_up(engine: Engine) -> None:
    """The last day of hours, by the upkeep; prints what one takes."""
    upkeep = Upkeep(engine, "node", Store(), lambda: NOW_NS, lambda: None)
    spent = []
    while True:
        began_s = time.perf_counter()
        if upkeep.step() > 1:
            break
        spent.append((time.perf_counter() - began_s) * 1e3)
    print(f"an hour summed up: median {np.median(spent):.0f} ms, longest {max(spent):.0f} ms, {len(spent)} of them")


def timed(read: Callable[[], int]) -> tuple[float, float, int]:
    """Median milliseconds by the clock and on a CPU, and the points that came."""
    spent = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter(), time.thread_time()
        points = read()
        spent.append((time.perf_counter() - began_s[0], time.thread_time() - began_s[1]))
    elapsed_s, cpu_s = np.median(spent, axis=0)
    return float(elapsed_s) * 1e3, float(cpu_s) * 1e3, points


def ranges(connection: Connection) -> None:
    """Print what each range takes."""
    worst_ms = 0.0
    print(f"{'':24}{'cycles of a phase':>30}{'one reading':>30}   (points: median ms, of these on a CPU)")
    for name, (from_ns, to_ns) in RANGES.items():
        stretch = Stretch("server3", from_ns, to_ns)

        def cycles(stretch: Stretch = stretch) -> int:
            return len(cycles_over(connection, stretch, "tp0", "decode", POINTS))

        def reading(stretch: Stretch = stretch) -> int:
            return sum(len(trace.at_ns) for trace in readings_over(connection, stretch, "reading7", POINTS))

        told = ""
        for read in (cycles, reading):
            median_ms, cpu_ms, points = timed(read)
            worst_ms = max(worst_ms, median_ms)
            told += f"{points:>12}: {median_ms:6.0f}, {cpu_ms:6.0f}"
        print(f"{name:24}{told}")
    print(f"slowest: {worst_ms:.0f} ms, aim {AIM_MS:.0f} ms")


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readings", type=int, default=318)
    readings = parser.parse_args().readings
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "years.db"
        open_database(f"sqlite:///{path}", create=True).dispose()
        began_s = time.perf_counter()
        fill(path, readings)
        print(f"written in {time.perf_counter() - began_s:.0f} s")
        sizes(path)
        engine = open_database(f"sqlite:///{path}", create=False)
        sum_up(engine)
        with engine.connect() as connection:
            ranges(connection)
        engine.dispose()


if __name__ == "__main__":
    main()
