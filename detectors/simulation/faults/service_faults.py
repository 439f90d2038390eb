"""Faults of the server itself: its load, its code, its kernels, and the network between its nodes."""

from dataclasses import replace

import numpy as np

from cyclewatch.detectors.simulation.faults.effects import Effect, Happens, on_service
from cyclewatch.detectors.simulation.faults.node import Node
from cyclewatch.detectors.simulation.faults.profiles import KERNELS
from cyclewatch.detectors.simulation.faults.state import Service


def queue(_random: np.random.Generator, _node: Node) -> Effect:
    """So many requests wait that looking through them takes time."""
    return on_service(lambda service, dose: replace(service, queued=20_000 * dose))


def retraction(_random: np.random.Generator, _node: Node) -> Effect:
    """The KV cache is full: requests are put back and computed again."""
    return on_service(lambda service, dose: replace(service, retracted_per_s=60 * dose, kv_used=0.99))


def graphs_off(_random: np.random.Generator, _node: Node) -> Effect:
    """Some decodes, or all, run without a CUDA graph."""
    return on_service(lambda service, dose: replace(service, graphs=1 - dose))


_DEPLOYMENTS: tuple[tuple[Happens, ...], ...] = (
    (("version", "sglang", "0.5.4", "0.5.23"),),
    (("argument", "attention_backend", '"fa3"', '"triton"'),),
    (("argument", "chunked_prefill_size", "8192", "2048"), ("argument", "mem_fraction_static", "0.88", "0.8")),
    (("argument", "enable_metrics", "false", "true"), ("argument", "log_level", '"info"', '"debug"')),
)


def deployment(random: np.random.Generator, node: Node) -> Effect:
    """Another version or other arguments, after a restart."""
    changed = _DEPLOYMENTS[int(random.integers(len(_DEPLOYMENTS)))]
    in_code = node.synchronous or "log_level" in str(changed)

    def deployed(service: Service, dose: float) -> Service:
        slower = 1 + 3 * dose
        return replace(service, host_slowness=slower) if in_code else replace(service, device_slowness=slower)

    return on_service(
        deployed,
        events=(("restart", "server", "", ""), *changed),
        restarted=True,
    )


def driver(_random: np.random.Generator, _node: Node) -> Effect:
    """Another driver, for which the server had to be restarted."""
    return on_service(
        lambda service, dose: replace(service, device_slowness=1 + 3 * dose),
        events=(("environment", "driver", "570.124.06", "575.57.08"), ("restart", "server", "", "")),
        restarted=True,
    )


def straggler(random: np.random.Generator, node: Node) -> Effect:
    """One rank's host code is slower, for a reason that no reading tells, and all others wait."""
    rank = int(random.integers(len(node.own)))
    return Effect(
        lambda state, dose: replace(state, slow_rank=rank, slow_rank_slowness=1 + 6 * dose), device=node.ranks[rank]
    )


def infiniband(random: np.random.Generator, _node: Node) -> Effect:
    """The fabric between the nodes of the server is congested or broken."""
    errors = float(random.uniform(1, 200))
    return on_service(lambda service, dose: replace(service, fabric_slowness=1 + 12 * dose, fabric_errors_per_s=errors))


def _heavy(random: np.random.Generator) -> str:
    """A kernel that takes enough of a step for a fault of it alone to matter."""
    return str(random.choice(["gemm_up", "gemm_down", "attention", "norm"]))


def kernel_slower(random: np.random.Generator, _node: Node) -> Effect:
    """One kernel takes longer a call."""
    key = _heavy(random)
    return on_service(
        lambda service, dose: replace(service, kernel_slowness={**service.kernel_slowness, key: 1 + 12 * dose})
    )


def kernel_substituted(random: np.random.Generator, _node: Node) -> Effect:
    """Another kernel does the work of one, and takes longer."""
    key = str(random.choice([key for key, kernel in KERNELS.items() if kernel.replacement]))
    return on_service(
        lambda service, dose: replace(
            service,
            kernel_slowness={**service.kernel_slowness, key: 1 + 12 * dose},
            replaced=service.replaced | {key},
        )
    )


def kernel_more_calls(random: np.random.Generator, _node: Node) -> Effect:
    """One kernel is called more often in a step."""
    key = _heavy(random)
    return on_service(lambda service, dose: replace(service, more_calls={**service.more_calls, key: 1 + 12 * dose}))


def kernel_new(_random: np.random.Generator, _node: Node) -> Effect:
    """A kernel that was not there before."""
    return on_service(
        lambda service, dose: replace(service, kernel_slowness={**service.kernel_slowness, "new": 3 * dose})
    )
