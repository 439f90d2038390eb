"""All faults: on which servers each happens, and what alone shows it."""

from cyclewatch.detectors.simulation.faults import gpu_faults, host_faults, service_faults
from cyclewatch.detectors.simulation.faults.effects import Fault

_PRESSURE = ("host.cgroup_pressure", "host.pressure")
_NEIGHBOURS = ("host.other_", "host.load", "host.cpu_usage", "host.cpu_mode")
_STORAGE = ("host.disk", "host.io_", "host.cgroup_io", "host.cpu_mode", *_PRESSURE)
_FAULTS = ("host.major_faults", *_STORAGE)
_CLOCKS = ("gpu.sm_clock", "gpu.event_reason", "gpu.power", "gpu.mean_power", "gpu.temperature")
_HEAT = ("gpu.memory_temperature", "gpu.temperature_margin")
_SHARED = ("gpu.other_", "gpu.process_", "gpu.sm_", "gpu.tensor", "gpu.memory_", "gpu.utilization", "gpu.power")

FAULTS = {
    fault.kind: fault
    for fault in (
        Fault(
            "cpu_frequency",
            host_faults.cpu_frequency,
            ("host.cpu_frequency", "probe."),
            cpu=True,
            host_bound=True,
            virtual=False,
        ),
        Fault(
            "cpu_thermal",
            host_faults.cpu_thermal,
            ("host.core_thr", "host.package_thr", "host.cpu_frequency", "probe."),
            cpu=True,
            host_bound=True,
            virtual=False,
            counts_heat=True,
        ),
        Fault(
            "run_queue_wait",
            host_faults.run_queue_wait,
            ("host.run_queue", "host.involuntary", *_PRESSURE, *_NEIGHBOURS),
            cpu=True,
            host_bound=True,
        ),
        Fault(
            "cgroup_throttling",
            host_faults.share("held_back", 0.75),
            ("host.cgroup_throttled", *_PRESSURE),
            cpu=True,
            host_bound=True,
        ),
        Fault(
            "cpu_steal",
            host_faults.share("stolen", 0.75),
            ("host.cpu_mode", "probe."),
            cpu=True,
            host_bound=True,
            virtual=True,
        ),
        Fault(
            "irq_pressure",
            host_faults.share("interrupted", 0.7),
            ("host.cpu_mode", *_PRESSURE),
            cpu=True,
            host_bound=True,
        ),
        Fault(
            "memory_pressure",
            host_faults.share("reclaiming", 0.75),
            ("host.memory", "host.cgroup_memory", "host.cpu_mode", *_PRESSURE),
            cpu=True,
        ),
        Fault(
            "swap",
            host_faults.share("swapping", 0.75),
            ("host.swap", "host.rss", "host.memory", *_FAULTS),
            cpu=True,
        ),
        Fault("major_faults", host_faults.share("faulting", 0.75), _FAULTS, cpu=True, host_bound=True),
        Fault("disk", host_faults.share("on_disk", 0.75), _STORAGE, named=("disk", "io_pressure"), cpu=True),
        Fault("network", host_faults.network, ("host.network",), several_nodes=True, ranks=4),
        Fault("infiniband", service_faults.infiniband, ("host.infiniband",), several_nodes=True, ranks=4),
        Fault("garbage_collection", host_faults.share("collecting", 0.75), ("cycles.collected",), cpu=True),
        Fault(
            "stopped",
            host_faults.stopped,
            ("host.on_cpu", "host.run_queue", "host.cgroup_throttled"),
            cpu=True,
            can_be_hidden=False,
        ),
        Fault(
            "memory_bandwidth_contention",
            host_faults.memory_bandwidth,
            ("probe.", *_NEIGHBOURS),
            gpus=False,
            cpu=True,
            virtual=False,
        ),
        Fault("gpu_power_cap", gpu_faults.power_cap, _CLOCKS),
        Fault("gpu_thermal", gpu_faults.gpu_thermal, (*_CLOCKS, *_HEAT)),
        Fault("gpu_clock", gpu_faults.gpu_clock, _CLOCKS),
        Fault("gpu_hardware_slowdown", gpu_faults.hardware_slowdown, _CLOCKS),
        Fault("gpu_memory_clock", gpu_faults.memory_clock, ("gpu.memory_clock",)),
        Fault("gpu_other_process", gpu_faults.other_process, _SHARED),
        Fault("gpu_ecc", gpu_faults.ecc, ("gpu.ecc", "gpu.remapped", "gpu.row_remap")),
        Fault("gpu_xid", gpu_faults.xid, ("gpu.nvml",)),
        Fault("nvlink_degraded", gpu_faults.nvlink, ("gpu.nvlink",), ranks=4),
        Fault("pcie_degraded", gpu_faults.pcie, ("gpu.pcie",), host_bound=True),
        Fault("queue", service_faults.queue, ("engine.queue", "engine.ttft"), host_bound=True),
        Fault(
            "retraction",
            service_faults.retraction,
            ("engine.retracted", "engine.kv"),
            named=("retraction", "kv_full"),
            host_bound=True,
        ),
        Fault("cuda_graph_off", service_faults.graphs_off, ("engine.cuda_graph",)),
        Fault("deployment", service_faults.deployment, cpu=True),
        Fault("driver", service_faults.driver),
        Fault("straggler", service_faults.straggler, ranks=4, host_bound=True, can_be_hidden=False),
        Fault("kernel_slower", service_faults.kernel_slower, profiled=True),
        Fault("kernel_substituted", service_faults.kernel_substituted, profiled=True),
        Fault("kernel_more_calls", service_faults.kernel_more_calls, profiled=True),
        Fault("kernel_new", service_faults.kernel_new, profiled=True),
    )
}
"""All faults by kind."""

PAIRS = (
    ("cpu_frequency", "run_queue_wait"),
    ("cgroup_throttling", "garbage_collection"),
    ("cpu_steal", "major_faults"),
    ("gpu_power_cap", "nvlink_degraded"),
    ("gpu_other_process", "garbage_collection"),
    ("gpu_memory_clock", "cuda_graph_off"),
    ("kernel_slower", "gpu_clock"),
    ("stopped", "run_queue_wait"),
)
"""Faults that come at the same moment."""
