"""How long cycles take in a given state: host, device and other ranks, and who of them waits for whom."""

from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.phases import Bools, Floats
from cyclewatch.detectors.simulation.faults.node import Node
from cyclewatch.detectors.simulation.faults.profiles import Pace, kernel_factor
from cyclewatch.detectors.simulation.faults.state import Gpu, Host, State
from cyclewatch.detectors.simulation.traffic import DECODE, EXTEND, Load

_WAIT, _LAUNCH, _SCHEDULE, _RESULT = map(STAGES.index, ("wait", "launch", "schedule", "result"))
_HOST = tuple(index for index in range(len(STAGES)) if index != _WAIT)

_EXTEND_MEMORY = 0.1
"""What of a prefill waits for memory: it computes far more for each byte than a decode does."""
_CLOCK_OF_FULL_BANDWIDTH = 0.65
"""Below this share of their usual clock the SMs cannot ask for as much as the memory could give."""
_WAIT_LEAST = 0.03
"""Of the device's time: what a host that is late still spends on asking whether the device is ready."""
_COPIED_OF_LAUNCH = 0.15
"""The part of launching that copies inputs to the device over PCIe; the results come back as slowly."""
_EAGER_LAUNCH, _EAGER_DEVICE = 7.0, 1.12
"""Without CUDA graphs every kernel is launched from Python, and gaps open between kernels."""
_QUEUED_NS = 1_500.0
"""What the scheduler looks through for each waiting request, each cycle."""
_RETRACTION_NS = 12e6
"""What putting one request back, and taking it up again, costs the scheduler."""


_IN_CYCLE_S = 0.01
"""How long the cycles are by which retractions are spread."""
_LUMP_NS = {
    "collecting": 60e6,
    "held_back": 40e6,
    "stopped": 50e6,
    "swapping": 10e6,
    "on_disk": 25e6,
    "on_network": 10e6,
    "reclaiming": 5e6,
}
"""About how long one loss of each kind lasts."""
_LUMP_CYCLES_MAX = 4
"""A simulated window has fewer cycles than a real one: longer lumps would make its mean too uncertain."""


@dataclass(frozen=True)
class Cycles:
    """Cycles of one rank: `stages_ns` of shape (6, n), in the order of `STAGES`; the others of shape (n,).

    `computed_ns` is what the scheduler's thread was on a CPU for, `device_ns` what the device was busy for. `lost_ns`
    is what cycles lose besides, on average, in lumps of `lump_ns`; the part `lost_computing` of it on a CPU, as a
    garbage collection is.
    """

    stages_ns: Floats
    computed_ns: Floats
    device_ns: Floats
    lost_ns: Floats
    lost_computing: float
    lump_ns: Floats

    @property
    def total_ns(self) -> Floats:
        """Whole cycles with their mean loss, shape (n,)."""
        total: Floats = self.stages_ns.sum(axis=0) + self.lost_ns
        return total


def cycles_in(node: Node, state: State, load: Load) -> tuple[Cycles, ...]:
    """The cycles of every rank, without noise."""
    return _on_cpu(node, state, load) if node.synchronous else _on_gpus(node, state, load)


def mean_ns(node: Node, state: State, load: Load, chosen: Bools) -> float:
    """Mean of the chosen cycles of the first rank."""
    return float(cycles_in(node, state, load)[0].total_ns[chosen].mean())


def clock_factor(host: Host, memory: float) -> float:
    """How many times longer code computes of which the part `memory` waits for memory."""
    return (1 - memory) / host.frequency + memory * host.memory_slowness


def device_factor(gpu: Gpu, memory: float) -> float:
    """How many times longer the kernels of one GPU take that do not communicate."""
    bandwidth = min(gpu.memory_clock, max(gpu.sm_clock, 1e-3) / _CLOCK_OF_FULL_BANDWIDTH, 1.0)
    slower = memory / bandwidth + (1 - memory) / gpu.sm_clock
    return slower / ((1 - gpu.taken) * (1 - gpu.retries))


def _on_cpu(node: Node, state: State, load: Load) -> tuple[Cycles, ...]:
    """The forward pass is a part of launching, and nobody waits for a device."""
    stages = node.server.stages_ns(load)
    forward = stages[_WAIT] * state.service.device_slowness
    stages[_WAIT] = 0.0
    stages = _with_service(state, stages, load)
    computed = stages * clock_factor(state.host, node.host_memory)
    computed[_LAUNCH] += forward * clock_factor(state.host, node.memory)
    stages = computed / (1 - state.host.spread)
    return (_cycles(state.host, stages, computed.sum(axis=0), np.zeros(len(load.phase))),)


def _on_gpus(node: Node, state: State, load: Load) -> tuple[Cycles, ...]:
    """Every rank waits for its device, and each device, where they communicate, for the slowest of all."""
    clean = node.server.stages_ns(load)
    # The device begins with a step while the host is still busy with the one before.
    clean_device = clean[_WAIT] + node.overlap * clean[_HOST, :].sum(axis=0)
    extend = load.phase == EXTEND
    own = [state.gpus[index] for index in node.own]
    memory = np.where(extend, _EXTEND_MEMORY, node.memory)
    slowest = np.max([device_factor(gpu, 1.0) * memory + device_factor(gpu, 0.0) * (1 - memory) for gpu in own], axis=0)
    linked = max(gpu.link_slowness for gpu in own) * state.service.fabric_slowness
    alone = 1 - node.communication
    kernels = np.where(extend, 1.0, kernel_factor(node, state.service)) * state.service.device_slowness
    device = clean_device * (alone * slowest * kernels + node.communication * linked)
    device *= np.where(extend, 1.0, 1 + (1 - state.service.graphs) * (_EAGER_DEVICE - 1))
    copies = max(gpu.copy_slowness for gpu in own)
    prepared = _with_service(state, np.where(np.arange(len(STAGES))[:, None] == _WAIT, 0.0, clean), load)
    hosts = []
    for rank in range(len(own)):
        slower = state.slow_rank_slowness if rank == state.slow_rank else 1.0
        computed = prepared * clock_factor(state.host, node.host_memory) * slower
        stages = computed / (1 - state.host.spread)
        # Copies are no computation: they keep the thread waiting in the driver.
        stages[_LAUNCH] += clean[_LAUNCH] * _COPIED_OF_LAUNCH * (copies - 1)
        stages[_RESULT] += clean[_RESULT] * _COPIED_OF_LAUNCH * (copies - 1)
        hosts.append((stages, computed.sum(axis=0)))
    late = [stages.sum(axis=0) for stages, _ in hosts]
    whole = np.max([host + np.maximum(device - node.overlap * host, _WAIT_LEAST * device) for host in late], axis=0)
    found = []
    for (stages, computed), host in zip(hosts, late, strict=True):
        stages[_WAIT] = whole - host
        spun = stages[_WAIT] if node.spins else 0.0
        found.append(_cycles(state.host, stages, computed + spun, np.minimum(device, whole)))
    return tuple(found)


def _with_service(state: State, stages: Floats, load: Load) -> Floats:
    """Stages with what the server itself has more to do on the host; shape kept."""
    service = state.service
    grown = stages * service.host_slowness
    grown[_SCHEDULE] += _QUEUED_NS * service.queued
    grown[_SCHEDULE] += _RETRACTION_NS * service.retracted_per_s * _IN_CYCLE_S
    grown[_LAUNCH] *= np.where(load.phase == DECODE, 1 + (1 - service.graphs) * (_EAGER_LAUNCH - 1), 1.0)
    return grown


def pace_of(node: Node, state: State, rank: int, device_ns: float, cycle_ns: float) -> Pace:
    """How the device of one rank goes; `device_ns` is its time of a healthy decode, `cycle_ns` the cycle as it is."""
    own = [state.gpus[index] for index in node.own]
    alone = [device_factor(gpu, node.memory) for gpu in own]
    waited_ns = device_ns * (1 - node.communication) * (max(alone) - alone[rank])
    if state.slow_rank_slowness > 1 and rank != state.slow_rank:
        # The others have begun to communicate, and wait on the device for the one that is late.
        waited_ns += max(cycle_ns - device_ns, 0) / 2
    return Pace(
        device_ns=device_ns,
        cycle_ns=cycle_ns,
        memory=device_factor(own[rank], 1.0),
        clock=device_factor(own[rank], 0.0),
        link=max(gpu.link_slowness for gpu in own) * state.service.fabric_slowness,
        waited_ns=waited_ns,
    )


def burst_ns(random: np.random.Generator, cycles: Cycles) -> Floats:
    """What each cycle loses in lumps that fall on few of them, shape (n,): stops, collections and quotas come so."""
    lump_ns = np.maximum(cycles.lump_ns, cycles.lost_ns)
    hit = random.uniform(size=len(lump_ns)) < cycles.lost_ns / lump_ns
    bursts: Floats = np.where(hit, random.lognormal(-0.045, 0.3, len(lump_ns)) * lump_ns, 0.0)
    return bursts


def _cycles(host: Host, stages: Floats, computed: Floats, device: Floats) -> Cycles:
    """Cycles with what they lose in lumps."""
    total = stages.sum(axis=0)
    share = host.in_lumps
    most = max(_LUMP_NS, key=lambda name: float(getattr(host, name)))
    computing = (host.collecting + host.reclaiming) / share if share else 0.0
    lump_ns = np.minimum(_LUMP_NS[most], _LUMP_CYCLES_MAX * total)
    return Cycles(stages, computed, device, total * share / (1 - share), min(computing, 1.0), lump_ns)
