"""Small profiles of every shape, made here: traces of Kineto, tables of nsys and torch, JSON of rocprofv3."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Json = dict[str, Any]

PID = 4711
BASE_NS = 1_751_410_836_000_000_000


def kernel(name: str, ts: float, dur: float, correlation: int | None = None, *, device: int = 0, **more: Any) -> Json:
    """A kernel as new Kineto writes it on NVIDIA; times in microseconds."""
    args = {"device": device, "stream": 7, "queued": 0, "grid": [1, 1, 1]}
    args |= {} if correlation is None else {"correlation": correlation, "External id": correlation}
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": 7, "ts": ts, "dur": dur, "args": args, **more,
    }  # fmt: skip


def copy(ts: float, dur: float, correlation: int | None = None, name: str = "Memcpy HtoD (Host -> Device)") -> Json:
    """A copy."""
    return kernel(name, ts, dur, correlation, cat="gpu_memcpy")


def launch(correlation: int, ts: float, dur: float, name: str = "cudaLaunchKernel", **more: Any) -> Json:
    """A call of the runtime."""
    args = {"correlation": correlation, "cbid": 211}
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": PID, "tid": PID, "ts": ts, "dur": dur, "args": args,
        **more,
    }  # fmt: skip


def operator(name: str, ts: float, dur: float, *, thread: int = PID) -> Json:
    """An operator of the CPU."""
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": PID, "tid": thread, "ts": ts, "dur": dur,
        "args": {"External id": 1, "Input Dims": [[2, 2], []]},
    }  # fmt: skip


def mark(name: str, ts: float, dur: float, *, on_device: bool = False, number: int = 1, stream: int = 7) -> Json:
    """An annotation."""
    where = {"cat": "gpu_user_annotation", "pid": 0} if on_device else {"cat": "user_annotation", "pid": PID}
    return {
        "ph": "X", "name": name, **where, "tid": stream, "ts": ts, "dur": dur, "args": {"External id": number},
    }  # fmt: skip


def trace(*events: Json, **head: Any) -> Json:
    """A trace as Kineto lays it out."""
    return {"schemaVersion": 1, **head, "traceEvents": list(events), "displayTimeUnit": "ms"}


def old(event: Json) -> Json:
    """The same event as Kineto wrote it until 2022."""
    category = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime", "user_annotation": "Operator"}
    category["cpu_op"] = "Operator"
    changed = {**event, "cat": category[event["cat"]], "ts": int(event["ts"]), "dur": int(event["dur"])}
    if event["cat"] in {"kernel", "gpu_memcpy"}:
        changed["tid"] = f"stream {event['tid']}"
        changed["args"]["external id"] = changed["args"].pop("External id", 0)
    return changed


def write(path: Path, content: Json | str | bytes) -> Path:
    """Write a profile, packed as the name says."""
    text = json.dumps(content) if isinstance(content, dict) else content
    data = text.encode() if isinstance(text, str) else text
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstd.compress(data)
    path.write_bytes(data)
    return path


NSYS_CSV = """\
Generating SQLite file report1.sqlite from report1.nsys-rep
Processing [report1.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,6000,3,2000.0,1900.5,1000,3100,1053.6,"void f<int, float>(T1 *, int)"
40.0,4000,1,4000.0,4000.0,4000,4000,0.0,gemm_tn

Processing [report1.sqlite] with [/opt/nsys/reports/cuda_gpu_mem_time_sum.py]...

 ** CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum):

Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
75.0,1500,2,750.0,750.0,700,800,70.7,[CUDA memcpy Host-to-Device]
25.0,500,1,500.0,500.0,500,500,0.0,[CUDA memset]
"""

NSYS_TEXT = """\
 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances   Avg (ns)     Med (ns)    Min (ns)   Max (ns)   StdDev (ns)      Name
 --------  ---------------  ---------  -----------  -----------  ---------  ---------  -----------  -------------
     60.0        6,000,000          3  2,000,000.0  1,900,000.5  1,000,000  3,100,000  1,053,565.4  void f<int, f…
     40.0        4,000,000          1  4,000,000.0  4,000,000.0  4,000,000  4,000,000          0.0  gemm_tn

"""

NSYS_OLD_TEXT = """\
 Time(%)  Total Time (ns)  Instances  Average  Minimum  Maximum  StdDev    GridXYZ         BlockXYZ        Name
 -------  ---------------  ---------  -------  -------  -------  ------  --------------  --------------  -------
    40.0            4,000          2  2,000.0    1,500    2,500   707.1    16    1    1   128    1    1  gemm_tn
    30.0            3,000          1  3,000.0    3,000    3,000     0.0    32    1    1   128    1    1  gemm_tn
    30.0            3,000          3  1,000.0    1,000    1,000     0.0     1    1    1    64    1    1  fill
"""

NSYS_COPIED = """\
Time\tTotal Time\tInstances\tAvg\tMed\tMin\tMax\tStdDev\tName
pytorch/aten/src/ATen/cuda/CUDABlas.cpp 50.0%\t1.5 ms\t2\t750.000 μs\t750.000 μs\t700 μs\t800 μs\t70.711 μs\tgemm_tn
note: this one was slow yesterday
 40.0%\t1.200 ms\t1\t1.200 ms\t1.200 ms\t1.200 ms\t1.200 ms\t0 ns\tvoid f<int, float>(T1 *, int)
[rank0]:   File "/srv/model.py", line 7, in forward
000 10.0%\t300.000 μs\t3\t100.000 μs\t960 ns\t900 ns\t298.140 μs\t171.611 μs\tfill
"""

TORCH_TABLE = """\
{0}-------------------  ------------  ------------  ------------  ------------  ------------  ------------
{0}               Name    Self CPU %      Self CPU     CPU total     Self CUDA    CUDA total    # of Calls
{0}-------------------  ------------  ------------  ------------  ------------  ------------  ------------
{0}           aten::mm         1.50%       1.500ms       2.000ms       3.000ms       3.000ms             2
{0}      ProfilerStep*         0.00%       0.000us       0.000us       3.500ms       3.500ms             1
{0}        void gem...         0.00%       0.000us       0.000us       3.000ms       3.000ms             2
{0}  f(int,  T1  const)        0.00%       0.000us       0.000us     499.000us     499.000us             4
{0}       Memcpy DtoD          0.00%       0.000us       0.000us       1.000us       1.000us             1
{0}   cudaLaunchKernel        98.50%     100.000ms     100.000ms       0.000us       0.000us             6
{0}-------------------  ------------  ------------  ------------  ------------  ------------  ------------
{0}Self CPU time total: 101.500ms
{0}Self CUDA time total: 3.500ms
"""
"""Its only field is what stands before each line."""


def rocprofv3(*dispatches: Json, pid: int = PID) -> Json:
    """What rocprofv3 writes, without what is not read."""
    return {
        "rocprofiler-sdk-tool": [
            {
                "metadata": {"pid": pid, "command": ["python", "serve.py", "--token=secret"]},
                "agents": [
                    {"id": {"handle": 10}, "type": 1, "name": "EPYC", "product_name": "AMD EPYC"},
                    {
                        "id": {"handle": 20}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X",
                        "logical_node_type_id": 0,
                    },
                ],
                "kernel_symbols": [
                    {"kernel_id": 1, "formatted_kernel_name": "gemm(float*)", "kernel_name": "_Z4gemmPf.kd"},
                    {"kernel_id": 2, "formatted_kernel_name": "fill(float*)"},
                    {"kernel_id": 3, "formatted_kernel_name": "never_used"},
                ],
                "buffer_records": {
                    "kernel_dispatch": list(dispatches),
                    "memory_copy": [
                        {
                            "start_timestamp": 400, "end_timestamp": 450, "src_agent_id": {"handle": 10},
                            "dst_agent_id": {"handle": 20},
                        }
                    ],
                },
            }
        ]
    }  # fmt: skip


def dispatch(kernel_id: int, start_ns: int, end_ns: int) -> Json:
    """One kernel of `rocprofv3`."""
    info = {"kernel_id": kernel_id, "agent_id": {"handle": 20}, "queue_id": {"handle": 1}}
    return {"start_timestamp": start_ns, "end_timestamp": end_ns, "dispatch_info": info}
