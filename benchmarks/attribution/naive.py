"""What one would do without a causal graph: name what moved furthest, in standard deviations of the time before.

Readings that are nobody's cause, such as latencies, are left out, and each reading is taken for the cause that it
would stand for, which makes this kinder than a plain ranking of readings.
"""

from collections.abc import Iterator

import numpy as np

from cyclewatch.detectors.attribution import Evidence, Trace

_REASONS = {
    "sw_power_cap": "gpu_power_cap",
    "sw_thermal": "gpu_thermal",
    "hw_thermal": "gpu_thermal",
    "hw_slowdown": "gpu_hardware_slowdown",
    "hw_power_brake": "gpu_hardware_slowdown",
    "applications_clocks": "gpu_clock",
}
_MODES = {"steal": "cpu_steal", "irq": "irq_pressure", "iowait": "disk"}
_RESOURCES = {"memory": "memory_pressure", "io": "io_pressure", "irq": "irq_pressure", "cpu": "run_queue_wait"}
_KINDS = {
    "host.cpu_frequency": "cpu_frequency",
    "host.core_throttle": "cpu_thermal",
    "host.package_throttle": "cpu_thermal",
    "host.run_queue_wait": "run_queue_wait",
    "host.cgroup_throttled": "cgroup_throttling",
    "host.swap": "swap",
    "host.major_faults": "major_faults",
    "host.disk": "disk",
    "host.cgroup_io": "disk",
    "host.network": "network",
    "host.infiniband": "infiniband",
    "host.other_": "memory_bandwidth_contention",
    "host.stopped": "stopped",
    "gpu.sm_clock_hertz": "gpu_clock",
    "gpu.memory_clock_hertz": "gpu_memory_clock",
    "gpu.power_limit": "gpu_power_cap",
    "gpu.temperature": "gpu_thermal",
    "gpu.other_memory": "gpu_other_process",
    "gpu.ecc": "gpu_ecc",
    "gpu.remapped": "gpu_ecc",
    "gpu.nvlink": "nvlink_degraded",
    "gpu.pcie": "pcie_degraded",
    "gpu.nvml": "gpu_xid",
    "gpu.sm_ratio": "gpu_utilization",
    "gpu.utilization": "gpu_utilization",
    "cycles.collected": "garbage_collection",
    "engine.queue": "queue",
    "engine.retracted": "retraction",
    "engine.kv": "kv_full",
    "engine.cuda_graph": "cuda_graph_off",
    "engine.cache_hit": "cache_hit",
}


def most_moved(evidence: Evidence) -> str:
    """The kind of cause that the reading with the largest |z| stands for; `unexplained` where none moved."""
    return max(_moves(evidence), default=(0.0, "unexplained"))[1]


def _moves(evidence: Evidence) -> Iterator[tuple[float, str]]:
    for trace in evidence.traces:
        kind = _kind(trace)
        late = trace.at_ns >= evidence.started_at_ns
        before, after = trace.values[~late], trace.values[late]
        if not kind or len(before) < 2 or not len(after):
            continue
        moved = abs(float(after.mean() - before.mean()))
        sigma = float(before.std(ddof=1))
        if moved:
            yield (moved / sigma if sigma else np.inf), kind


def _kind(trace: Trace) -> str:
    labels = trace.labels
    if trace.name == "gpu.event_reason_ratio":
        return _REASONS.get(labels.get("reason", ""), "")
    if trace.name == "host.cpu_mode_ratio":
        return _MODES.get(labels.get("mode", ""), "")
    if trace.name in {"host.pressure_ratio", "host.cgroup_pressure_ratio"}:
        return _RESOURCES.get(labels.get("resource", ""), "")
    return next((kind for name, kind in _KINDS.items() if trace.name.startswith(name)), "")
