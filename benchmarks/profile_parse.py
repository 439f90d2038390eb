"""What reading a trace of Kineto costs: time, and memory as a multiple of the trace's size, beside other ways.

    python benchmarks/profile_parse.py [--events 100000 1000000] [--only ours] [--json]

The traces are made here: decode steps of an engine with their operators, launches, kernels and flows, as PyTorch
writes them, packed with gzip. Each reading runs in a process of its own; its memory is the largest resident size less
that before the file was opened. Ours gives the whole profile, as `cyclewatch kernels` shows it; the others stop where
HolisticTraceAnalysis has its table: json, a DataFrame of the events, the fields of "args" as columns.
Aims: 0.5 s for 100,000 events, 5 s for 1,000,000, and at most 4 times the size of the trace in memory.
"""

import argparse
import gzip
import importlib
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

AIM_S = {100_000: 0.5, 1_000_000: 5.0}
AIM_MEMORY_RATIO = 4.0
REPEATS = 3

_KERNELS = """
nvjet_tst_128x64_64x8_1x2_h_bz_TNT
void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, __nv_bfloat16*, float)
void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu<float> >(__nv_bfloat16*, __nv_bfloat16 const*, int)
void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >(int)
triton_poi_fused_clamp_sub_0
""".strip().splitlines()
_LAUNCHES_A_STEP = 200


@dataclass(frozen=True)
class Cost:
    """One way to read one file."""

    seconds: float
    memory_bytes: int
    memory_ratio: float
    """Of the unpacked size."""


def events(count: int) -> Iterator[dict[str, Any]]:
    """`count` events of decode steps, not in order of time, as Kineto writes them."""
    made, launch, now_us = 0, 0, 1_428_625_731_622.25
    while made < count:
        step_us = now_us
        for _ in range(_LAUNCHES_A_STEP):
            launch += 1
            now_us = round(now_us + 11.437, 3)
            for event in _launch(launch, now_us):
                yield event
                made += 1
                if made == count:
                    return
        for category, pid in (("user_annotation", 4711), ("gpu_user_annotation", 0)):
            yield {
                "ph": "X", "cat": category, "name": "step[DECODE bs=32]", "pid": pid, "tid": 7, "ts": step_us,
                "dur": round(now_us - step_us, 3), "args": {"External id": launch},
            }  # fmt: skip
            made += 1
            if made == count:
                return


def _launch(number: int, now_us: float) -> Iterator[dict[str, Any]]:
    cpu = {"pid": 4711, "tid": 4711}
    gpu = {"pid": 0, "tid": 7}
    ids = {"External id": number, "correlation": number}
    yield {
        "ph": "X", "cat": "python_function", "name": f"sglang/srt/layers/linear.py({number % 400}): forward", **cpu,
        "ts": now_us, "dur": 9.1, "args": {"Python parent id": number, "Python id": number + 1, "Ev Idx": number},
    }  # fmt: skip
    yield {
        "ph": "X", "cat": "cpu_op", "name": ("aten::mm", "aten::copy_", "aten::empty")[number % 3], **cpu,
        "ts": round(now_us + 1, 3), "dur": 7.25,
        "args": {"External id": number, "Record function id": 0, "Concrete Inputs": ["", "", ""],
                 "Input type": ["c10::BFloat16", "c10::BFloat16", ""], "Input Strides": [[4096, 1], [1, 4096], []],
                 "Input Dims": [[32, 4096], [4096, 4096], []], "Ev Idx": number},
    }  # fmt: skip
    yield {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **cpu, "ts": round(now_us + 2, 3), "dur": 4.8,
        "args": {**ids, "cbid": 211},
    }  # fmt: skip
    yield {"ph": "s", "id": number, **cpu, "ts": round(now_us + 2, 3), "cat": "ac2g", "name": "ac2g"}
    yield {
        "ph": "X", "cat": "kernel", "name": _KERNELS[number % len(_KERNELS)], **gpu, "ts": round(now_us + 9, 3),
        "dur": round(2 + number % 37 / 7, 3),
        "args": {**ids, "queued": 0, "device": 0, "context": 1, "stream": 7, "registers per thread": 32,
                 "shared memory": 0, "blocks per SM": 1.939394, "warps per SM": 7.757576, "grid": [256, 1, 1],
                 "block": [128, 1, 1], "est. achieved occupancy %": 12},
    }  # fmt: skip
    yield {"ph": "f", "id": number, **gpu, "ts": round(now_us + 9, 3), "cat": "ac2g", "name": "ac2g", "bp": "e"}


def write_trace(path: Path, count: int) -> int:
    """Write a trace of `count` events, as Kineto lays it out; its unpacked size in bytes."""
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
    }
    size = 0
    with gzip.open(path, "wt", compresslevel=6) as file:
        size += file.write(json.dumps(head, indent=2)[:-2] + ',\n  "traceEvents": [')
        for at, event in enumerate(events(count)):
            size += file.write(("," if at else "") + "\n  " + json.dumps(event))
        size += file.write('\n  ],\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1751410836000000000\n}\n')
    return size


def read_ours(path: Path) -> int:
    """The whole profile; the number of kernel calls in it."""
    from cyclewatch.collectors.profiles.read import read_profile  # noqa: PLC0415 (measured)

    return read_profile(path).totals.calls


def read_json_pandas(path: Path) -> int:
    """The table that HolisticTraceAnalysis makes of a trace; the number of kernels in it."""
    pd: Any = importlib.import_module("pandas")
    with gzip.open(path, "rb") as file:
        trace = json.loads(file.read())
    table = pd.DataFrame(trace["traceEvents"])
    table = table[table["dur"].notna() & table["cat"].notna() & (table["cat"] != "Trace")]
    for name in ("stream", "correlation", "External id"):
        table[name] = table["args"].apply(lambda args, name=name: args.get(name, -1) if isinstance(args, dict) else -1)
    names = {name: index for index, name in enumerate(table["name"].unique())}
    table["name"] = table["name"].map(names)
    return int((table.drop(columns=["args", "ph"])["cat"] == "kernel").sum())


def read_orjson(path: Path) -> int:
    """All events as dictionaries, by the fastest untyped parser; the number of kernels among them."""
    orjson: Any = importlib.import_module("orjson")
    with gzip.open(path, "rb") as file:
        trace = orjson.loads(file.read())
    return sum(event.get("cat") == "kernel" for event in trace["traceEvents"])


def read_ijson(path: Path) -> int:
    """All events as dictionaries, one by one; the number of kernels among them."""
    ijson: Any = importlib.import_module("ijson")
    with gzip.open(path, "rb") as file:
        return sum(event.get("cat") == "kernel" for event in ijson.items(file, "traceEvents.item", use_float=True))


READERS: dict[str, tuple[Callable[[Path], int], tuple[str, ...]]] = {
    "ours": (read_ours, ("cyclewatch.collectors.profiles.read",)),
    "json and pandas": (read_json_pandas, ("pandas",)),
    "orjson, events only": (read_orjson, ("orjson",)),
    "ijson, events only": (read_ijson, ("ijson",)),
}
"""Each way, and the modules that it needs."""


def measure(reader: str, path: Path) -> None:
    """In a process of its own: read once, print seconds, bytes and kernels."""
    read, modules = READERS[reader]
    for module in modules:
        importlib.import_module(module)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    kernels = read(path)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([seconds, used * 1024, kernels]))


def cost(reader: str, path: Path, size: int) -> Cost | None:
    """The best of several readings; ``None`` where a module is missing."""
    if any(importlib.util.find_spec(module.partition(".")[0]) is None for module in READERS[reader][1]):
        return None
    results = []
    for _ in range(REPEATS):
        command = [sys.executable, __file__, "--measure", reader, str(path)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ})
        results.append(json.loads(answer.stdout))
    seconds, used, _ = min(results)
    return Cost(seconds, used, used / size)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=list(AIM_S), help="sizes (default: 100000 1000000)")
    parser.add_argument("--only", choices=READERS, nargs="+", default=list(READERS), help="ways to read")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--measure", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]))
        return
    document: dict[str, Any] = {"python": platform.python_version(), "traces": []}
    with tempfile.TemporaryDirectory(prefix="cyclewatch-bench-") as directory:
        for count in options.events:
            path = Path(directory) / f"{count}.json.gz"
            size = write_trace(path, count)
            costs = {reader: cost(reader, path, size) for reader in options.only}
            if not options.json:
                _print(count, size, path.stat().st_size, costs)
            named = {reader: asdict(one) if one else None for reader, one in costs.items()}
            document["traces"].append(
                {"events": count, "unpacked_bytes": size, "aim_s": AIM_S.get(count), "costs": named}
            )
    if options.json:
        print(json.dumps(document))


def _print(count: int, size: int, packed: int, costs: dict[str, Cost | None]) -> None:
    aim = f"aim {AIM_S[count]:g} s and {AIM_MEMORY_RATIO:g} times the size" if count in AIM_S else "no aim"
    print(
        f"{count} events, {size / 1e6:.0f} MB, {packed / 1e6:.1f} MB packed; Python {platform.python_version()}; {aim}"
    )
    print(f"{'':22} {'time':>9} {'memory':>10} {'of the size':>12}")
    for reader, one in costs.items():
        figures = (
            f"{one.seconds:7.3f} s {one.memory_bytes / 1e6:7.0f} MB {one.memory_ratio:10.2f} x"
            if one
            else "   not installed"
        )
        print(f"{reader:22} {figures}")
    print()


if __name__ == "__main__":
    main()
