"""The load that benchmarks/gpu_check.py reads beside, and what it got done: matrix products on one GPU."""

import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

AIM_RATIO = 0.005
WARM_UP_S = 15.0
LOAD = """
import sys, time, torch
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in "ab")
out = torch.empty_like(a)
while True:
    began = time.monotonic()
    for _ in range(50):
        torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    ended = time.monotonic()
    print(began, ended, 50 * 2 * 8192**3 / (ended - began), flush=True)
"""


class Load:
    """The load, and what it did when."""

    def __init__(self, process: "subprocess.Popen[str]", path: Path) -> None:
        self._process = process
        self._path = path

    def rates(self) -> list[tuple[float, float, float]]:
        """Begin and end of each stretch on the monotonic clock, and its operations in a second."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the load ended: {self._path.read_text()[-500:]}")
        return parse_rates(self._path.read_text())


def parse_rates(text: str) -> list[tuple[float, float, float]]:
    """What the load wrote; a line that is not whole yet is left out."""
    lines = (line.split() for line in text.splitlines(keepends=True) if line.endswith("\n"))
    return [(float(line[0]), float(line[1]), float(line[2])) for line in lines if len(line) == 3]


@contextmanager
def load(python: str, directory: Path) -> Iterator[Load]:
    """Multiply matrices as long as the context lasts."""
    path = directory / "load.txt"
    with path.open("w") as out, subprocess.Popen([python, "-c", LOAD], stdout=out, stderr=out, text=True) as process:
        try:
            time.sleep(WARM_UP_S)
            one = Load(process, path)
            if not one.rates():
                raise RuntimeError(f"the load does not run: {path.read_text()[-500:]}")
            yield one
        finally:
            process.kill()


@dataclass(frozen=True)
class Effect:
    """Throughput with the reading on over that with it off, less one: mean over pairs of blocks, standard error."""

    change: float
    standard_error: float
    pairs: int

    @property
    def good(self) -> bool:
        """Whether the aim is met."""
        return abs(self.change) <= AIM_RATIO


def throughput(rates: Sequence[tuple[float, float, float]], began_s: float, ended_s: float) -> float:
    """Mean operations in a second of the stretches that lie within this time."""
    inside = [(end - begin, rate) for begin, end, rate in rates if began_s <= begin and end <= ended_s]
    return sum(duration * rate for duration, rate in inside) / sum(duration for duration, _ in inside)


def effect(on: Sequence[float], off: Sequence[float]) -> Effect:
    """From the throughput of neighbouring blocks, so that what drifts slowly, as heat does, drops out."""
    changes = [with_ / without - 1 for with_, without in zip(on, off, strict=True)]
    error = statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else float("nan")
    return Effect(statistics.mean(changes), error, len(changes))
