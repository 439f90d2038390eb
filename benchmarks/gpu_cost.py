"""What reading GPUs costs in Python: CPU time of a fast loop and of a slow one, with recorded answers of NVML.

    python benchmarks/gpu_cost.py [--gpus 8] [--minutes 10] [--json]

The collector runs as in the daemon, but for the time, which is moved on as fast as it goes. The answers come from a
recording of an H200; from a door that gives constants, which leaves the collector alone; and, where there is a C
compiler, through nvidia-ml-py and ctypes from a small library that stands for NVIDIA's. What NVML itself takes is not
in here: benchmarks/gpu_check.py measures it.
"""

import argparse
import ctypes
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.collector import GpuCollector
from cyclewatch.collectors.gpu.door import (
    Answer,
    Field,
    Handle,
    Memory,
    MigSlice,
    Number,
    NvmlDoor,
    ProcessMemory,
    ProcessUse,
    Text,
    Utilization,
)
from cyclewatch.collectors.gpu.pynvml_door import PynvmlDoor
from cyclewatch.collectors.gpu.recording import RecordedDoor, Recording
from cyclewatch.config.settings import Gpu

FIXTURES = Path(__file__).parent.parent / "tests/fixtures/nvml"
STUB = FIXTURES / "nvml_stub.c"


class ConstantDoor:
    """Answers everything at once with the same; every call is supported."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._answer = Answer(1)
        self._use = [ProcessUse(100, 1, 50)]
        self._processes = [ProcessMemory(100, 1)]
        self._memory = Memory(2, 1)
        self._utilization = Utilization(50, 50)

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def gpu_count(self) -> int:
        """As given."""
        return self._gpus

    def gpu(self, index: int) -> Handle:
        """The index."""
        return index

    def number(self, gpu: Handle | None, query: Number) -> int:
        """0, so that MIG is off."""
        del gpu, query
        return 0

    def text(self, gpu: Handle | None, query: Text) -> str:
        """A word."""
        del gpu, query
        return "a word"

    def fields(self, gpu: Handle, fields: Sequence[Field]) -> list[Answer]:
        """1 for each."""
        del gpu
        return [self._answer] * len(fields)

    def memory(self, gpu: Handle) -> Memory:
        """Half full."""
        del gpu
        return self._memory

    def utilization(self, gpu: Handle) -> Utilization:
        """Half busy."""
        del gpu
        return self._utilization

    def processes(self, gpu: Handle) -> list[ProcessMemory]:
        """One."""
        del gpu
        return self._processes

    def process_use(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """One."""
        del gpu, since_us
        return self._use

    process_use_v1 = process_use

    def mig_slices(self, gpu: Handle) -> list[MigSlice]:
        """None."""
        del gpu
        return []

    def gpm_supported(self, gpu: Handle) -> bool:
        """Yes."""
        del gpu
        return True

    def gpm_buffer(self) -> Handle:
        """Nothing."""
        return None

    def gpm_free(self, buffer: Handle) -> None:
        """Nothing."""

    def gpm_sample(self, gpu: Handle, gpu_instance: int | None, buffer: Handle) -> None:
        """Nothing."""

    def gpm_metrics(self, older: Handle, newer: Handle, metrics: Sequence[int]) -> list[Answer]:
        """1 for each."""
        del older, newer
        return [self._answer] * len(metrics)

    def event_set(self) -> Handle:
        """Nothing."""
        return None

    def event_free(self, events: Handle) -> None:
        """Nothing."""

    def event_register(self, events: Handle, gpu: Handle, kinds: int) -> None:
        """Nothing."""

    def event_wait(self, events: Handle, timeout_ms: int) -> None:
        """None, after the timeout."""
        del events
        time.sleep(timeout_ms / 1000)


@dataclass(frozen=True)
class Cost:
    """CPU time of the collector: medians of a fast turn and of one with a slow loop, and all turns together."""

    fast_us: float
    slow_us: float
    percent_of_a_core: float
    readings_per_s: float


def measure(door: NvmlDoor, minutes: float) -> Cost:
    """Let the collector read for so many minutes of its own time."""
    settings = Gpu()
    now_ns = 0
    collector = GpuCollector(settings, Discovery(()), Path("/nonexistent"), door, lambda: now_ns)
    fast: list[float] = []
    slow: list[float] = []
    readings = 0
    turns = int(minutes * 60 / settings.interval_s)
    per_slow = round(settings.slow_interval_s / settings.interval_s)
    for turn in range(-2 * per_slow, turns):  # the first turns find out what is supported
        now_ns += int(settings.interval_s * 1e9)
        began_s = time.process_time()
        samples = collector.collect(Now(now_ns, now_ns))
        used_us = (time.process_time() - began_s) * 1e6
        if turn >= 0:
            (fast if turn % per_slow else slow).append(used_us)
            readings += len(samples)
    collector.close()
    seconds = turns * settings.interval_s
    return Cost(
        fast_us=statistics.median(fast),
        slow_us=statistics.median(slow),
        percent_of_a_core=(sum(fast) + sum(slow)) / seconds / 1e4,
        readings_per_s=readings / seconds,
    )


def library(directory: Path, gpus: int) -> bool:
    """Build the stub and load it in place of NVIDIA's library; False where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    path = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-o", path, STUB], check=True)
    os.environ["NVML_STUB_GPUS"] = str(gpus)
    ctypes.CDLL(str(path))  # whoever loads that name later gets this one
    return True


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs (default: 8)")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of the collector's time (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    costs = {
        "recorded answers": measure(
            RecordedDoor(Recording.load(FIXTURES / "h200.json"), options.gpus), options.minutes
        ),
        "constant answers": measure(ConstantDoor(options.gpus), options.minutes),
    }
    with tempfile.TemporaryDirectory(prefix="cyclewatch-bench-") as directory:
        if library(Path(directory), options.gpus):
            costs["through nvidia-ml-py"] = measure(PynvmlDoor(), options.minutes)
    if options.json:
        setup = {"python": platform.python_version(), "gpus": options.gpus, "minutes": options.minutes}
        print(json.dumps({**setup, "costs": {name: asdict(cost) for name, cost in costs.items()}}))
        return
    print(f"{options.gpus} GPUs at the default intervals, Python {platform.python_version()}\n")
    print(f"{'':22} {'fast loop':>10} {'fast and slow':>14} {'of a core':>10} {'samples':>10}")
    for name, cost in costs.items():
        loops = f"{cost.fast_us:7.0f} us {cost.slow_us:11.0f} us"
        print(f"{name:22} {loops} {cost.percent_of_a_core:8.3f} % {cost.readings_per_s:8.1f}/s")


if __name__ == "__main__":
    main()
