"""Faults of the host."""

from dataclasses import replace

import numpy as np

from cyclewatch.detectors.simulation.faults.effects import Effect, Prepare, on_host
from cyclewatch.detectors.simulation.faults.node import Node, chance
from cyclewatch.detectors.simulation.faults.state import State


def share(name: str, most: float) -> Prepare:
    """A share of the time that is lost on the host, up to `most`."""
    return lambda _random, _node: on_host(lambda host, dose: host.with_shares({name: most * dose}))


def stopped(random: np.random.Generator, _node: Node) -> Effect:
    """Stopped and continued again and again, by signals or by the freezer of its group."""
    by_signal = chance(random, 0.7)
    return on_host(lambda host, dose: replace(host, stopped=0.75 * dose, by_signal=by_signal))


def _neighbour(random: np.random.Generator) -> str:
    return str(random.choice(["ffmpeg", "python3", "stress-ng", "java", "rsync", "clang"]))


def cpu_frequency(random: np.random.Generator, _node: Node) -> Effect:
    """The cores run slower, for a governor or for power; somebody may have set it."""
    governed = chance(random, 0.4)
    events = (("environment", "governor", "performance", "powersave"),) if governed else ()
    return on_host(lambda host, dose: replace(host, frequency=host.frequency * (1 - 0.8 * dose)), events)


def cpu_thermal(random: np.random.Generator, _node: Node) -> Effect:
    """The cores are slowed by heat."""
    most = float(random.uniform(0.5, 0.7))
    return on_host(
        lambda host, dose: replace(host, frequency=host.frequency * (1 - most * dose), heat=min(0.25 + dose, 1.0))
    )


def run_queue_wait(random: np.random.Generator, node: Node) -> Effect:
    """Others want the same CPUs."""
    command, cpus = _neighbour(random), float(node.cores * random.uniform(0.6, 1.2))
    return on_host(
        lambda host, dose: replace(
            host, waiting=0.75 * dose, other_cpus={**host.other_cpus, command: cpus * (0.2 + 0.8 * dose)}
        )
    )


def memory_bandwidth(random: np.random.Generator, node: Node) -> Effect:
    """Others keep the memory busy, on CPUs of their own."""
    command, cpus = _neighbour(random), float(node.cores * random.uniform(0.3, 0.6))
    return on_host(
        lambda host, dose: replace(
            host, memory_slowness=1 + 5 * dose, other_cpus={**host.other_cpus, command: cpus * (0.4 + 0.6 * dose)}
        )
    )


def network(random: np.random.Generator, _node: Node) -> Effect:
    """Packets are lost on the network over which the nodes of the server talk."""
    errors = float(random.uniform(5, 300))

    def lossy(state: State, dose: float) -> State:
        return replace(
            state,
            host=replace(state.host, on_network=0.75 * dose),
            service=replace(state.service, network_errors_per_s=errors * (0.3 + 0.7 * dose)),
        )

    return Effect(lossy)
