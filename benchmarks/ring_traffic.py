"""A process that writes one ring as a scheduler would: decodes with a prefill now and then, at a steady rate.

    python benchmarks/ring_traffic.py DIRECTORY --rate 300 [--rank 0] [--port 30000] [--past 50] [--threads 0]

It stands in for SGLang in the other benchmarks, and writes through the plugin's own writer until it is terminated.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving_processes import wait_long

import cyclewatch_sglang as plugin

PAUSE_S = 0.01
EXTEND, DECODE = plugin.MODES["EXTEND"], plugin.MODES["DECODE"]


class Cycles:
    """Payloads of cycles that follow one another; 5 % of them are prefills."""

    def __init__(self, rate: float, first_ns: int) -> None:
        self.end_ns = first_ns
        self._length_ns = 1e9 / rate
        self._random = random.Random(1)

    def next(self) -> bytes:
        """The next cycle."""
        chance = self._random
        extend = chance.random() < 0.05
        length_ns = int(self._length_ns * chance.uniform(0.95, 1.05))
        self.end_ns += length_ns
        batch_size = chance.randint(1, 32)
        values = {
            **dict.fromkeys(plugin.PAYLOAD_FIELDS, 0),
            "end_ns": self.end_ns,
            "cycle_ns": length_ns,
            "schedule_ns": length_ns // 20,
            "launch_ns": length_ns // 5,
            "wait_ns": length_ns // 2,
            "result_ns": length_ns // 10,
            "rest_ns": length_ns - length_ns // 20 - length_ns // 5 - length_ns // 2 - length_ns // 10,
            "on_cpu_ns": length_ns // 2 if chance.random() < 1 / 8 else -1,
            "kind": plugin.CYCLE,
            "mode": EXTEND if extend else DECODE,
            "launched_mode": DECODE,
            "flags": plugin.OVERLAP | plugin.CUDA_GRAPH,
            "batch_size": batch_size,
            "new_tokens": 512 if extend else 0,
            "kv_tokens": batch_size * chance.randint(200, 4000),
            "running": batch_size,
        }
        return plugin.PAYLOAD.pack(*values.values())


def identity(rank: int, port: int) -> dict[str, object]:
    """This process, as if it were a scheduler."""
    start_ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    return {
        "pid": os.getpid(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "start_ticks": start_ticks,
        "parent_pid": os.getppid(),
        "parent_start_ticks": 1,
        "tp_rank": rank,
        "pp_rank": None,
        "dp_rank": None,
        "device": "cuda",
        "synchronous": False,
        "sglang_version": "0.5.23",
        "plugin_version": plugin.__version__,
        "hooks_applied": [],
        "hooks_missing": [],
        "monotonic_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns() - 3600 * 10**9,  # long past its warm-up
        "server": {"host": "127.0.0.1", "port": port, "model_path": "benchmark"},
    }


def write(directory: Path, rate: float, rank: int, port: int, past_s: float) -> None:
    """Write until terminated; `past_s` seconds of cycles are there from the beginning."""
    writer = plugin.RingWriter.create(directory, identity(rank, port))
    cycles = Cycles(rate, time.monotonic_ns() - int(past_s * 1e9))
    beat_ns = 0
    while True:
        now_ns = time.monotonic_ns()
        while cycles.end_ns <= now_ns:
            writer.write_payload(cycles.next())
        if now_ns - beat_ns >= 10**9:
            beat_ns = now_ns
            writer.write_counters(heartbeat_ns=now_ns)
        time.sleep(PAUSE_S)


@contextmanager
def writers(
    directory: Path, count: int, rate: float, *, port: int = 30000, past_s: float = 0, threads: int = 0
) -> Iterator[list[int]]:
    """That many writing processes, the ranks of one server; their rings are there when the context begins.

    Each has `threads` more that mostly wait. Gives the pids.
    """
    command = [
        sys.executable,
        __file__,
        str(directory),
        "--rate",
        str(rate),
        "--port",
        str(port),
        "--past",
        str(past_s),
        "--threads",
        str(threads),
    ]
    processes = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(count)]
    try:
        deadline = time.monotonic() + 20
        while len(list(directory.glob("*.ring"))) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {count} rings in {directory}")
            time.sleep(0.05)
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rate", type=float, required=True, help="cycles a second")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--past", type=float, default=0, help="seconds of cycles to begin with")
    parser.add_argument("--threads", type=int, default=0, help="threads that mostly wait, besides")
    options = parser.parse_args()
    for number in range(options.threads):
        threading.Thread(target=wait_long, args=(1 + number / options.threads,), daemon=True).start()
    write(options.directory, options.rate, options.rank, options.port, options.past)


if __name__ == "__main__":
    main()
