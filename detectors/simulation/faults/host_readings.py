"""What the host collector reads in a given state."""

from dataclasses import dataclass

from cyclewatch.detectors.simulation.faults.node import GIB, Node
from cyclewatch.detectors.simulation.faults.state import State
from cyclewatch.detectors.simulation.faults.traces import Labels, Level, Levels

_PACE_S, _LOOK_S, _SURVEY_S, _PROBE_S = 5.0, 15.0, 30.0, 300.0
_HERTZ = 3.2e9
_BUILT_FOR_HERTZ = 3.7e9
_FAULT_S = 0.4e-3
"""A page fault that waits for storage."""
_SWAP_IN_S = 0.15e-3
_PAGE_BYTES = 4096
_COMMANDS = {"node_exporter": 0.03, "dockerd": 0.02, "systemd-journal": 0.015}
DISK, OTHER_DISK = "nvme0n1", "nvme1n1"


@dataclass(frozen=True)
class Use:
    """What one rank's scheduler does: its mean cycle, and the shares of the time in which it wants a CPU and has one.

    `device` is the share in which its device is busy, `stages` how the cycle divides, in the order of `STAGES`.
    """

    cycle_ns: float
    wanted: float
    computed: float
    device: float
    stages: tuple[float, ...]


def host_levels(node: Node, state: State, uses: tuple[Use, ...], busy_cpus: float) -> Levels:
    """Levels of all readings of the host; `busy_cpus` are used by the server itself while nothing is wrong."""
    found: Levels = {}
    for rank, use in zip(node.ranks, uses, strict=True):
        found |= _scheduler(node, state, use, rank)
    found |= _other_processes_of_the_server(state)
    found |= _group(node, state, uses[0])
    found |= _node(node, state, uses[0], busy_cpus)
    found |= _disks(state, uses[0]) | _network(node, state, uses[0]) | _others(state) | _probe(state)
    return found


def _scheduler(node: Node, state: State, use: Use, rank: str) -> Levels:
    host = state.host
    process: Labels = (("process", "scheduler"), ("rank", rank))
    main, others = (*process, ("thread", "main")), (*process, ("thread", "others"))
    faults = host.faulting * use.wanted / _FAULT_S + host.swapping / _SWAP_IN_S
    found = {
        ("host.on_cpu_ratio", main): Level(use.computed, _PACE_S, 0.02, varied=0, most=1.0),
        ("host.on_cpu_ratio", others): Level(
            (0.6 * node.quota_cpus if node.synchronous else 0.15) * (1 - host.spread) * (1 - host.in_lumps),
            _PACE_S,
            0.1,
        ),
        ("host.run_queue_wait_ratio", main): Level(host.waiting * use.wanted, _PACE_S, 0.1, 0.002, varied=0),
        ("host.run_queue_wait_ratio", others): Level(
            host.waiting * (0.6 * node.quota_cpus if node.synchronous else 0.1), _PACE_S, 0.2, 0.003
        ),
        ("host.stopped_ratio", process): Level(
            host.stopped if host.by_signal else 0.0, _PACE_S, seen=True, counted=False
        ),
        ("host.minor_faults_per_s", process): Level(40, _PACE_S, 0.5),
        ("host.major_faults_per_s", process): Level(faults, _PACE_S, 0.2, 0.02, varied=0.1),
        ("host.voluntary_switches_per_s", process): Level(2e9 / use.cycle_ns, _PACE_S, 0.05),
        ("host.involuntary_switches_per_s", process): Level(2 + 250 * host.waiting * use.wanted, _PACE_S, 0.3),
        ("host.last_cpu", process): Level(node.cores / 3, _PACE_S, 0.3, varied=0.5, counted=False, whole=True),
        ("host.rss_bytes", process): Level(6 * GIB * (1 - 0.5 * host.swapping), _LOOK_S, 0.002, varied=0.3, lag_s=20),
        ("host.swap_bytes", process): Level(8 * GIB * host.swapping, _LOOK_S, 0.02, varied=0.2, lag_s=15),
        ("host.io_read_bytes_per_s", process): Level(
            faults * _PAGE_BYTES + 20e6 * host.on_disk, _LOOK_S, 0.2, 300, varied=0.2
        ),
        ("host.io_write_bytes_per_s", process): Level(2e4 + 40e6 * host.on_disk, _LOOK_S, 0.3),
        ("host.cgroup_throttled_ratio", process): Level(
            host.held_back * node.quota_cpus, _PACE_S, 0.15, 1e-4, varied=0.05
        ),
    }
    if not node.virtual:
        found |= {
            ("host.cpu_frequency_hertz", process): Level(
                _HERTZ * host.frequency, _PACE_S, 0.015, varied=0, counted=False, most=_BUILT_FOR_HERTZ
            ),
            ("host.cpu_frequency_ratio", process): Level(
                _HERTZ / _BUILT_FOR_HERTZ * host.frequency, _PACE_S, 0.015, varied=0, counted=False, most=1.0
            ),
        }
    if node.intel:
        found |= {
            ("host.core_throttled_ratio", process): Level(host.heat, _PACE_S, 0.15, varied=0.05),
            ("host.core_throttle_events_per_s", process): Level(20 * host.heat, _PACE_S, 0.3, varied=0.2),
        }
    return found


def _other_processes_of_the_server(state: State) -> Levels:
    found: Levels = {}
    for role, share in (("main", 0.35), ("detokenizer", 0.12)):
        labels = (("process", role),)
        main = (*labels, ("thread", "main"))
        found |= {
            ("host.on_cpu_ratio", main): Level(share * (1 - state.host.stopped), _PACE_S, 0.1, most=1.0),
            ("host.run_queue_wait_ratio", main): Level(0.5 * state.host.waiting * share, _PACE_S, 0.3, 0.002),
            ("host.minor_faults_per_s", labels): Level(200, _PACE_S, 0.4),
            ("host.major_faults_per_s", labels): Level(0, _PACE_S, 0, 0.02),
            ("host.rss_bytes", labels): Level(1.2 * GIB, _LOOK_S, 0.01, varied=0.2),
        }
    return found


def _group(node: Node, state: State, use: Use) -> Levels:
    """The pressure of the server's control group."""
    host = state.host
    # What is lost in lumps is a share of all time, the rest of that in which the thread wants to go on.
    memory = host.reclaiming + host.swapping + 0.7 * host.faulting * use.wanted
    storage = host.on_disk + host.swapping + host.faulting * use.wanted
    found: Levels = {}
    for resource, some, full in (
        ("cpu", 1 - (1 - host.waiting) * (1 - host.held_back), host.held_back),
        ("memory", memory, 0.7 * memory),
        ("io", storage, 0.7 * storage),
        ("irq", None, host.interrupted * use.wanted),
    ):
        for kind, share in (("some", some), ("full", full)):
            if share is not None:
                labels = (("resource", resource), ("kind", kind))
                found["host.cgroup_pressure_ratio", labels] = Level(share, _PACE_S, 0.15, 0.002, 0.05, most=1.0)
    for event in ("high", "max", "oom", "oom_kill"):
        often = 40 * host.reclaiming if event == "high" and not node.virtual else 0.0
        found["host.cgroup_memory_events_per_s", (("event", event),)] = Level(often, _LOOK_S, 0.2)
    found["host.cgroup_io_read_bytes_per_s", ()] = Level(5e3 + 60e6 * storage, _LOOK_S, 0.3)
    found["host.cgroup_io_write_bytes_per_s", ()] = Level(3e4 + 40e6 * host.on_disk, _LOOK_S, 0.3)
    return found


def _node(node: Node, state: State, use: Use, busy_cpus: float) -> Levels:
    host = state.host
    others = 0.4 + sum(host.other_cpus.values())
    used = min((busy_cpus * (1 - host.spread) * (1 - host.in_lumps) + others) / node.cores, 1.0)
    storage = host.on_disk + host.swapping + host.faulting * use.wanted
    modes = {
        "user": 0.85 * used,
        "system": 0.12 * used + 0.5 * host.reclaiming / node.cores,
        "iowait": 0.0005 + storage / node.cores,
        "irq": 0.002 + host.interrupted * min(1.0, 2 / node.cores),
        # The hypervisor takes time only of CPUs that have something to run.
        "steal": host.stolen * used / (1 - host.stolen) if node.virtual else 0.0,
    }
    found: Levels = {
        ("host.cpu_usage_ratio", ()): Level(used, _PACE_S, 0.05, most=1.0),
        ("host.load", ()): Level(busy_cpus + others + 3 * host.waiting, _PACE_S, 0.05, lag_s=60),
        ("host.memory_available_bytes", ()): Level(
            (200 - 190 * max(host.swapping > 0, host.reclaiming > 0)) * GIB, _LOOK_S, 0.01, varied=0.3, lag_s=10
        ),
        ("host.swap_used_bytes", ()): Level(24 * GIB * host.swapping, _LOOK_S, 0.02, lag_s=15),
    }
    for mode, share in modes.items():
        floor = 0.0 if mode == "steal" and not node.virtual else 0.0005
        found["host.cpu_mode_ratio", (("mode", mode),)] = Level(share, _PACE_S, 0.1, floor, 0.1, most=1.0)
    memory = host.reclaiming + host.swapping + 0.5 * host.faulting * use.wanted
    for resource, kind, share in (
        ("cpu", "some", min(1.2 * host.waiting + 0.9 * host.held_back, 0.95)),
        ("memory", "some", memory),
        ("memory", "full", 0.4 * memory),
        ("io", "some", storage),
        ("io", "full", 0.4 * storage),
        ("irq", "full", host.interrupted),
    ):
        labels = (("resource", resource), ("kind", kind))
        found["host.pressure_ratio", labels] = Level(share, _PACE_S, 0.15, 0.003, 0.05, most=1.0)
    for numa_node in ("0", "1"):
        found["host.numa_miss_per_s", (("numa_node", numa_node),)] = Level(5, _LOOK_S, 0.8)
    if node.intel:
        found["host.package_throttled_ratio", (("package", "0"),)] = Level(0.9 * host.heat, _PACE_S, 0.2, varied=0.05)
        found["host.package_throttle_events_per_s", (("package", "0"),)] = Level(15 * host.heat, _PACE_S, 0.3)
    return found


def _disks(state: State, use: Use) -> Levels:
    host = state.host
    reads = host.swapping + host.faulting * use.wanted + 0.3 * host.on_disk
    writes = 0.01 + 0.7 * host.on_disk + 0.3 * host.swapping
    found: Levels = {}
    for disk, reading, writing in ((DISK, 0.002 + reads, writes), (OTHER_DISK, 0.001, 0.004)):
        labels = (("disk", disk),)
        busy = min(1.3 * (reading + writing), 1.0)
        found |= {
            ("host.disk_usage_ratio", labels): Level(busy, _LOOK_S, 0.2, 0.003, most=1.0),
            ("host.disk_read_ratio", labels): Level(reading, _LOOK_S, 0.3, 0.002),
            ("host.disk_write_ratio", labels): Level(writing, _LOOK_S, 0.3, 0.002),
            ("host.disk_read_bytes_per_s", labels): Level(250e6 * reading, _LOOK_S, 0.3),
            ("host.disk_write_bytes_per_s", labels): Level(150e6 * writing, _LOOK_S, 0.3),
        }
    return found


def _network(node: Node, state: State, use: Use) -> Levels:
    """The clients' network; and the adapter between the nodes of a server that has several."""
    host, service = state.host, state.service
    found: Levels = {}
    for interface, rate in (("eth0", 1.5e6), ("lo", 4e6)):
        labels = (("interface", interface),)
        errors = service.network_errors_per_s if interface == "eth0" else 0.0
        slower = (1 - host.on_network) if interface == "eth0" else 1.0
        found |= {
            ("host.network_receive_bytes_per_s", labels): Level(rate * slower, _LOOK_S, 0.15),
            ("host.network_transmit_bytes_per_s", labels): Level(2 * rate * slower, _LOOK_S, 0.15),
            ("host.network_errors_per_s", labels): Level(errors, _LOOK_S, 0.3),
        }
    if node.several_nodes:
        rate = 8e9 * 10e6 / use.cycle_ns
        port: Labels = (("device", "mlx5_0"), ("port", "1"))
        found |= {
            ("host.infiniband_receive_bytes_per_s", port): Level(rate, _LOOK_S, 0.05),
            ("host.infiniband_transmit_bytes_per_s", port): Level(rate, _LOOK_S, 0.05),
            ("host.infiniband_errors_per_s", port): Level(service.fabric_errors_per_s, _LOOK_S, 0.4),
            ("host.infiniband_transmit_wait_ticks_per_s", port): Level(
                2e4 + 4e7 * (service.fabric_slowness - 1), _LOOK_S, 0.3
            ),
        }
    return found


def _others(state: State) -> Levels:
    commands = _COMMANDS | dict(state.host.other_cpus)
    found: Levels = {
        ("host.other_command_ratio", (("command", command),)): Level(cpus, _SURVEY_S, 0.1)
        for command, cpus in commands.items()
    }
    found["host.other_processes_ratio", ()] = Level(0.1 + sum(commands.values()), _SURVEY_S, 0.05)
    return found


def _probe(state: State) -> Levels:
    """The fixed work of the probe, in a process of its own that has no quota."""
    host = state.host
    delayed = (1 - host.waiting) * (1 - host.stolen)
    found: Levels = {}
    for name, usual_s, slower in (
        ("probe.cpu_loop_seconds", 0.012, 1 / host.frequency),
        ("probe.memory_scan_seconds", 0.006, 0.3 / host.frequency + 0.7 * host.memory_slowness),
    ):
        for kind, factor in (("cpu", slower), ("wall", slower / delayed)):
            labels = (("kind", kind), ("software", "CPython 3.11.7"))
            found[name, labels] = Level(usual_s * factor, _PROBE_S, 0.02, varied=0, counted=False)
    return found
