"""Processes shaped as a server's: a main process with a scheduler and a detokenizer, and many threads that mostly wait.

`serving` starts them. Run as a program, this is one of them: its name, its number of threads, and `name:threads` of
each child; it prints its pid and those of its children, and ends when its input does.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARES = {"main": 0.3, "scheduler": 0.5, "detokenizer": 0.2}
"""How much of the threads each process has."""


@contextmanager
def serving(threads: int) -> Iterator[tuple[int, int]]:
    """Start the three with that many threads in total; gives the pids of the main process and of the scheduler."""
    counts = {name: round(share * threads) for name, share in SHARES.items()}
    children = [f"{name}:{counts[name]}" for name in ("scheduler", "detokenizer")]
    command = [sys.executable, __file__, "main", str(counts["main"]), *children]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        main, scheduler, _ = map(int, process.stdout.readline().split())
        yield main, scheduler
        process.communicate()


def be(name: str, threads: int, children: list[str]) -> None:
    """Be one of the processes."""
    Path("/proc/self/comm").write_text(f"sglang::{name}")
    for number in range(1, threads):
        threading.Thread(target=wait_long, args=(1 + number / threads,), daemon=True).start()
    started = [
        subprocess.Popen([sys.executable, __file__, *child.split(":")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for child in children
    ]
    pids = [child.stdout.readline().strip().decode() for child in started if child.stdout is not None]
    print(threading.get_native_id(), *pids, flush=True)
    sys.stdin.read()
    for child in started:
        child.communicate()


def wait_long(seconds: float) -> None:
    """A thread that wakes now and then."""
    pause = threading.Event()
    while True:
        pause.wait(seconds)


if __name__ == "__main__":
    be(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
