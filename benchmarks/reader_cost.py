"""What reading the rings costs the node, and what judging the cycles costs on top: CPU time of the reading process.

    python benchmarks/reader_cost.py [--rings 8] [--rate 300] [--seconds 20] [--json]

The rings are real ones on /dev/shm, each written by a process of its own through the plugin's writer. They are read
as often as the daemon does it. Aim: at most 1 % of a core for the reading.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon does

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
from ring_traffic import writers

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.cycles import CyclesCollector
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.records import CycleBatch, Sample
from cyclewatch.config.settings import Detection, Rings, Settings
from cyclewatch.daemon.environment import Environment
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.pipeline import Pipeline
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.runs import RunRegistry
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.attribution import Evidence

PAST_S = 50.0
SETTLE_TURNS = 12
AIM_PERCENT = 1.0
INTERVAL_S = Rings().interval_s


@dataclass(frozen=True)
class Cost:
    """CPU time of one way to read, as a share of one core, and what it read."""

    percent_of_a_core: float
    us_a_record: float
    records: int
    lost: int
    torn: int


class NoHistory:
    """A store that remembers nothing."""

    def detector_state(self, key: str) -> None:
        """Nothing saved."""
        del key

    def evidence(
        self, run: Run, rank: str, phase: str, began_ns: int, span_ns: tuple[int, int], *, synchronous: bool
    ) -> Evidence:
        """Nothing known."""
        del run, phase, began_ns
        return Evidence(span_ns[0], rank, before=(), after=(), synchronous=synchronous)

    def replaced_by(self, run: Run) -> list[Run]:
        """Nothing ran before."""
        del run
        return []

    def evidence_of_deployment(
        self, replaced: Run, run: Run, rank: str, phase: str, span_ns: tuple[int, int]
    ) -> Evidence:
        """Nothing known."""
        del replaced, run, phase
        return Evidence(span_ns[0], rank, before=(), after=(), synchronous=True)


def now() -> Now:
    """Both clocks."""
    return Now(time.monotonic_ns(), time.time_ns())


def measure(look: Callable[[], list[Sample]], seconds: int) -> Cost:
    """Look as often as the daemon does; all CPU time of this process in that time counts."""
    records = lost = torn = 0
    began_s, used_s = time.monotonic(), time.process_time()
    for turn in range(1, math.ceil(seconds / INTERVAL_S) + 1):
        for sample in look():
            if isinstance(sample, CycleBatch):
                records, lost, torn = records + len(sample.records), lost + sample.lost, torn + sample.torn
        time.sleep(max(0.0, began_s + INTERVAL_S * turn - time.monotonic()))
    used_s, passed_s = time.process_time() - used_s, time.monotonic() - began_s
    return Cost(100 * used_s / passed_s, 1e6 * used_s / max(records, 1), records, lost, torn)


def settle(look: Callable[[], list[Sample]]) -> None:
    """Until the past has been written and read, and the baseline stands."""
    for _ in range(SETTLE_TURNS):
        look()
        time.sleep(0.5)


def run(rings: int, rate: float, seconds: int) -> dict[str, Cost]:
    """Reading alone, then reading with windows and detection, each for `seconds`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="cyclewatch-bench-", dir="/dev/shm") as name:
        directory = Path(name)
        settings = Settings(rings=Rings(directory=directory), detection=Detection(reference_s=30, warmup_s=0))
        with writers(directory, rings, rate, past_s=PAST_S):
            reader = CyclesCollector(settings.rings, Discovery(()), settings.host.proc, {})
            settle(lambda: list(reader.collect(now())))
            reading = measure(lambda: list(reader.collect(now())), seconds)
            reader.close()

            executor = ThreadPoolExecutor(1)
            judging = CyclesCollector(settings.rings, Discovery(()), settings.host.proc, {})
            metrics, runs, known = Metrics(), RunRegistry("node", "boot", ()), NoHistory()
            pipeline = Pipeline(settings, metrics, runs, Environment(), Board(), known, {}, lambda _: None, executor)

            def look() -> list[Sample]:
                samples = list(judging.collect(now()))
                for sample in samples:
                    pipeline.take(sample, now())
                pipeline.turn(now())
                return samples

            settle(look)
            both = measure(look, seconds)
            judging.close()
            executor.shutdown()
    return {"reading": reading, "reading, windows and detection": both}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rings", type=int, default=8, help="rings, one a rank (default: 8)")
    parser.add_argument("--rate", type=float, default=300, help="cycles a second and ring (default: 300)")
    parser.add_argument("--seconds", type=int, default=20, help="seconds of each measurement (default: 20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    costs = run(options.rings, options.rate, options.seconds)
    if options.json:
        setup = {"python": platform.python_version(), "rings": options.rings, "rate": options.rate}
        document = {name: asdict(cost) for name, cost in costs.items()}
        print(json.dumps({**setup, "seconds": options.seconds, "aim_percent": AIM_PERCENT, "costs": document}))
        return
    print(f"{options.rings} rings, {options.rate:g} cycles/s each, read every {INTERVAL_S:g} s,", end=" ")
    print(f"for {options.seconds} s;")
    print(f"Python {platform.python_version()}; aim for reading: at most {AIM_PERCENT:g} % of a core\n")
    print(f"{'':32} {'of a core':>10} {'a record':>10} {'records':>9} {'lost':>6} {'torn':>6}")
    for name, cost in costs.items():
        numbers = f"{cost.records:9} {cost.lost:6} {cost.torn:6}"
        print(f"{name:32} {cost.percent_of_a_core:8.2f} % {cost.us_a_record:7.2f} us {numbers}")


if __name__ == "__main__":
    main()
