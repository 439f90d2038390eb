"""The node that a case happens on: its hardware, its server, and how that server's time is made up."""

from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.simulation.faults.state import Gpu, State
from cyclewatch.detectors.simulation.noise import Noise
from cyclewatch.detectors.simulation.server import Server
from cyclewatch.detectors.simulation.traffic import Traffic

GIB = 2**30


@dataclass(frozen=True)
class GpuModel:
    """What a kind of GPU has: figures of its data sheet. `counters` tells whether it has GPM."""

    name: str
    sm_hertz: float
    memory_hertz: float
    idle_watts: float
    limit_watts: float
    memory_bytes: float
    links: int
    pcie_generation: int
    counters: bool


MODELS = (
    GpuModel("NVIDIA H100 80GB HBM3", 1.98e9, 2.619e9, 75, 700, 80 * GIB, 18, 5, counters=True),
    GpuModel("NVIDIA H200", 1.98e9, 3.201e9, 80, 700, 141 * GIB, 18, 5, counters=True),
    GpuModel("NVIDIA A100-SXM4-80GB", 1.41e9, 1.593e9, 60, 400, 80 * GIB, 12, 4, counters=False),
)


@dataclass(frozen=True)
class Node:
    """A server and the node that it runs on.

    `own` are the GPUs of its ranks in their order, empty on a CPU (`synchronous`: the forward pass runs inside
    `run_batch`). `virtual` machines have no CPU frequency, and time may be stolen from them; `intel` cores count heat.
    `spins` tells that the scheduler's thread computes while it waits for the device. `overlap` is the share of the
    host's work that the device does not wait for.

    How a step's time on the device divides, or on a CPU the forward pass: `memory` waits for memory, `communication`
    for other GPUs, the rest follows the clock. `host_memory` is the same of the scheduler's own code. `quota_cpus` is
    how many CPUs of the group a quota holds back at the same time.
    """

    synchronous: bool
    virtual: bool
    intel: bool
    cores: int
    model: GpuModel
    gpus: int
    own: tuple[int, ...]
    several_nodes: bool
    spins: bool
    overlap: float
    memory: float
    communication: float
    host_memory: float
    quota_cpus: float
    server: Server
    traffic: Traffic
    noise: Noise

    @property
    def ranks(self) -> tuple[str, ...]:
        """Names of the ranks."""
        return tuple(f"tp{rank}" for rank in range(max(len(self.own), 1)))

    @property
    def healthy(self) -> State:
        """Nothing is wrong."""
        return State(gpus=(Gpu(),) * self.gpus)


def chance(random: np.random.Generator, probability: float) -> bool:
    """True with this probability."""
    return bool(random.uniform() < probability)


def draw_gpu_node(random: np.random.Generator, *, ranks: int | None = None, host_bound: bool = False) -> Node:
    """A node with GPUs, whose steps take about as long on the host as on the device where it is `host_bound`."""
    own = ranks or int(random.choice([1, 1, 2, 4]))
    gpus = int(random.choice([4, 8]))
    first = int(random.integers(0, gpus // own)) * own
    device = float(np.exp(random.uniform(np.log(0.04), np.log(0.3)) if host_bound else random.uniform(0, 1.2)))
    virtual = chance(random, 0.3)
    return Node(
        synchronous=False,
        virtual=virtual,
        intel=not virtual and chance(random, 0.6),
        cores=int(random.choice([32, 64, 96])),
        model=MODELS[int(random.integers(len(MODELS)))],
        gpus=gpus,
        own=tuple(range(first, first + own)),
        several_nodes=False,
        spins=chance(random, 0.5),
        overlap=float(random.uniform(0.7, 0.95)),
        memory=float(random.uniform(0.55, 0.75)),
        communication=float(random.uniform(0.1, 0.25)) if own > 1 else 0.0,
        host_memory=float(random.uniform(0.05, 0.25)),
        quota_cpus=float(random.uniform(1, 2)),
        server=_scaled(Server(), device, float(random.uniform(0.7, 1.5))),
        traffic=_traffic(random),
        noise=_noise(random),
    )


def draw_cpu_node(random: np.random.Generator) -> Node:
    """A node without GPUs, where the scheduler computes the model itself."""
    virtual = chance(random, 0.4)
    return Node(
        synchronous=True,
        virtual=virtual,
        intel=not virtual and chance(random, 0.6),
        cores=int(random.choice([8, 16, 32])),
        model=MODELS[0],
        gpus=0,
        own=(),
        several_nodes=False,
        spins=False,
        overlap=0.0,
        memory=float(random.uniform(0.2, 0.7)),
        communication=0.0,
        host_memory=float(random.uniform(0.05, 0.25)),
        quota_cpus=float(random.uniform(1, 4)),
        server=_scaled(Server(), float(random.uniform(0.7, 8)), float(random.uniform(0.7, 1.5))),
        traffic=_traffic(random),
        noise=_noise(random),
    )


_DEVICE_COSTS = ("weights_ns", "padded_request_ns", "kv_token_ns", "extend_ns", "new_token_ns", "attended_pair_ns")


def _scaled(server: Server, device: float, host: float) -> Server:
    """A server whose model and whose host are so many times slower."""
    costs = {name: cost * (device if name in _DEVICE_COSTS else host) for name, cost in vars(server).items()}
    return Server(**costs)


def _traffic(random: np.random.Generator) -> Traffic:
    return Traffic(
        batch_size=float(random.choice([4, 12, 24, 48])),
        swing=float(random.uniform(0.05, 0.3)),
        context_spread=float(random.uniform(0.02, 0.08)),
        context_tokens=float(random.uniform(400, 3000)),
    )


def _noise(random: np.random.Generator) -> Noise:
    return Noise(
        window_sigma=float(random.uniform(0.005, 0.02)),
        correlation=float(random.uniform(0.2, 0.7)),
        cycle_sigma=float(random.uniform(0.02, 0.05)),
        collections=0.0,
    )
