"""What a probe of the CPU costs, how far its times lie apart, and what neighbours do to them.

    python benchmarks/probe_cost.py

Prints the times of the work with nothing beside it, with a busy process on every CPU, and with processes that stream
through memory, in alternation, since what else runs on the machine changes; and the CPU time of the whole process, its
start included, which is what a probe takes from others on a machine that is busy.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cyclewatch.collectors.probe.programs import probe_cpu

_BUSY = "while True: pass"
_STREAMING = "block = bytearray(b'1') * 2**28\nwhile True: block.find(b'2')"
_NEVER = threading.Event()


@contextmanager
def neighbours(program: str) -> Iterator[None]:
    """One process a CPU that runs this program; ended afterwards."""
    processes = (
        [subprocess.Popen([sys.executable, "-c", program]) for _ in range(os.cpu_count() or 1)] if program else []
    )
    time.sleep(0.5 if processes else 0.0)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def one_probe() -> dict[str, float]:
    """Milliseconds of each work, and of the whole process on a CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = {f"{one.name.split('.')[1]} {one.labels[0][1]}": one.value * 1e3 for one in probe_cpu(_NEVER)}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {**times, "process cpu": spent_s * 1e3}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="probes of each kind")
    arguments = parser.parse_args()
    kinds = {"alone": "", "busy neighbours": _BUSY, "streaming neighbours": _STREAMING}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(arguments.rounds):
        for kind, program in kinds.items():
            with neighbours(program):
                found[kind].append(one_probe())
    works = list(found["alone"][0])
    print(f"{'median ms (spread: half of all lie within)':45}" + "".join(f"{kind:>26}" for kind in kinds))
    for work in works:
        cells = []
        for kind in kinds:
            low, middle, high = statistics.quantiles([one[work] for one in found[kind]], n=4)
            cells.append(f"{middle:9.2f} ({low:.2f} to {high:.2f})")
        print(f"{work:45}" + "".join(f"{cell:>26}" for cell in cells))
    spent_s = statistics.median(one["process cpu"] for one in found["alone"]) / 1e3
    print(f"once an hour that is {spent_s / 3600:.1e} of one CPU, every five minutes {spent_s / 300:.1e}")


if __name__ == "__main__":
    main()
