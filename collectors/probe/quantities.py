"""Every reading of the probe."""

from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE

CPU_LOOP, MEMORY_SCAN = "probe.cpu_loop_seconds", "probe.memory_scan_seconds"
GPU_MATMUL, GPU_COPY = "probe.gpu_matmul_seconds", "probe.gpu_copy_seconds"

_PACE = "probe.interval_s"
_CPU = ("kind", "software")
_GPU = ("gpu", "software")

QUANTITIES = (
    Quantity(
        CPU_LOOP,
        "A fixed loop of the interpreter: its time on a CPU (`cpu`), and by the clock (`wall`).",
        "a process of its own",
        _PACE,
        _CPU,
        NODE,
        "50 ms of one CPU for both, 20 to 30 ms of them for the start of the process",
    ),
    Quantity(
        MEMORY_SCAN,
        "A fixed scan over 32 MiB of memory: its time on a CPU (`cpu`), and by the clock (`wall`).",
        "the same process",
        _PACE,
        _CPU,
        NODE,
        "in the reading of cpu_loop_seconds",
    ),
    Quantity(
        GPU_MATMUL,
        "A fixed product of two matrices of 4096 x 4096 in bfloat16 on a GPU, by events on the device.",
        "torch, in a process of its own",
        _PACE,
        _GPU,
        NODE,
        "2 to 3 s of one CPU at low priority, to load torch; not measured on a GPU yet",
    ),
    Quantity(
        GPU_COPY,
        "A fixed copy of 128 MiB within the memory of a GPU, by events on the device.",
        "the same process",
        _PACE,
        _GPU,
        NODE,
        "in the reading of gpu_matmul_seconds",
    ),
)
"""`software` is what does the work: with another release of it the same work may take another time."""
