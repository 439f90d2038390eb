"""Suspicion reports of a simulated server whose slowdown is known: shares of time and metrics by plain physics.

A step takes `STEP_US`: kernels for a part of it, the host for the rest. A fault makes kernels or the host slower, or
adds time in which the host waits; metrics move as they are told to. Reports count cycles of their own: in the run
after, one cycle holds `unit` steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cyclewatch.collectors.suspicion_records import Side, SuspicionReport, SuspicionRow
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.suspicion.scores import suspicion_row

STEP_US = 30_000.0
CYCLES = 200
KERNELS = {
    "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn": 3.2,
    "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x6_tn": 2.2,
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<int>(int)": 0.6,
    "void flashinfer::norm::RMSNormKernel<8u>(int)": 0.3,
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)": 0.8,
}
"""Percent of a step, of a server that waits for its host most of the time."""

ON_GPU = {
    "gpu_usage": 40.0,
    "process_gpu_usage": 40.0,
    "gpu_frequency": 1980.0,
    "gpu_mem_frequency": 2619.0,
    "gpu_mem_used": 85.0,
    "gpu_power": 400.0,
}
ON_HOST = {
    "oncpu": (92.0, {"cpu_frequency": 85.0, "process_cpu_usage": 1.6, "host_cpu_usage": 6.0}),
    "runq": (4.0, {"host_cpu_usage": 6.0}),
    "read": (2.0, {"disk_usage": 10.0}),
    "write": (3.0, {"disk_usage": 10.0}),
}


@dataclass(frozen=True)
class Fault:
    """What becomes slower: factors of kernels by the beginnings of their names, of the host, percent of waits added."""

    kernels: Mapping[str, float] = field(default_factory=dict)
    host: float = 1.0
    waits: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    kernels_part: float = 1.0
    """How many times as much of a step kernels take as `KERNELS` says."""


def simulated_report(fault: Fault, *, unit: float, seed: int) -> tuple[SuspicionReport, float]:
    """A report, and how many times as long a step became."""
    random = np.random.default_rng(seed)
    old = {name: percent * fault.kernels_part / 100 * STEP_US for name, percent in KERNELS.items()}
    new = {name: time_us * _factor(fault, name) for name, time_us in old.items()}
    waits_us = sum(fault.waits.values()) / 100 * STEP_US
    step_us = (STEP_US - sum(old.values())) * fault.host + waits_us + sum(new.values())
    counts = CYCLES, max(int(CYCLES * STEP_US / step_us / unit), 10)

    def samples(before: float, after: float, noise: float) -> tuple[Floats, Floats]:
        first, second = (
            mean * np.exp(random.normal(0, noise, count)) for mean, count in zip((before, after), counts, strict=True)
        )
        return first, second

    def row(function: str, metric: str, device: str, shares: tuple[float, float], value: float) -> SuspicionRow:
        beta, mu = samples(*shares, 0.03), samples(value, value * fault.metrics.get(metric, 1.0), 0.02)
        return suspicion_row(function, metric, device, beta, mu)

    rows = [
        row(name, metric, "GPU 0", (100 * old[name] / STEP_US, 100 * new[name] / step_us), value)
        for name in KERNELS
        for metric, value in ON_GPU.items()
    ]
    for name, (percent, metrics) in ON_HOST.items():
        slower = fault.host if name == "oncpu" else 1.0
        after = (percent * slower + fault.waits.get(name, 0.0)) * STEP_US / step_us
        rows += [row(name, metric, "Host", (percent, after), value) for metric, value in metrics.items()]
    cycles = samples(STEP_US, step_us * unit, 0.03)
    sides = [
        Side(name, len(times), float(times.mean()), tuple(sorted(times.tolist(), reverse=True)))
        for name, times in zip(("normal", "abnormal"), cycles, strict=True)
    ]
    return SuspicionReport("simulated", sides[0], sides[1], tuple(rows)), step_us / STEP_US


def _factor(fault: Fault, name: str) -> float:
    return next((factor for begin, factor in fault.kernels.items() if name.startswith(begin)), 1.0)
