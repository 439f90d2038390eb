"""What the GPU collector reads in a given state, of the server's GPUs and of the others on the node."""

from cyclewatch.detectors.simulation.faults.host_readings import Use
from cyclewatch.detectors.simulation.faults.node import GIB, Node
from cyclewatch.detectors.simulation.faults.state import Gpu, State
from cyclewatch.detectors.simulation.faults.traces import Labels, Level, Levels

_FAST_S, _SLOW_S, _PROCESSES_S = 2.0, 10.0, 30.0
_HEAT_LAG_S = 40.0
_TEMPERATURE_MAX = 87.0
_ROOM_CELSIUS = 30.0
_OF_OTHERS = 0.7
"""How busy the GPUs of other servers are."""
REASONS = (
    "idle",
    "applications_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
)


def gpu_levels(node: Node, state: State, uses: tuple[Use, ...]) -> Levels:
    """Levels of all readings of all GPUs."""
    found: Levels = {}
    for index, gpu in enumerate(state.gpus):
        busy, cycle_ns = _OF_OTHERS, 10e6
        if index in node.own:
            use = uses[node.own.index(index)]
            busy, cycle_ns = use.device, use.cycle_ns
        found |= _clocks_and_power(node, gpu, index, busy)
        found |= _activity(node, gpu, index, busy, cycle_ns)
        found |= _links(node, gpu, index, cycle_ns)
        found |= _health(gpu, index)
    found |= _processes(node, state, uses)
    slowest = max((gpu.management_slowness for gpu in state.gpus), default=1.0)
    if state.gpus:
        found["gpu.nvml_busy_ratio", ()] = Level(0.003 * slowest, _SLOW_S, 0.3, most=1.0)
        found["gpu.nvml_slowest_call_s", (("call", "fields_slow"),)] = Level(4e-4 * slowest, _SLOW_S, 0.4)
    return found


def _clocks_and_power(node: Node, gpu: Gpu, index: int, busy: float) -> Levels:
    model, labels = node.model, _gpu(index)
    # Power follows use, and the clock with the voltage that it needs.
    load = min(busy * (1 - gpu.taken) + gpu.taken, 1.0) * (0.6 * gpu.sm_clock**2.4 + 0.4 * gpu.memory_clock)
    limit = model.limit_watts * gpu.power_limit
    watts = min(model.idle_watts + 0.75 * (model.limit_watts - model.idle_watts) * load, limit)
    celsius = min(_ROOM_CELSIUS + 30 * watts / model.limit_watts + gpu.heating_celsius, _TEMPERATURE_MAX)
    found: Levels = {
        ("gpu.sm_clock_hertz", labels): Level(
            0.95 * model.sm_hertz * gpu.sm_clock, _FAST_S, 0.006, varied=0.01, counted=False, most=model.sm_hertz
        ),
        ("gpu.memory_clock_hertz", labels): Level(
            model.memory_hertz * gpu.memory_clock, _FAST_S, 0, varied=0, counted=False
        ),
        ("gpu.sm_clock_max_hertz", labels): Level(model.sm_hertz, _SLOW_S, steady=True),
        ("gpu.memory_clock_max_hertz", labels): Level(model.memory_hertz, _SLOW_S, steady=True),
        ("gpu.power_watts", labels): Level(watts, _FAST_S, 0.03, varied=0.05),
        ("gpu.mean_power_watts", labels): Level(watts, _SLOW_S, 0.02, varied=0.05),
        ("gpu.temperature_celsius", labels): Level(
            celsius, _SLOW_S, 0.01, varied=0.03, lag_s=_HEAT_LAG_S, counted=False, whole=True
        ),
        ("gpu.memory_temperature_celsius", labels): Level(
            celsius + 8, _SLOW_S, 0.01, varied=0.03, lag_s=_HEAT_LAG_S, counted=False, whole=True
        ),
        ("gpu.temperature_margin_celsius", labels): Level(
            _TEMPERATURE_MAX - celsius, _SLOW_S, 0.02, varied=0.05, lag_s=_HEAT_LAG_S, counted=False, whole=True
        ),
    }
    for kind, watts_allowed in (("current", limit), ("default", model.limit_watts), ("enforced", limit)):
        found["gpu.power_limit_watts", (*labels, ("limit", kind))] = Level(watts_allowed, _SLOW_S, steady=True)
    for reason in REASONS:
        # Many GPUs touch their power limit now and then under full load.
        usual = 0.05 * busy if reason == "sw_power_cap" else 0.0
        share = gpu.reasons.get(reason, 0.0)
        found["gpu.event_reason_ratio", (*labels, ("reason", reason))] = Level(
            max(share, usual), _SLOW_S, 0.1 if share < 1 else 0, varied=0.05, most=1.0
        )
    return found


def _activity(node: Node, gpu: Gpu, index: int, busy: float, cycle_ns: float) -> Levels:
    model, labels = node.model, _gpu(index)
    shared = min(busy + gpu.taken * (1 - busy), 1.0)
    found: Levels = {
        ("gpu.utilization_ratio", labels): Level(min(1.02 * shared, 1.0), _SLOW_S, 0.02, varied=0, most=1.0),
        ("gpu.memory_busy_ratio", labels): Level(0.6 * shared, _SLOW_S, 0.05, most=1.0),
        ("gpu.memory_used_bytes", labels): Level(
            0.88 * model.memory_bytes + gpu.other_bytes, _SLOW_S, 0.0005, varied=0.01, counted=False
        ),
        ("gpu.memory_total_bytes", labels): Level(model.memory_bytes, _SLOW_S, steady=True),
        ("gpu.memory_used_ratio", labels): Level(
            0.88 + gpu.other_bytes / model.memory_bytes, _SLOW_S, 0.0005, varied=0.01, counted=False, most=1.0
        ),
    }
    if model.counters:
        found |= {
            ("gpu.sm_ratio", labels): Level(0.9 * shared, _FAST_S, 0.03, most=1.0),
            ("gpu.sm_occupancy_ratio", labels): Level(0.35 * shared, _FAST_S, 0.04, most=1.0),
            ("gpu.tensor_ratio", labels): Level(0.3 * busy * (1 - gpu.taken), _FAST_S, 0.05, most=1.0),
            ("gpu.memory_bandwidth_ratio", labels): Level(
                0.65 * busy * node.memory * (1 - 0.5 * gpu.taken), _FAST_S, 0.04, most=1.0
            ),
        }
    for name, rate in (("sent", 1.5e8), ("received", 3e8)):
        found[f"gpu.pcie_{name}_bytes_per_s", labels] = Level(rate * 10e6 / cycle_ns, _FAST_S, 0.1)
    return found


def _links(node: Node, gpu: Gpu, index: int, cycle_ns: float) -> Levels:
    model, labels = node.model, _gpu(index)
    rate = 4e9 * 10e6 / cycle_ns if index in node.own and len(node.own) > 1 else 1e4
    found: Levels = {
        ("gpu.nvlink_links_active", labels): Level(model.links - gpu.links_lost, _SLOW_S, steady=True),
        ("gpu.pcie_generation", labels): Level(model.pcie_generation - gpu.pcie_generation_lost, _SLOW_S, steady=True),
        ("gpu.pcie_generation_max", labels): Level(model.pcie_generation, _SLOW_S, steady=True),
        ("gpu.pcie_width", labels): Level(gpu.pcie_width, _SLOW_S, steady=True),
        ("gpu.pcie_width_max", labels): Level(16, _SLOW_S, steady=True),
    }
    for name in ("sent", "received"):
        found[f"gpu.nvlink_{name}_bytes_per_s", labels] = Level(rate, _FAST_S, 0.08)
    for source, kind, often in (
        ("pcie", "correctable", gpu.pcie_errors_per_s),
        ("pcie", "replay", 0.5 * gpu.pcie_errors_per_s),
        ("nvlink", "crc", gpu.link_errors_per_s),
        ("nvlink", "replay", 0.3 * gpu.link_errors_per_s),
    ):
        found[f"gpu.{source}_errors_per_s", (*labels, ("kind", kind))] = Level(often, _SLOW_S, 0.3, rare=True)
    return found


def _health(gpu: Gpu, index: int) -> Levels:
    labels = _gpu(index)
    return {
        ("gpu.answering", labels): Level(1, _SLOW_S, steady=True),
        ("gpu.ecc_errors_per_s", (*labels, ("kind", "corrected"))): Level(gpu.ecc_per_s, _SLOW_S, 0.3, rare=True),
        ("gpu.ecc_errors_per_s", (*labels, ("kind", "uncorrected"))): Level(0, _SLOW_S, rare=True),
        ("gpu.remapped_rows", (*labels, ("kind", "corrected"))): Level(1 if gpu.ecc_per_s else 0, _SLOW_S, steady=True),
        ("gpu.remapped_rows", (*labels, ("kind", "uncorrected"))): Level(0, _SLOW_S, steady=True),
        ("gpu.row_remap_pending", labels): Level(1 if gpu.ecc_per_s else 0, _SLOW_S, steady=True),
        ("gpu.row_remap_failed", labels): Level(0, _SLOW_S, steady=True),
        ("gpu.recovery_action", labels): Level(0, _SLOW_S, steady=True),
    }


def _processes(node: Node, state: State, uses: tuple[Use, ...]) -> Levels:
    found: Levels = {}
    for index, gpu in enumerate(state.gpus):
        labels = _gpu(index)
        others = gpu.other_bytes
        if index in node.own:
            rank = node.own.index(index)
            own = (*labels, ("process", "scheduler"), ("rank", node.ranks[rank]))
            found["gpu.process_memory_bytes", own] = Level(
                0.86 * node.model.memory_bytes, _PROCESSES_S, 0.0005, varied=0.01, counted=False
            )
            found["gpu.process_sm_ratio", own] = Level(
                uses[rank].device * (1 - 0.6 * gpu.taken), _PROCESSES_S, 0.05, most=1.0
            )
        else:
            others += 0.8 * node.model.memory_bytes
        found["gpu.other_memory_bytes", labels] = Level(others + 0.2 * GIB, _PROCESSES_S, 0.001, counted=False)
    return found


def _gpu(index: int) -> Labels:
    return (("gpu", str(index)),)
