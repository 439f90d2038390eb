"""The faults: what each does to the state of a node, by a dose between 0 and 1, and what alone shows it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.simulation.faults.node import GIB, Node, chance
from cyclewatch.detectors.simulation.faults.profiles import KERNELS
from cyclewatch.detectors.simulation.faults.state import PCIE_LANES, Gpu, Host, Service, State

Apply = Callable[[State, float], State]
Happens = tuple[str, str, str, str]
"""An event without its time: kind, subject, before, after."""


@dataclass(frozen=True)
class Effect:
    """One fault on one node: the state by dose, the device that it concerns ("" for none), and what is noticed of it.

    `restarted` tells that the server was down for it.
    """

    apply: Apply
    device: str = ""
    events: tuple[Happens, ...] = ()
    restarted: bool = False


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    `shown_by` are beginnings of the names of readings that show it, besides its events: they are never missing, except
    where the cause is hidden. `named` are the kinds that are right to name for it. `gpus` and `cpu` tell the servers
    that it happens to; `host_bound` ones are slowed where the device waits for the host. `virtual` is whether it wants
    a virtual machine, or real hardware; `counts_heat` whether its processor must do that. `profiled` tells whether
    there are kernel profiles: always, never (None), or by chance.
    """

    kind: str
    prepare: Callable[[np.random.Generator, Node], Effect]
    shown_by: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    gpus: bool = True
    cpu: bool = False
    host_bound: bool = False
    ranks: int | None = None
    virtual: bool | None = None
    counts_heat: bool = False
    several_nodes: bool = False
    profiled: bool = False
    can_be_hidden: bool = True

    @property
    def right(self) -> tuple[str, ...]:
        """The kinds that are right to name."""
        return self.named or (self.kind,)


def _host(change: Callable[[Host, float], Host], events: tuple[Happens, ...] = ()) -> Effect:
    return Effect(lambda state, dose: replace(state, host=change(state.host, dose)), events=events)


def _service(change: Callable[[Service, float], Service], **more: object) -> Effect:
    effect = Effect(lambda state, dose: replace(state, service=change(state.service, dose)))
    return replace(effect, **more)  # type: ignore[arg-type]


def _gpu(random: np.random.Generator, node: Node, change: Callable[[Gpu, float], Gpu], **more: object) -> Effect:
    """One GPU of the server; the others wait for it."""
    index = node.own[int(random.integers(len(node.own)))]
    effect = Effect(lambda state, dose: state.with_gpu(index, change(state.gpus[index], dose)), device=f"gpu{index}")
    return replace(effect, **more)  # type: ignore[arg-type]


def _share(name: str, most: float) -> Callable[[np.random.Generator, Node], Effect]:
    """A share of the time that is lost on the host, up to `most`."""
    return lambda _random, _node: _host(lambda host, dose: host.with_shares({name: most * dose}))


def _stopped(random: np.random.Generator, _node: Node) -> Effect:
    by_signal = chance(random, 0.7)
    return _host(lambda host, dose: replace(host, stopped=0.75 * dose, by_signal=by_signal))


def _neighbour(random: np.random.Generator) -> str:
    return str(random.choice(["ffmpeg", "python3", "stress-ng", "java", "rsync", "clang"]))


def _cpu_frequency(random: np.random.Generator, _node: Node) -> Effect:
    governed = chance(random, 0.4)
    events = (("environment", "governor", "performance", "powersave"),) if governed else ()
    return _host(lambda host, dose: replace(host, frequency=host.frequency * (1 - 0.8 * dose)), events)


def _cpu_thermal(random: np.random.Generator, _node: Node) -> Effect:
    most = float(random.uniform(0.5, 0.7))
    return _host(
        lambda host, dose: replace(host, frequency=host.frequency * (1 - most * dose), heat=min(0.25 + dose, 1.0))
    )


def _run_queue_wait(random: np.random.Generator, node: Node) -> Effect:
    command, cpus = _neighbour(random), float(node.cores * random.uniform(0.6, 1.2))
    return _host(
        lambda host, dose: replace(
            host, waiting=0.75 * dose, other_cpus={**host.other_cpus, command: cpus * (0.2 + 0.8 * dose)}
        )
    )


def _memory_bandwidth(random: np.random.Generator, node: Node) -> Effect:
    command, cpus = _neighbour(random), float(node.cores * random.uniform(0.3, 0.6))
    return _host(
        lambda host, dose: replace(
            host, memory_slowness=1 + 5 * dose, other_cpus={**host.other_cpus, command: cpus * (0.4 + 0.6 * dose)}
        )
    )


def _power_cap(random: np.random.Generator, node: Node) -> Effect:
    def capped(gpu: Gpu, dose: float) -> Gpu:
        limit = 1 - 0.7 * dose
        clock = gpu.sm_clock * (1 - 0.75 * dose)
        return replace(
            gpu, power_limit=limit, sm_clock=clock, reasons={**gpu.reasons, "sw_power_cap": 0.6 + 0.4 * dose}
        )

    effect = _gpu(random, node, capped)
    if chance(random, 0.5):
        return effect
    watts = node.model.limit_watts
    return replace(
        effect, events=(("environment", f"{effect.device}.power_limit_w", f"{watts:g}", f"{0.6 * watts:g}"),)
    )


def _gpu_thermal(random: np.random.Generator, node: Node) -> Effect:
    reason = str(random.choice(["sw_thermal", "hw_thermal"]))
    return _gpu(
        random,
        node,
        lambda gpu, dose: replace(
            gpu,
            sm_clock=gpu.sm_clock * (1 - 0.7 * dose),
            heating_celsius=35,
            reasons={**gpu.reasons, reason: 0.4 + 0.6 * dose},
        ),
    )


def _gpu_clock(random: np.random.Generator, node: Node) -> Effect:
    told = {"applications_clocks": 1.0} if chance(random, 0.5) else {}
    return _gpu(
        random,
        node,
        lambda gpu, dose: replace(gpu, sm_clock=gpu.sm_clock * (1 - 0.8 * dose), reasons={**gpu.reasons, **told}),
    )


def _hardware_slowdown(random: np.random.Generator, node: Node) -> Effect:
    reason = str(random.choice(["hw_slowdown", "hw_power_brake"]))
    return _gpu(
        random,
        node,
        lambda gpu, dose: replace(
            gpu, sm_clock=gpu.sm_clock * (0.75 - 0.55 * dose), reasons={**gpu.reasons, reason: 0.7 + 0.3 * dose}
        ),
    )


def _other_process(random: np.random.Generator, node: Node) -> Effect:
    held = float(random.uniform(1, 7)) * GIB
    return _gpu(random, node, lambda gpu, dose: replace(gpu, taken=0.75 * dose, other_bytes=held))


def _ecc(random: np.random.Generator, node: Node) -> Effect:
    return _gpu(random, node, lambda gpu, dose: replace(gpu, retries=0.7 * dose, ecc_per_s=20 + 2000 * dose))


_XIDS = (
    "XID 119: the GPU's system processor (GSP) does not answer",
    "XID 62: internal microcontroller halt",
    "XID 109: context switch timeout",
)


def _xid(random: np.random.Generator, node: Node) -> Effect:
    effect = _gpu(random, node, lambda gpu, dose: replace(gpu, retries=0.75 * dose, management_slowness=1 + 50 * dose))
    return replace(effect, events=(("xid", effect.device, "", str(random.choice(_XIDS))),))


def _nvlink(random: np.random.Generator, node: Node) -> Effect:
    lost = int(random.integers(0, node.model.links // 2))
    errors = float(random.uniform(5, 500))
    return _gpu(
        random,
        node,
        lambda gpu, dose: replace(gpu, link_slowness=1 + 12 * dose, links_lost=lost, link_errors_per_s=errors),
    )


def _pcie(random: np.random.Generator, node: Node) -> Effect:
    # Either some lanes are gone, or all of them run at the lowest speed.
    width = int(random.choice([1, 2, 4, PCIE_LANES]))
    generations = node.model.pcie_generation - 1 if width == PCIE_LANES else 0
    errors = float(random.choice([0, 3, 40]))
    return _gpu(
        random,
        node,
        lambda gpu, dose: replace(
            gpu,
            copy_slowness=1 + 40 * dose,
            pcie_width=width,
            pcie_generation_lost=generations,
            pcie_errors_per_s=errors,
        ),
    )


def _memory_clock(random: np.random.Generator, node: Node) -> Effect:
    return _gpu(random, node, lambda gpu, dose: replace(gpu, memory_clock=gpu.memory_clock * (1 - 0.8 * dose)))


def _queue(_random: np.random.Generator, _node: Node) -> Effect:
    return _service(lambda service, dose: replace(service, queued=20_000 * dose))


def _retraction(_random: np.random.Generator, _node: Node) -> Effect:
    return _service(lambda service, dose: replace(service, retracted_per_s=60 * dose, kv_used=0.99))


def _graphs_off(_random: np.random.Generator, _node: Node) -> Effect:
    return _service(lambda service, dose: replace(service, graphs=1 - dose))


_DEPLOYMENTS: tuple[tuple[Happens, ...], ...] = (
    (("version", "sglang", "0.5.4", "0.5.23"),),
    (("argument", "attention_backend", '"fa3"', '"triton"'),),
    (("argument", "chunked_prefill_size", "8192", "2048"), ("argument", "mem_fraction_static", "0.88", "0.8")),
    (("argument", "enable_metrics", "false", "true"), ("argument", "log_level", '"info"', '"debug"')),
)


def _deployment(random: np.random.Generator, node: Node) -> Effect:
    changed = _DEPLOYMENTS[int(random.integers(len(_DEPLOYMENTS)))]
    on_host = node.synchronous or "log_level" in str(changed)

    def deployed(service: Service, dose: float) -> Service:
        slower = 1 + 3 * dose
        return replace(service, host_slowness=slower) if on_host else replace(service, device_slowness=slower)

    return _service(
        deployed,
        events=(("restart", "server", "", ""), *changed),
        restarted=True,
    )


def _driver(_random: np.random.Generator, _node: Node) -> Effect:
    return _service(
        lambda service, dose: replace(service, device_slowness=1 + 3 * dose),
        events=(("environment", "driver", "570.124.06", "575.57.08"), ("restart", "server", "", "")),
        restarted=True,
    )


def _straggler(random: np.random.Generator, node: Node) -> Effect:
    rank = int(random.integers(len(node.own)))
    return Effect(
        lambda state, dose: replace(state, slow_rank=rank, slow_rank_slowness=1 + 6 * dose), device=node.ranks[rank]
    )


def _infiniband(random: np.random.Generator, _node: Node) -> Effect:
    errors = float(random.uniform(1, 200))
    return _service(lambda service, dose: replace(service, fabric_slowness=1 + 12 * dose, fabric_errors_per_s=errors))


def _network(random: np.random.Generator, _node: Node) -> Effect:
    errors = float(random.uniform(5, 300))

    def lossy(state: State, dose: float) -> State:
        return replace(
            state,
            host=replace(state.host, on_network=0.75 * dose),
            service=replace(state.service, network_errors_per_s=errors * (0.3 + 0.7 * dose)),
        )

    return Effect(lossy)


def _heavy(random: np.random.Generator) -> str:
    """A kernel that takes enough of a step for a fault of it alone to matter."""
    return str(random.choice(["gemm_up", "gemm_down", "attention", "norm"]))


def _kernel_slower(random: np.random.Generator, _node: Node) -> Effect:
    key = _heavy(random)
    return _service(
        lambda service, dose: replace(service, kernel_slowness={**service.kernel_slowness, key: 1 + 12 * dose})
    )


def _kernel_substituted(random: np.random.Generator, _node: Node) -> Effect:
    key = str(random.choice([key for key, kernel in KERNELS.items() if kernel.replacement]))
    return _service(
        lambda service, dose: replace(
            service,
            kernel_slowness={**service.kernel_slowness, key: 1 + 12 * dose},
            replaced=service.replaced | {key},
        )
    )


def _kernel_more_calls(random: np.random.Generator, _node: Node) -> Effect:
    key = _heavy(random)
    return _service(lambda service, dose: replace(service, more_calls={**service.more_calls, key: 1 + 12 * dose}))


def _kernel_new(_random: np.random.Generator, _node: Node) -> Effect:
    return _service(
        lambda service, dose: replace(service, kernel_slowness={**service.kernel_slowness, "new": 3 * dose})
    )


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
            "cpu_frequency", _cpu_frequency, ("host.cpu_frequency", "probe."), cpu=True, host_bound=True, virtual=False
        ),
        Fault(
            "cpu_thermal",
            _cpu_thermal,
            ("host.core_thr", "host.package_thr", "host.cpu_frequency", "probe."),
            cpu=True,
            host_bound=True,
            virtual=False,
            counts_heat=True,
        ),
        Fault(
            "run_queue_wait",
            _run_queue_wait,
            ("host.run_queue", "host.involuntary", *_PRESSURE, *_NEIGHBOURS),
            cpu=True,
            host_bound=True,
        ),
        Fault(
            "cgroup_throttling",
            _share("held_back", 0.75),
            ("host.cgroup_throttled", *_PRESSURE),
            cpu=True,
            host_bound=True,
        ),
        Fault(
            "cpu_steal", _share("stolen", 0.75), ("host.cpu_mode", "probe."), cpu=True, host_bound=True, virtual=True
        ),
        Fault("irq_pressure", _share("interrupted", 0.7), ("host.cpu_mode", *_PRESSURE), cpu=True, host_bound=True),
        Fault(
            "memory_pressure",
            _share("reclaiming", 0.75),
            ("host.memory", "host.cgroup_memory", "host.cpu_mode", *_PRESSURE),
            cpu=True,
        ),
        Fault(
            "swap",
            _share("swapping", 0.75),
            ("host.swap", "host.rss", "host.memory", *_FAULTS),
            cpu=True,
        ),
        Fault("major_faults", _share("faulting", 0.75), _FAULTS, cpu=True, host_bound=True),
        Fault("disk", _share("on_disk", 0.75), _STORAGE, named=("disk", "io_pressure"), cpu=True),
        Fault("network", _network, ("host.network",), several_nodes=True, ranks=4),
        Fault("infiniband", _infiniband, ("host.infiniband",), several_nodes=True, ranks=4),
        Fault("garbage_collection", _share("collecting", 0.75), ("cycles.collected",), cpu=True),
        Fault(
            "stopped",
            _stopped,
            ("host.on_cpu", "host.run_queue", "host.cgroup_throttled"),
            cpu=True,
            can_be_hidden=False,
        ),
        Fault(
            "memory_bandwidth_contention",
            _memory_bandwidth,
            ("probe.", *_NEIGHBOURS),
            gpus=False,
            cpu=True,
            virtual=False,
        ),
        Fault("gpu_power_cap", _power_cap, _CLOCKS),
        Fault("gpu_thermal", _gpu_thermal, (*_CLOCKS, *_HEAT)),
        Fault("gpu_clock", _gpu_clock, _CLOCKS),
        Fault("gpu_hardware_slowdown", _hardware_slowdown, _CLOCKS),
        Fault("gpu_memory_clock", _memory_clock, ("gpu.memory_clock",)),
        Fault("gpu_other_process", _other_process, _SHARED),
        Fault("gpu_ecc", _ecc, ("gpu.ecc", "gpu.remapped", "gpu.row_remap")),
        Fault("gpu_xid", _xid, ("gpu.nvml",)),
        Fault("nvlink_degraded", _nvlink, ("gpu.nvlink",), ranks=4),
        Fault("pcie_degraded", _pcie, ("gpu.pcie",), host_bound=True),
        Fault("queue", _queue, ("engine.queue", "engine.ttft"), host_bound=True),
        Fault(
            "retraction",
            _retraction,
            ("engine.retracted", "engine.kv"),
            named=("retraction", "kv_full"),
            host_bound=True,
        ),
        Fault("cuda_graph_off", _graphs_off, ("engine.cuda_graph",)),
        Fault("deployment", _deployment, cpu=True),
        Fault("driver", _driver),
        Fault("straggler", _straggler, ranks=4, host_bound=True, can_be_hidden=False),
        Fault("kernel_slower", _kernel_slower, profiled=True),
        Fault("kernel_substituted", _kernel_substituted, profiled=True),
        Fault("kernel_more_calls", _kernel_more_calls, profiled=True),
        Fault("kernel_new", _kernel_new, profiled=True),
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
