"""What a capture through Kineto's channel brings from a GPU, and what it costs: a decode loop with CUDA graphs.

    python benchmarks/gpu_profile.py                          on a machine with a GPU, torch in this environment
    python benchmarks/gpu_profile.py --python PATH --device cpu    without one: the same way, CPU operators

A process of its own replays a graph of a small decoder, step after step, and notes when each step ended. It is captured
several times with each list of activities; printed are the kernels and steps that came, the stall, and the step time
during and after each capture against before. The first capture of a process also pays for CUPTI's beginning.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cyclewatch.collectors.kineto import captures, endpoint
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.collectors.kineto.protocol import CPU_ACTIVITIES, GPU_ACTIVITIES
from cyclewatch.collectors.profiles.flaws import validity
from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import KernelKind, Profile
from cyclewatch.collectors.records import RECORD, ForwardMode, RecordKind, Records
from cyclewatch.detectors.costs.profile_cost import STRETCH_NS, ProfileCost, profile_cost

LISTS: dict[str, dict[str, tuple[str, ...]]] = {
    "cuda": {
        "as shipped": GPU_ACTIVITIES,
        "and what links steps": (*GPU_ACTIVITIES, "external_correlation", "cuda_runtime"),
    },
    "cpu": {"CPU operators": CPU_ACTIVITIES},
}
STEP = "step[DECODE bs=32]"
LOOP = f"""
import os, sys, time, struct
import torch
device, layers, width = sys.argv[1], 24, 2048 if sys.argv[1] == "cuda" else 128
kind = torch.bfloat16 if device == "cuda" else torch.float32
torch.manual_seed(0)
weights = [torch.randn(width, width, device=device, dtype=kind) / width**0.5 for _ in range(4 * layers)]
hidden = torch.randn(32, width, device=device, dtype=kind)
def step():
    out = hidden
    for up, gate, mix, down in zip(*[iter(weights)] * 4):
        normed = torch.nn.functional.rms_norm(out, (width,))
        out = out + (torch.nn.functional.silu(normed @ gate) * (normed @ up)) @ mix @ down
    return out
with torch.no_grad():
    for _ in range(3):
        step()
    replay = step
    if device == "cuda":
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay
    print(torch.__version__, torch.cuda.get_device_name() if device == "cuda" else "CPU", flush=True)
    cycles = open(sys.argv[2], "ab", buffering=0)
    last = time.monotonic_ns()
    while os.getppid() == int(sys.argv[3]):
        with torch.profiler.record_function("{STEP}"):
            replay()
        if device == "cuda":
            torch.cuda.synchronize()
        now = time.monotonic_ns()
        cycles.write(struct.pack("<2q", now, now - last))
        last = now
"""


@dataclass(frozen=True)
class Captured:
    """One capture: what came, and what it cost. `refused` says why it is no evidence, or is empty."""

    profile: Profile
    cost: ProfileCost
    exposed_s: float
    megabytes: float
    refused: str


@contextmanager
def decode_loop(python: str, device: str, channel: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The loop in a process of its own, and the file of its cycles."""
    cycles = channel / "cycles"
    names = ("KINETO_IPC_SOCKET_DIR", "KINETO_ONDEMAND_TRACE_DIR")
    environment = {**os.environ, "KINETO_USE_DAEMON": "1", **dict.fromkeys(names, str(channel))}
    command = [python, "-W", "ignore", "-c", LOOP, device, str(cycles), str(os.getpid())]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as loop:
        try:
            assert loop.stdout is not None
            sys.stdout.write(f"torch {loop.stdout.readline()}")
            yield loop, cycles
        finally:
            loop.terminate()


def records(path: Path) -> Records:
    """The loop's cycles as a ring would hold them."""
    pairs = np.fromfile(path, np.int64)
    pairs = pairs[: len(pairs) // 2 * 2].reshape(-1, 2)
    found = np.zeros(len(pairs), RECORD)
    found["end_ns"], found["cycle_ns"] = pairs[:, 0], pairs[:, 1]
    found["kind"], found["mode"], found["batch_size"] = RecordKind.CYCLE, ForwardMode.DECODE, 32
    return found


def capture(
    served: endpoint.Endpoint, process: KinetoProcess, cycles: Path, activities: tuple[str, ...], duration_ms: int
) -> Captured:
    """One capture, with a quiet stretch before and after it."""
    time.sleep(STRETCH_NS / 1e9)
    token = f"{time.monotonic_ns():x}"
    taking = captures.Capture(process, served.directory, token, duration_ms, activities, time.monotonic_ns)
    served.attach(process.pid, taking)
    waiting = threading.Event()
    while (exposure := taking.check(alive=True)) is None:
        waiting.wait(0.05)
    served.detach(process.pid)
    megabytes = taking.path.stat().st_size / 1e6
    profile = read_profile(taking.path)
    taking.remove()
    time.sleep(STRETCH_NS / 1e9)
    cost = profile_cost(records(cycles), exposure.handed_out_ns, exposure.ended_ns)
    on_gpu = "kernel" in activities
    refused = "; ".join(validity(profile, expect_pid=process.own_pid, on_gpu=on_gpu))
    return Captured(profile, cost, (exposure.ended_ns - exposure.handed_out_ns) / 1e9, megabytes, refused)


def row(captured: Captured) -> str:
    """One line of the table."""
    profile, cost = captured.profile, captured.cost
    kernels = sum(use.calls for use in profile.kernels if use.kind is not KernelKind.CPU_OP)
    operators = sum(use.calls for use in profile.kernels if use.kind is KernelKind.CPU_OP)
    ratios = ["unknown" if ratio is None else f"{ratio - 1:+.1%}" for ratio in (cost.during_ratio, cost.after_ratio)]
    stall = "unknown" if cost.stall_ns is None else f"{cost.stall_ns / 1e6:.1f} ms"
    return (
        f"{kernels:>9,}{operators:>11,}{len(profile.steps):>7}{captured.megabytes:>9.1f}{captured.exposed_s:>9.1f}"
        f"{stall:>11}{ratios[0]:>10}{ratios[1]:>10}  {captured.refused}"
    )


def main() -> int:
    """Capture, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--device", default="cuda", choices=LISTS)
    parser.add_argument("--captures", type=int, default=3, help="of each list of activities")
    parser.add_argument("--duration-ms", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kineto-", dir="/dev/shm") as name:
        served = endpoint.Endpoint(Path(name), {os.geteuid()}, Path("/proc"))
        served.start()
        try:
            with decode_loop(options.python, options.device, Path(name)) as (loop, cycles):
                while not (known := [one for one in served.processes() if one.pid == loop.pid]):
                    time.sleep(0.5)
                sys.stdout.write(
                    f"{'activities':24}{'kernels':>9}{'operators':>11}{'steps':>7}{'MB':>9}{'s exposed':>9}"
                    f"{'stall':>11}{'during':>10}{'after':>10}  refused because\n"
                )
                for title, activities in LISTS[options.device].items():
                    for _ in range(options.captures):
                        captured = capture(served, known[0], cycles, activities, options.duration_ms)
                        sys.stdout.write(f"{title:24}{row(captured)}\n")
                        sys.stdout.flush()
        finally:
            served.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
