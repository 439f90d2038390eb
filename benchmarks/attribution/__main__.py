"""Ask for the causes of simulated faults and count what is right: `make bench-attribution`.

    PYTHONPATH=benchmarks python -m attribution [--seeds 20] [--first-seed 0] [--only KIND] [--wrong] [--workers N]

Every case has its own seed, so that any of them can be drawn again by itself.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon does

import argparse
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from attribution.suite import HIDDEN, ONE, TWO, Answer, answers, tasks
from cyclewatch.detectors.simulation.faults import FAULTS

AIM_FIRST, AIM_SHARE = 0.9, 0.8


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="attribution", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="of each cause (default: 20)")
    parser.add_argument("--first-seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--only", action="append", choices=FAULTS, default=[], help="this cause; repeatable")
    parser.add_argument("--wrong", action="store_true", help="list every case that is not right")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a CPU)")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    began = time.perf_counter()
    print(f"commit {_commit()}, {datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} CPUs", end="")
    print(f", Python {platform.python_version()}, NumPy {np.__version__}; seeds {seeds[0]} to {seeds[-1]} of each")
    found = list(answers(tasks(seeds, options.only), options.workers))
    for line in lines(found):
        print(line)
    for one in found if options.wrong else ():
        if not one.right or one.near is False:
            task, what = one.task, "share" if one.right else "WRONG"
            print(f"{what}: {task.kind}, {task.name}, seed {task.seed}, x{1 + one.slowdown:.2f}: {', '.join(one.said)}")
    print(f"({time.perf_counter() - began:.0f} s)")


def lines(found: Sequence[Answer]) -> list[str]:
    """The tables."""
    one, hidden, two = (_of(found, kind) for kind in (ONE, HIDDEN, TWO))
    near = [answer for answer in found if answer.near is not None]
    shown = [*one, *two]
    share = _percent(near, lambda answer: answer.near is True)
    first, naive = (_percent(shown, good) for good in (lambda answer: answer.right, lambda answer: answer.naive_right))
    return [
        "",
        *_table("1. One cause, beside at least three readings that change for no reason", one),
        "",
        *_table("2. Two causes at once", two),
        f"  both named: {_percent(two, lambda answer: answer.both)}",
        "",
        *_table("3. Hidden: nothing in the evidence shows the cause", hidden),
        "",
        f"first right, of 1 and 2: {first}, aim {AIM_FIRST:.0%}; by z-scores {naive}",
        f"share within a third of the true one: {share}, aim {AIM_SHARE:.0%}",
        f"hidden, and no wrong name first: {_percent(hidden, lambda answer: answer.right)}",
    ]


def _of(found: Sequence[Answer], kind: str) -> list[Answer]:
    return [answer for answer in found if answer.task.kind == kind]


def _table(title: str, found: Sequence[Answer]) -> list[str]:
    rows = [title, f"  {'cause':<42} {'first right':>12} {'share near':>12} {'by z-scores':>12}   said instead"]
    for name in dict.fromkeys(answer.task.name for answer in found):
        own = [answer for answer in found if answer.task.name == name]
        near = [answer for answer in own if answer.near is not None]
        others = sorted({answer.first.partition(" ")[0].partition("(")[0] for answer in own if not answer.right})
        rows.append(
            f"  {name:<42} {_count(own, lambda answer: answer.right):>12}"
            f" {_count(near, lambda answer: answer.near is True):>12}"
            f" {_count(own, lambda answer: answer.naive_right):>12}   {', '.join(others)}".rstrip()
        )
    return rows


def _count(found: Sequence[Answer], good: Callable[[Answer], bool]) -> str:
    return f"{sum(map(good, found))} of {len(found)}" if found else "-"


def _percent(found: Sequence[Answer], good: Callable[[Answer], bool]) -> str:
    return f"{sum(map(good, found)) / len(found):.1%} ({_count(found, good)})" if found else "-"


def _commit() -> str:
    """The commit that is measured, with a plus if the tree differs from it; `unknown` outside of a repository."""
    command = ("git", "describe", "--always", "--exclude=*", "--dirty=+")
    answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
