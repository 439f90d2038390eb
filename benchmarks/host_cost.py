"""What a sample of the host costs: wall time of the collector over three real serving processes.

    python benchmarks/host_cost.py [--threads 200] [--rounds 300] [--json]

A main process, a scheduler and a detokenizer are started, with the threads spread over them. Each sample comes after
a pause, as in the daemon, so that it finds the caches as others left them; once more without one. The parts are the
sources of the collector, each timed by itself, after a pause too. Looks, which find processes, threads and devices
anew, and surveys of all processes come more rarely and stand apart. Aim: a sample of 200 threads in at most 1 ms, as
the median.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from serving_processes import serving

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.host.collector import HostCollector
from cyclewatch.collectors.host.held import HeldFile, read_each
from cyclewatch.collectors.records import Reading, RingIdentity
from cyclewatch.config.settings import Host

AIM_US = 1000.0
PAUSE_S = 0.01
NEVER_S = 86_400.0
SAMPLE = "a sample, after a pause"


@dataclass(frozen=True)
class Row:
    """How long something took, in microseconds; a tenth of the calls was quicker than `p10_us`."""

    name: str
    p10_us: float
    median_us: float
    p99_us: float


def measure(name: str, call: Callable[[], object], rounds: int, pause_s: float = PAUSE_S) -> Row:
    """Call it that often, with a pause before each."""
    taken_ns = []
    for _ in range(rounds):
        time.sleep(pause_s)
        began_ns = time.perf_counter_ns()
        call()
        taken_ns.append(time.perf_counter_ns() - began_ns)
    taken_ns.sort()
    return Row(name, *(taken_ns[rounds * percent // 100] / 1e3 for percent in (10, 50, 99)))


def now() -> Now:
    """Both clocks."""
    return Now(time.monotonic_ns(), time.time_ns())


def watching(main: int, scheduler: int, look_s: float, survey_s: float) -> HostCollector:
    """A collector that has seen the server once, and looks at those intervals."""
    identity = {"pid": scheduler, "parent_pid": main, "parent_start_ticks": 0, "monotonic_ns": 0, "wall_ns": 0}
    discovery = Discovery(())
    discovery.note(RingIdentity.parse("bench", json.dumps({**identity, "tp_rank": 0}).encode()))
    collector = HostCollector(Host(look_interval_s=look_s, survey_interval_s=survey_s), discovery)
    list(collector.collect(now()))
    return collector


def thread_files(main: int, scheduler: int) -> list[Path]:
    """The schedstat of each thread of the main process and its children."""
    children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    assert str(scheduler) in children
    return [path for pid in (str(main), *children) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]


def run(threads: int, rounds: int) -> tuple[list[Row], int]:
    """All rows, and the number of series of a sample."""
    rows = []
    with serving(threads) as (main, scheduler):
        sampling = watching(main, scheduler, NEVER_S, NEVER_S)
        series = sum(isinstance(sample, Reading) for sample in sampling.collect(now()))
        rows.append(measure(SAMPLE, lambda: list(sampling.collect(now())), rounds))
        rows.append(measure("a sample, without a pause", lambda: list(sampling.collect(now())), rounds, 0))
        for source in sampling.sources:
            name = f"  {type(source).__name__}"
            rows.append(measure(name, lambda source=source: list(source.advance(now().monotonic_ns)), rounds))  # type: ignore[misc]
        sampling.close()
        files = [HeldFile(path) for path in thread_files(main, scheduler)]
        rows.append(measure("for comparison: to read the threads' files", lambda: read_each(files, 64), rounds))
        looking = watching(main, scheduler, 1e-9, NEVER_S)
        rows.append(measure("a sample with a look", lambda: list(looking.collect(now())), rounds // 4))
        looking.close()
        surveying = watching(main, scheduler, NEVER_S, 1e-9)
        rows.append(measure("a sample with a survey", lambda: list(surveying.collect(now())), rounds // 4))
        surveying.close()
    return rows, series


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=200, help="threads of the three processes (default: 200)")
    parser.add_argument("--rounds", type=int, default=300, help="samples of each measurement (default: 300)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows, series = run(options.threads, options.rounds)
    if options.json:
        setup = {"python": platform.python_version(), "threads": options.threads, "series": series}
        print(json.dumps({**setup, "aim_us": AIM_US, "rows": [asdict(row) for row in rows]}))
        return
    print(f"3 serving processes, {options.threads} threads, {series} series; Python {platform.python_version()};")
    print(f"aim: {SAMPLE} in at most {AIM_US:g} us, as the median\n")
    print(f"{'':42} {'p10':>10} {'median':>10} {'p99':>10}")
    for row in rows:
        print(f"{row.name:42} {row.p10_us:7.1f} us {row.median_us:7.1f} us {row.p99_us:7.1f} us")


if __name__ == "__main__":
    main()
