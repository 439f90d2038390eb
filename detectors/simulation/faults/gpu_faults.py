"""Faults of one GPU of the server."""

from dataclasses import replace

import numpy as np

from cyclewatch.detectors.simulation.faults.effects import Effect, on_gpu
from cyclewatch.detectors.simulation.faults.node import GIB, Node, chance
from cyclewatch.detectors.simulation.faults.state import PCIE_LANES, Gpu


def power_cap(random: np.random.Generator, node: Node) -> Effect:
    """Its power limit is lowered, or it has come into it: the clock falls until the power fits."""

    def capped(gpu: Gpu, dose: float) -> Gpu:
        limit = 1 - 0.7 * dose
        clock = gpu.sm_clock * (1 - 0.75 * dose)
        return replace(
            gpu, power_limit=limit, sm_clock=clock, reasons={**gpu.reasons, "sw_power_cap": 0.6 + 0.4 * dose}
        )

    effect = on_gpu(random, node, capped)
    if chance(random, 0.5):
        return effect
    watts = node.model.limit_watts
    return replace(
        effect, events=(("environment", f"{effect.device}.power_limit_w", f"{watts:g}", f"{0.6 * watts:g}"),)
    )


def gpu_thermal(random: np.random.Generator, node: Node) -> Effect:
    """It is too hot, and slowed by the driver or by its own protection."""
    reason = str(random.choice(["sw_thermal", "hw_thermal"]))
    return on_gpu(
        random,
        node,
        lambda gpu, dose: replace(
            gpu,
            sm_clock=gpu.sm_clock * (1 - 0.7 * dose),
            heating_celsius=35,
            reasons={**gpu.reasons, reason: 0.4 + 0.6 * dose},
        ),
    )


def gpu_clock(random: np.random.Generator, node: Node) -> Effect:
    """Somebody set or locked its clock lower; the driver tells that as a reason or not at all."""
    told = {"applications_clocks": 1.0} if chance(random, 0.5) else {}
    return on_gpu(
        random,
        node,
        lambda gpu, dose: replace(gpu, sm_clock=gpu.sm_clock * (1 - 0.8 * dose), reasons={**gpu.reasons, **told}),
    )


def hardware_slowdown(random: np.random.Generator, node: Node) -> Effect:
    """Its power supply or its board asks for a deep slowdown at once."""
    reason = str(random.choice(["hw_slowdown", "hw_power_brake"]))
    return on_gpu(
        random,
        node,
        lambda gpu, dose: replace(
            gpu, sm_clock=gpu.sm_clock * (0.75 - 0.55 * dose), reasons={**gpu.reasons, reason: 0.7 + 0.3 * dose}
        ),
    )


def other_process(random: np.random.Generator, node: Node) -> Effect:
    """Another process takes its turns on it, and some of its memory."""
    held = float(random.uniform(1, 7)) * GIB
    return on_gpu(random, node, lambda gpu, dose: replace(gpu, taken=0.75 * dose, other_bytes=held))


def ecc(random: np.random.Generator, node: Node) -> Effect:
    """Its memory corrects errors all the time."""
    return on_gpu(random, node, lambda gpu, dose: replace(gpu, retries=0.7 * dose, ecc_per_s=20 + 2000 * dose))


_XIDS = (
    "XID 119: the GPU's system processor (GSP) does not answer",
    "XID 62: internal microcontroller halt",
    "XID 109: context switch timeout",
)


def xid(random: np.random.Generator, node: Node) -> Effect:
    """The driver reports an error after which it goes on, slower."""
    effect = on_gpu(
        random, node, lambda gpu, dose: replace(gpu, retries=0.75 * dose, management_slowness=1 + 50 * dose)
    )
    return replace(effect, events=(("xid", effect.device, "", str(random.choice(_XIDS))),))


def nvlink(random: np.random.Generator, node: Node) -> Effect:
    """Its links to the others lose packets, and some may be down."""
    lost = int(random.integers(0, node.model.links // 2))
    errors = float(random.uniform(5, 500))
    return on_gpu(
        random,
        node,
        lambda gpu, dose: replace(gpu, link_slowness=1 + 12 * dose, links_lost=lost, link_errors_per_s=errors),
    )


def pcie(random: np.random.Generator, node: Node) -> Effect:
    """Its link to the host has fewer lanes or a lower speed."""
    # Either some lanes are gone, or all of them run at the lowest speed.
    width = int(random.choice([1, 2, 4, PCIE_LANES]))
    generations = node.model.pcie_generation - 1 if width == PCIE_LANES else 0
    errors = float(random.choice([0, 3, 40]))
    return on_gpu(
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


def memory_clock(random: np.random.Generator, node: Node) -> Effect:
    """Its memory runs at a lower clock."""
    return on_gpu(random, node, lambda gpu, dose: replace(gpu, memory_clock=gpu.memory_clock * (1 - 0.8 * dose)))
