"""The state that a node is in: what is not as it should be, in terms of the machine, before it has any effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PCIE_LANES = 16


@dataclass(frozen=True)
class Host:
    """What the threads of the server meet on the host.

    The shares are of the time in which a thread wants to go on and cannot, each less than 1. `frequency` is in relation
    to the usual one, `memory_slowness` how many times longer an access to memory takes, `heat` the share of the time
    in which the core is slowed by heat. What is `stopped` is so `by_signal`, or frozen with its group. `other_cpus`
    are those that other processes use, by command.
    """

    frequency: float = 1.0
    heat: float = 0.0
    memory_slowness: float = 1.0
    waiting: float = 0.0
    held_back: float = 0.0
    stolen: float = 0.0
    interrupted: float = 0.0
    stopped: float = 0.0
    by_signal: bool = True
    collecting: float = 0.0
    reclaiming: float = 0.0
    swapping: float = 0.0
    faulting: float = 0.0
    on_disk: float = 0.0
    on_network: float = 0.0
    other_cpus: Mapping[str, float] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """The share of the time that is lost a little in every cycle; losses fall on what the others leave."""
        return _together(self.waiting, self.stolen, self.interrupted, self.faulting)

    @property
    def in_lumps(self) -> float:
        """The share of the time that is lost in lumps longer than a cycle, which no overlap with the device hides."""
        return _together(
            self.held_back,
            self.stopped,
            self.collecting,
            self.reclaiming,
            self.swapping,
            self.on_disk,
            self.on_network,
        )

    def with_shares(self, shares: Mapping[str, float]) -> "Host":
        """The same with these shares instead."""
        changed: dict[str, Any] = dict(shares)
        return replace(self, **changed)


def _together(*shares: float) -> float:
    left = 1.0
    for share in shares:
        left *= 1 - share
    return 1 - left


@dataclass(frozen=True)
class Gpu:
    """One GPU. Clocks and links are in relation to the usual ones; `reasons` are shares of the time, by event reason.

    `taken` is the share of its time that another process takes, whose memory is `other_bytes`. `retries` is the share
    lost to correcting errors. `copy_slowness` is of PCIe, `link_slowness` of what goes between GPUs.
    """

    sm_clock: float = 1.0
    memory_clock: float = 1.0
    reasons: Mapping[str, float] = field(default_factory=dict)
    power_limit: float = 1.0
    heating_celsius: float = 0.0
    taken: float = 0.0
    other_bytes: float = 0.0
    retries: float = 0.0
    ecc_per_s: float = 0.0
    management_slowness: float = 1.0
    links_lost: int = 0
    link_errors_per_s: float = 0.0
    link_slowness: float = 1.0
    pcie_generation_lost: int = 0
    pcie_width: int = PCIE_LANES
    pcie_errors_per_s: float = 0.0
    copy_slowness: float = 1.0


@dataclass(frozen=True)
class Service:
    """The server itself. `queued` requests wait; `retracted_per_s` are put back for want of KV cache.

    `graphs` is the share of decodes that run as CUDA graphs. `host_slowness` is of its code on the host,
    `kernel_slowness` that of single kernels by what they are in `profiles.py`, `more_calls` how many times more often
    they are called, and `replaced` names those that another kernel stands for. `fabric_slowness` is of the network
    between nodes, `fabric_errors_per_s` what its adapter counts; `network_errors_per_s` that of the ordinary network.
    """

    queued: float = 0.0
    retracted_per_s: float = 0.0
    kv_used: float = 0.6
    graphs: float = 1.0
    host_slowness: float = 1.0
    kernel_slowness: Mapping[str, float] = field(default_factory=dict)
    more_calls: Mapping[str, float] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()
    device_slowness: float = 1.0
    fabric_slowness: float = 1.0
    fabric_errors_per_s: float = 0.0
    network_errors_per_s: float = 0.0


@dataclass(frozen=True)
class State:
    """A node as a whole; `gpus` are all of it, those of other servers too.

    `slow_rank` is a rank whose host code alone takes `slow_rank_slowness` times as long.
    """

    host: Host = field(default_factory=Host)
    gpus: tuple[Gpu, ...] = ()
    service: Service = field(default_factory=Service)
    slow_rank: int = 0
    slow_rank_slowness: float = 1.0

    def with_gpu(self, index: int, gpu: Gpu) -> "State":
        """The same with another state of one GPU."""
        return replace(self, gpus=(*self.gpus[:index], gpu, *self.gpus[index + 1 :]))
