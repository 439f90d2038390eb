"""Every reading of the GPU collector."""

from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE

_FAST = "gpu.interval_s"
_SLOW = "gpu.slow_interval_s"
_GPU = ("gpu",)
_SLICE = ("gpu", "mig")


def _quantity(name: str, help_: str, source: str, pace: str, labels: tuple[str, ...] = _GPU) -> Quantity:
    return Quantity(f"gpu.{name}", help_, source, pace, labels, NODE)


QUANTITIES = (
    _quantity("answering", "1 while NVML answers for the GPU, 0 once it is lost.", "any call", _SLOW),
    _quantity("sm_clock_hertz", "Clock of the streaming multiprocessors.", "nvmlDeviceGetClockInfo", _FAST),
    _quantity("memory_clock_hertz", "Clock of the memory.", "nvmlDeviceGetClockInfo", _FAST),
    _quantity("sm_clock_max_hertz", "Highest SM clock.", "nvmlDeviceGetMaxClockInfo", _SLOW),
    _quantity("memory_clock_max_hertz", "Highest memory clock.", "nvmlDeviceGetMaxClockInfo", _SLOW),
    _quantity(
        "event_reason_ratio",
        "Share of the time in which this reason held the clock down; where the driver does not count the time, of "
        "the moments looked at.",
        "fields 74, 76 to 79, 269 to 271, or nvmlDeviceGetCurrentClocksEventReasons",
        _SLOW,
        ("gpu", "reason"),
    ),
    _quantity("power_watts", "Power drawn, over a second.", "field 185, or nvmlDeviceGetPowerUsage", _FAST),
    _quantity("mean_power_watts", "Power drawn since the last reading, from the energy.", "field 83", _SLOW),
    _quantity("energy_joules", "Energy drawn since the driver was loaded.", "field 83", _SLOW),
    _quantity(
        "power_limit_watts",
        "Power limit: as it is set (current), as the GPU boots with (default), and what holds in the end (enforced).",
        "fields 192, 189, 190, or nvmlDeviceGetPowerManagementLimit and the like",
        _SLOW,
        ("gpu", "limit"),
    ),
    _quantity("temperature_celsius", "Temperature of the chip.", "nvmlDeviceGetTemperatureV", _SLOW),
    _quantity("memory_temperature_celsius", "Temperature of the memory.", "field 82", _SLOW),
    _quantity(
        "temperature_margin_celsius",
        "Degrees left before the GPU slows itself down.",
        "nvmlDeviceGetMarginTemperature, or nvmlDeviceGetTemperatureThreshold",
        _SLOW,
    ),
    _quantity(
        "utilization_ratio",
        "Share of the time in which any kernel ran; says nothing of how much of the chip it used.",
        "nvmlDeviceGetUtilizationRates",
        _SLOW,
    ),
    _quantity(
        "memory_busy_ratio",
        "Share of the time in which memory was read or written.",
        "nvmlDeviceGetUtilizationRates",
        _SLOW,
    ),
    _quantity("memory_used_bytes", "Memory in use.", "nvmlDeviceGetMemoryInfo", _SLOW, _SLICE),
    _quantity("memory_total_bytes", "Memory there is.", "nvmlDeviceGetMemoryInfo", _SLOW, _SLICE),
    _quantity("memory_used_ratio", "Share of the memory in use.", "nvmlDeviceGetMemoryInfo", _SLOW, _SLICE),
    _quantity("sm_ratio", "Share of the SMs that were busy.", "GPM metric 2", _FAST, _SLICE),
    _quantity("sm_occupancy_ratio", "Warps on the SMs, of what they can hold.", "GPM metric 3", _FAST, _SLICE),
    _quantity("tensor_ratio", "Share of the time in which the tensor cores worked.", "GPM metric 5", _FAST, _SLICE),
    _quantity("memory_bandwidth_ratio", "Memory traffic, of what is possible.", "GPM metric 10", _FAST, _SLICE),
    _quantity(
        "pcie_sent_bytes_per_s", "From the GPU over PCIe.", "GPM metric 20, or field 197 of 64 bits", _FAST, _SLICE
    ),
    _quantity(
        "pcie_received_bytes_per_s", "To the GPU over PCIe.", "GPM metric 21, or field 198 of 64 bits", _FAST, _SLICE
    ),
    _quantity(
        "nvlink_sent_bytes_per_s",
        "From the GPU over all NVLinks.",
        "GPM metric 61, or field 138 or 202",
        _FAST,
        _SLICE,
    ),
    _quantity(
        "nvlink_received_bytes_per_s",
        "To the GPU over all NVLinks.",
        "GPM metric 60, or field 139 or 204",
        _FAST,
        _SLICE,
    ),
    _quantity("nvlink_links_active", "NVLinks that are up.", "field 165", _SLOW),
    _quantity("pcie_generation", "Generation of the PCIe link now.", "nvmlDeviceGetCurrPcieLinkGeneration", _SLOW),
    _quantity(
        "pcie_generation_max",
        "Highest generation that GPU and slot can do.",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        _SLOW,
    ),
    _quantity("pcie_width", "Lanes of the PCIe link now.", "nvmlDeviceGetCurrPcieLinkWidth", _SLOW),
    _quantity("pcie_width_max", "Most lanes that GPU and slot can do.", "nvmlDeviceGetMaxPcieLinkWidth", _SLOW),
    _quantity("pcie_errors_per_s", "Errors of the PCIe link.", "fields 94, 169, 173, 179, 180", _SLOW, ("gpu", "kind")),
    _quantity(
        "nvlink_errors_per_s",
        "Errors of all NVLinks.",
        "fields 161 to 163, 38, 52, 59, or 208, 211, 212, 215",
        _SLOW,
        ("gpu", "kind"),
    ),
    _quantity("ecc_errors_per_s", "ECC errors, corrected or not.", "fields 3, 4", _SLOW, ("gpu", "kind")),
    _quantity(
        "remapped_rows",
        "Rows of the memory replaced for good, by the kind of error.",
        "fields 142, 143",
        _SLOW,
        ("gpu", "kind"),
    ),
    _quantity("row_remap_pending", "1 if rows wait for a reset to be replaced.", "field 144", _SLOW),
    _quantity("row_remap_failed", "1 if a row could not be replaced.", "field 145", _SLOW),
    _quantity(
        "recovery_action",
        "What the driver asks for: 0 nothing, 1 a reset of the GPU, 2 a reboot, 3 and more see "
        "NVML_GPU_RECOVERY_ACTION.",
        "field 230",
        _SLOW,
    ),
    Quantity(
        "gpu.process_memory_bytes",
        "GPU memory of a process of the server.",
        "nvmlDeviceGetComputeRunningProcesses",
        "30 s",
        ("gpu", "process", "rank"),
    ),
    Quantity(
        "gpu.process_sm_ratio",
        "Share of the SMs that a process of the server used.",
        "nvmlDeviceGetProcessesUtilizationInfo, or nvmlDeviceGetProcessUtilization",
        "30 s",
        ("gpu", "process", "rank"),
    ),
    _quantity(
        "other_memory_bytes",
        "GPU memory of processes that belong to no server known here.",
        "nvmlDeviceGetComputeRunningProcesses",
        "30 s",
    ),
    _quantity("nvml_busy_ratio", "Share of the time spent in NVML, for all GPUs.", "this collector", _SLOW, ()),
    _quantity(
        "nvml_slowest_call_s",
        "How long the slowest call of this time took; the label names the call.",
        "this collector",
        _SLOW,
        ("call",),
    ),
)
STEADY = frozenset(
    f"gpu.{name}"
    for name in (
        "answering",
        "sm_clock_max_hertz",
        "memory_clock_max_hertz",
        "power_limit_watts",
        "memory_total_bytes",
        "nvlink_links_active",
        "pcie_generation",
        "pcie_generation_max",
        "pcie_width",
        "pcie_width_max",
        "remapped_rows",
        "row_remap_pending",
        "row_remap_failed",
        "recovery_action",
    )
)
"""Readings that stay as they are for days, and are told only when they change or as a reminder."""
