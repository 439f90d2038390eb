"""What the whole daemon costs with every collector at its default interval, and where that goes.

    python benchmarks/daemon_cost.py [--seconds 300] [--servers 6] [--rings 8] [--rate 100] [--json]

The real daemon, in a process of its own, watches some servers: 8 rings on /dev/shm, each written by a process with
threads, and to each server a main process, a detokenizer and SGLang's pages over HTTP; 8 GPUs played from a recording
of an H200 through the door to NVML; SQLite on disk; a scrape every 15 s. Time in the driver is therefore not in it. The
split is what the collector `self` and the durations at /metrics say. Aims: at most 2 % of one core, and 150 MB.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon does

import argparse
import json
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from daemon_memory import cpu_s, free_port, ready, server, usage
from prometheus_client.parser import text_string_to_metric_families
from ring_traffic import writers

from cyclewatch.collectors.gpu.recording import RecordedDoor, Recording
from cyclewatch.config.load import load_settings
from cyclewatch.daemon.log import configure_logging
from cyclewatch.daemon.memory import settle_memory
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.signals import stop_on_signals

RECORDING = Path(__file__).parent.parent / "tests/fixtures/nvml/h200.json"
GPUS = 8
THREADS = {"scheduler": 20, "main": 20, "detokenizer": 10}
PAST_S = 120.0
SETTLE_S = 45.0
SCRAPE_S = 15.0
AIM_PERCENT = 2.0
AIM_MB = 150.0
SETTINGS = """
state_dir = '{state}'
[rings]
directory = '{rings}'
[profiling]
socket_dir = '{rings}/kineto'
[web]
port = {port}
[log]
level = 'warning'
[detection]
reference_s = 60
"""


@dataclass(frozen=True)
class Cost:
    """The daemon over some time. Shares are of one core, in percent; those of collectors are of the time they took."""

    percent_of_a_core: float
    rss_mb: float
    pss_mb: float
    peak_mb: float
    stored_mb_a_day: float
    series: dict[str, int]
    percent_by_thread: dict[str, float]
    percent_by_collector: dict[str, float]
    percent_turning: float
    percent_in_transactions: float
    rows_a_second: float
    lost: float


@contextmanager
def servers(directory: Path, count: int, rings: int, rate: float) -> Iterator[None]:
    """That many servers, with `rings` ranks between them."""
    with ExitStack() as stack:
        for number in range(count):
            ranks = rings // count + (number < rings % count)
            stack.enter_context(serving(directory, ranks, rate, stack.enter_context(server())))
        yield


@contextmanager
def serving(rings: Path, count: int, rate: float, port: int) -> Iterator[None]:
    """A server of `count` ranks: this module as its main process, which starts the others."""
    command = [sys.executable, __file__, "--be-server", str(rings), "--rings", str(count), "--rate", str(rate)]
    command += ["--port", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate()


def be_server(rings: Path, count: int, rate: float, port: int) -> None:
    """Be the main process of a server until the input ends."""
    others = [f"detokenizer:{THREADS['detokenizer']}"]
    command = [sys.executable, str(Path(__file__).with_name("serving_processes.py")), "main", str(THREADS["main"])]
    with (
        subprocess.Popen([*command, *others], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
        writers(rings, count, rate, port=port, past_s=PAST_S, threads=THREADS["scheduler"]),
    ):
        print(child.pid, flush=True)
        sys.stdin.read()
        child.communicate()


def be_daemon(config: Path) -> None:
    """Be the daemon, with a recording in NVML's place."""
    settings = load_settings(config)
    configure_logging(settings.log)
    daemon = Server(settings, nvml=RecordedDoor(Recording.load(RECORDING), copies=GPUS))
    settle_memory()
    with stop_on_signals(daemon):
        daemon.run()


def scrape(port: int) -> dict[str, float]:
    """What /metrics says, by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return {
        "|".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def pss_mb(pid: int) -> float:
    """Memory of a process, with what it shares with others divided among them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1.024e-3


def stored(database: Path, since_ns: int) -> tuple[dict[str, float], Counter[str]]:
    """Means of the daemon's own series since an instant, and how many series each collector has."""
    with closing(sqlite3.connect(database)) as connection:
        means = dict(
            connection.execute(
                "SELECT key, avg(value) FROM samples JOIN series ON series.id = series_id "
                "WHERE name LIKE 'self.%' AND at_ns > ? GROUP BY key",
                (since_ns,),
            ).fetchall()
        )
        names = connection.execute("SELECT name FROM series").fetchall()
    return means, Counter(name.partition(".")[0] for (name,) in names)


def watch(config: Path, port: int, seconds: float) -> Cost:
    """Run the daemon for some time after it has settled."""
    database = config.with_name("cyclewatch.db")
    command = [sys.executable, __file__, "--be-daemon", str(config)]
    with subprocess.Popen(command) as daemon:
        try:
            deadline = time.monotonic() + 60
            while not ready(port):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the daemon did not become ready")
                time.sleep(0.1)
            time.sleep(SETTLE_S)
            before, began_ns, began_s, used_s = scrape(port), time.time_ns(), time.monotonic(), cpu_s(daemon.pid)
            size = database_bytes(database)
            while (passed_s := time.monotonic() - began_s) < seconds:
                time.sleep(min(SCRAPE_S, seconds - passed_s))
                after = scrape(port)
            used_s = cpu_s(daemon.pid) - used_s
            memory, proportional_mb = usage(daemon.pid, passed_s, used_s), pss_mb(daemon.pid)
            grown = database_bytes(database) - size
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
    means, series = stored(database, began_ns)

    def share(name: str) -> float:
        return 100 * (after[name] - before.get(name, 0.0)) / passed_s

    durations = "cyclewatch_collector_duration_seconds_sum|"
    threads = "node|self.thread_cpu_ratio|thread="
    return Cost(
        percent_of_a_core=100 * used_s / passed_s,
        rss_mb=memory.rss_mb,
        pss_mb=proportional_mb,
        peak_mb=memory.peak_mb,
        stored_mb_a_day=grown / 1e6 / passed_s * 86_400,
        series=dict(series.most_common()),
        percent_by_thread={
            key.removeprefix(threads): 100 * mean for key, mean in means.items() if key.startswith(threads)
        },
        percent_by_collector={
            name.removeprefix(durations): share(name) for name in after if name.startswith(durations)
        },
        percent_turning=share("cyclewatch_turn_duration_seconds_sum"),
        percent_in_transactions=100 * means["node|self.store_busy_ratio"],
        rows_a_second=means["node|self.store_rows_per_s"],
        lost=sum(value for name, value in after.items() if name.startswith("cyclewatch_ring_records_lost_total")),
    )


def database_bytes(database: Path) -> int:
    """Size of the database with what is not yet in its main file."""
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*") if "shm" not in path.name)


def run(seconds: float, count: int, rings: int, rate: float) -> Cost:
    """Everything, once."""
    with (
        tempfile.TemporaryDirectory(prefix="cyclewatch-bench-", dir="/dev/shm") as directory,
        tempfile.TemporaryDirectory(prefix="cyclewatch-bench-") as state,
        servers(Path(directory), count, rings, rate),
    ):
        config, port = Path(state) / "cyclewatch.toml", free_port()
        config.write_text(SETTINGS.format(state=state, rings=directory, port=port))
        return watch(config, port, seconds)


def show(cost: Cost) -> None:
    """Print it for people."""
    print(f"CPU     {cost.percent_of_a_core:6.2f} % of one core (aim: at most {AIM_PERCENT:g} %)")
    print(f"memory  {cost.rss_mb:6.1f} MB RSS, {cost.pss_mb:.1f} MB PSS, peak {cost.peak_mb:.1f} (aim: {AIM_MB:g} MB)")
    print(f"stored  {cost.stored_mb_a_day:6.0f} MB/day, {cost.rows_a_second:.0f} rows/s; {cost.lost:.0f} records lost")
    print("series ", ", ".join(f"{count} {name}" for name, count in cost.series.items()))
    print("\nCPU by thread")
    for name, percent in sorted(cost.percent_by_thread.items(), key=lambda item: -item[1]):
        print(f"  {name:20} {percent:6.3f} %")
    print("\ntime taken (of the wall clock)")
    times = {
        **{f"collector {name}": percent for name, percent in cost.percent_by_collector.items()},
        "turns of the pipeline": cost.percent_turning,
        "transactions": cost.percent_in_transactions,
    }
    for name, percent in sorted(times.items(), key=lambda item: -item[1]):
        print(f"  {name:24} {percent:6.3f} %")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="seconds of the measurement (default: 300)")
    parser.add_argument("--servers", type=int, default=6, help="servers that are watched (default: 6)")
    parser.add_argument("--rings", type=int, default=8, help="rings of them all, one a rank (default: 8)")
    parser.add_argument("--rate", type=float, default=100, help="cycles a second and ring (default: 100)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--be-server", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--be-daemon", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be_server:
        be_server(options.be_server, options.rings, options.rate, options.port)
        return
    if options.be_daemon:
        be_daemon(options.be_daemon)
        return
    cost = run(options.seconds, options.servers, options.rings, options.rate)
    setup = {"python": platform.python_version(), "servers": options.servers, "rings": options.rings, "gpus": GPUS}
    if options.json:
        print(
            json.dumps(
                {**setup, "rate": options.rate, "seconds": options.seconds, "aim_percent": AIM_PERCENT, **asdict(cost)}
            )
        )
        return
    print(f"{options.servers} servers, {options.rings} rings of {options.rate:g} cycles/s each, {GPUS} GPUs,", end=" ")
    print(f"{options.seconds:g} s; Python {platform.python_version()}\n")
    show(cost)


if __name__ == "__main__":
    main()
