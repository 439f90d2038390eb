"""Hold the detection against its peers and against what is possible: `make bench-detect`.

    PYTHONPATH=benchmarks python -m detect [TABLE ...] [--quick] [--slow] [--only NAME] [--json FILE]

Every series is drawn from a fixed seed, a stream of its own for each cell, so that any part can be run by itself.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon does

import argparse
import importlib
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from detect import contestants, false_alarms, power, report, speed, tcpd

SEED = 20_251_121
ROOT = Path(__file__).resolve().parents[2]
QUICK_SHARE = 0.1

LOAD_HOURS, LOAD_RUNS = 1000, 200


def load_table(options: report.Options) -> report.Table:
    """Table 3: what the daemon makes of simulated cycles under load; it has seeds of its own and no peers."""
    title = "3. Load: simulated cycles, all series of a target together, by the daemon's own path"
    if all(entry.name != contestants.OURS for entry in options.contestants):
        return report.Table("load", title, notes=["NOT RUN: it is about ours only"])
    load = importlib.import_module("detect.load")  # here, as it brings the whole daemon
    rows = load.run(options.count(LOAD_HOURS), options.count(LOAD_RUNS))
    notes = [f"seeds from {load.SEED}, one a run", *load.table(rows)]
    return report.Table("load", title, figures=[asdict(row) for row in rows], notes=notes)


# Every table: its name on the command line and what makes it.
TABLES: dict[str, Callable[[report.Options], report.Table]] = {
    "false-alarms": false_alarms.table,
    "power": power.table,
    "load": load_table,
    "tcpd": tcpd.table,
    "tigerbeetle": tcpd.performance_table,
    "speed": speed.table,
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="detect", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    parser.add_argument("--slow", action="store_true", help="run also what takes more than a minute")
    parser.add_argument("--only", action="append", choices=contestants.NAMES, help="run this contestant; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all series (default: {SEED})")
    shared = Path(os.environ.get("CYCLEWATCH_SHARED", ROOT.parent / "shared"))
    parser.add_argument("--shared", type=Path, default=shared, help="where data/ is (default: $CYCLEWATCH_SHARED)")
    options = parser.parse_args()
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"no such table: {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    return options


def main() -> None:
    """Run the command line."""
    chosen = arguments()
    share = QUICK_SHARE if chosen.quick else 1.0
    entries = contestants.contestants(chosen.only or contestants.NAMES)
    options = report.Options(chosen.seed, share, chosen.slow, chosen.shared, entries)
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {os.cpu_count()} CPUs")
    print(f"seed {options.seed}{', a tenth of the series (--quick)' if chosen.quick else ''}")
    for entry in entries:
        print(f"  {entry.name}: {entry.version}; {entry.note}")
    tables = []
    for name in chosen.tables or TABLES:
        start = time.perf_counter()
        tables.append(TABLES[name](options))
        print("\n" + "\n".join(report.lines(tables[-1])))
        print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
    if chosen.json:
        content = {
            "python": sys.version,
            "numpy": np.__version__,
            "seed": options.seed,
            "share": share,
            "contestants": {entry.name: entry.version for entry in entries},
            "tables": {table.key: asdict(table) for table in tables},
        }
        chosen.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
