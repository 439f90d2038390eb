"""What the daemon itself costs: memory and CPU of the real process while it watches one server.

    python benchmarks/daemon_memory.py [--seconds 60] [--rate 200] [--json]

A process writes a ring, and a small HTTP server gives the pages that SGLang 0.5.23 gave. The daemon runs twice: on a
new database, which it has to make first, and on the one that the first run left. Aim: at most 110 MB.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ring_traffic import writers

PAGES = Path(__file__).parent.parent / "tests/fixtures/engine"
ANSWERS = {"/metrics": "metrics-0.5.23.txt", "/server_info": "server_info-0.5.23.json"}
HEAVY = ("torch", "scipy", "pandas", "sglang")
AIM_MB = 110.0


@dataclass(frozen=True)
class Usage:
    """The daemon after some time; `heavy` are the libraries mapped that it must not have.

    `stored_mb_a_day` is how fast its database grows; None where it had to be made first.
    """

    rss_mb: float
    peak_mb: float
    percent_of_a_core: float
    threads: int
    files: int
    heavy: list[str]
    stored_mb_a_day: float | None = None


@contextmanager
def server() -> Iterator[int]:
    """SGLang's pages on loopback; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer as SGLang does."""
            known = ANSWERS.get(self.path)
            body = (PAGES / known).read_bytes() if known else b"{}"
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name it has in the base class)
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield http.server_address[1]
        http.shutdown()


def usage(pid: int, seconds: float, used_s: float) -> Usage:
    """What the kernel says of a process that used `used_s` of CPU time in the last `seconds`."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    mapped = Path(f"/proc/{pid}/maps").read_text()
    return Usage(
        rss_mb=int(status["VmRSS"].split()[0]) / 1000 * 1.024,
        peak_mb=int(status["VmHWM"].split()[0]) / 1000 * 1.024,
        percent_of_a_core=100 * used_s / seconds,
        threads=int(status["Threads"]),
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        heavy=[name for name in HEAVY if f"/{name}/" in mapped],
    )


def cpu_s(pid: int) -> float:
    """CPU time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(config: Path, port: int, seconds: float) -> Usage:
    """Run the daemon for `seconds` after it is ready."""
    command = [sys.executable, "-m", "cyclewatch.daemon", "run", "-c", str(config)]
    with subprocess.Popen(command) as daemon:
        try:
            deadline = time.monotonic() + 30
            while not ready(port):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the daemon did not become ready")
                time.sleep(0.1)
            began_s, used_s = time.monotonic(), cpu_s(daemon.pid)
            time.sleep(seconds)
            return usage(daemon.pid, time.monotonic() - began_s, cpu_s(daemon.pid) - used_s)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)


def watch_growing(config: Path, port: int, seconds: float) -> Usage:
    """The same, with the growth of the database, which is whole once the daemon has ended."""
    database = config.parent / "cyclewatch.db"
    before = database.stat().st_size if database.exists() else None
    used = watch(config, port, seconds)
    grown = None if before is None else (database.stat().st_size - before) / 1e6
    return replace(used, stored_mb_a_day=None if grown is None else grown / seconds * 86_400)


def ready(port: int) -> bool:
    """Whether the daemon says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as probe:
        return probe.server_address[1]


def run(seconds: float, rate: float) -> dict[str, Usage]:
    """On a new database, then on the one that is left."""
    with (
        tempfile.TemporaryDirectory(prefix="cyclewatch-bench-", dir="/dev/shm") as rings,
        tempfile.TemporaryDirectory(prefix="cyclewatch-bench-") as state,
        server() as sglang,
        writers(Path(rings), 1, rate, port=sglang, past_s=30),
    ):
        config, port = Path(state) / "cyclewatch.toml", free_port()
        config.write_text(
            f"state_dir = '{state}'\n[rings]\ndirectory = '{rings}'\n[web]\nport = {port}\n[log]\nlevel = 'warning'\n"
            "[detection]\nreference_s = 30\nwarmup_s = 0\n"
        )
        return {name: watch_growing(config, port, seconds) for name in ("new database", "existing database")}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="seconds of each run (default: 60)")
    parser.add_argument("--rate", type=float, default=200, help="cycles a second (default: 200)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    runs = run(options.seconds, options.rate)
    if options.json:
        setup = {"python": platform.python_version(), "rate": options.rate, "seconds": options.seconds}
        print(json.dumps({**setup, "aim_mb": AIM_MB, "runs": {name: asdict(one) for name, one in runs.items()}}))
        return
    print(f"one server, {options.rate:g} cycles/s, {options.seconds:g} s each, Python {platform.python_version()};")
    print(f"aim: at most {AIM_MB:g} MB (10^6 bytes), neither torch nor scipy loaded\n")
    print(f"{'':20} {'RSS':>9} {'peak RSS':>9} {'of a core':>10} {'threads':>8} {'files':>6} {'stored':>10}  loaded")
    for name, one in runs.items():
        loaded = ", ".join(one.heavy) or "nothing heavy"
        sizes = f"{one.rss_mb:6.1f} MB {one.peak_mb:6.1f} MB {one.percent_of_a_core:8.2f} %"
        stored = "-" if one.stored_mb_a_day is None else f"{one.stored_mb_a_day:.0f} MB/day"
        print(f"{name:20} {sizes} {one.threads:8} {one.files:6} {stored:>10}  {loaded}")


if __name__ == "__main__":
    main()
