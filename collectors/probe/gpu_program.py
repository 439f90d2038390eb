"""Fixed work for GPUs, timed: run as a script by a Python that has torch, such as SGLang's, in a process of its own.

`gpu_program.py DEVICE...` takes torch's names of devices and prints times as JSON, none where none is named; `cpu`
tries everything but the GPU, with less work. A matrix product keeps the multiprocessors busy and follows their clock; a
copy within the GPU follows its memory. Of a few repetitions the shortest counts: a server that shares the GPU may take
its turn within one, and is not what is asked for.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

# Whoever changes the work gives its readings other names, since the history would be that of other work.
_MATRIX_SIZE = {"cuda": 4096, "cpu": 256}
_COPY_BYTES = {"cuda": 128 * 2**20, "cpu": 2**20}
_WARM = 3
_REPEATS = 7
_NICE = 10
_LIFE_S = 120


def shortest_s(torch: Any, device: Any, work: Callable[[], object]) -> float:  # noqa: ANN401 (modules have no type)
    """The shortest time that the work took on the device."""
    for _ in range(_WARM):
        work()
    if device.type != "cuda":
        return min(_on_cpu_s(work) for _ in range(_REPEATS))
    # All are launched before any is waited for, so that no time of the host's stands between two events.
    events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPEATS + 1)]
    stream = torch.cuda.current_stream(device)
    events[0].record(stream)
    for event in events[1:]:
        work()
        event.record(stream)
    events[-1].synchronize()
    return min(float(begin.elapsed_time(end)) for begin, end in pairwise(events)) / 1e3


def _on_cpu_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def probe(torch: Any, name: str) -> dict[str, float]:  # noqa: ANN401 (modules have no type)
    """Both works on one device; the matrices are square, in bfloat16."""
    device = torch.device(name)
    size = _MATRIX_SIZE[device.type]
    left, right = (torch.ones(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = torch.empty_like(left)
    source = torch.ones(_COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return {
        "matmul": shortest_s(torch, device, lambda: torch.mm(left, right, out=product)),
        "copy": shortest_s(torch, device, lambda: target.copy_(source)),
    }


def main() -> int:
    """Probe the devices that are named, one after the other, and print what came of each."""
    os.nice(_NICE)  # the GPU keeps its own time: this process need not compete with a server's for a CPU
    signal.alarm(_LIFE_S)  # should whoever started it be killed meanwhile
    torch = importlib.import_module("torch")  # of the environment that runs this; the daemon's has none
    torch.set_num_threads(1)
    with torch.inference_mode():
        devices = {name: probe(torch, name) for name in sys.argv[1:]}
    answer = {"software": f"torch {torch.__version__}", "gpus": torch.cuda.device_count(), "devices": devices}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
