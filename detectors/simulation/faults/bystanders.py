"""Series that change at the same moment and have nothing to do with it: backups, other servers, clients, the daemon."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cyclewatch.detectors.simulation.faults.host_readings import DISK, OTHER_DISK
from cyclewatch.detectors.simulation.faults.node import Node, chance
from cyclewatch.detectors.simulation.faults.traces import Key, Level, Levels

_Changes = Callable[[np.random.Generator, Node], Mapping[Key, float]]
"""By what factors which levels change."""

_LEAST = 3


def _disk(disk: str) -> _Changes:
    labels = (("disk", disk),)
    return lambda random, _node: {
        ("host.disk_write_bytes_per_s", labels): float(random.uniform(5, 60)),
        ("host.disk_write_ratio", labels): float(random.uniform(5, 60)),
        ("host.disk_usage_ratio", labels): float(random.uniform(5, 30)),
    }


def _clients(random: np.random.Generator, _node: Node) -> Mapping[Key, float]:
    more = float(random.uniform(1.6, 4))
    return {
        ("host.network_receive_bytes_per_s", (("interface", "eth0"),)): more,
        ("host.network_transmit_bytes_per_s", (("interface", "eth0"),)): more,
    }


def _load(random: np.random.Generator, _node: Node) -> Mapping[Key, float]:
    more = float(random.uniform(1.15, 1.5))
    return {
        ("engine.running_requests", ()): more,
        ("engine.prompt_tokens_per_s", ()): more,
        ("engine.requests_per_s", ()): more,
        ("engine.kv_used_ratio", ()): 1 + 0.5 * (more - 1),
        ("engine.kv_used_tokens", ()): 1 + 0.5 * (more - 1),
    }


def _one(name: str, low: float, high: float, *labels: tuple[str, str]) -> _Changes:
    return lambda random, _node: {(name, labels): float(random.uniform(low, high))}


def _of_scheduler(name: str, low: float, high: float) -> _Changes:
    def changes(random: np.random.Generator, node: Node) -> Mapping[Key, float]:
        factor = float(random.uniform(low, high))
        return {(name, (("process", "scheduler"), ("rank", rank))): factor for rank in node.ranks}

    return changes


def _gpu_of_another_server(random: np.random.Generator, node: Node) -> Mapping[Key, float]:
    """It runs into its power limit."""
    others = sorted(set(range(node.gpus)) - set(node.own))
    if not others:
        return {}
    index = str(others[int(random.integers(len(others)))])
    labels = (("gpu", index),)
    return {
        ("gpu.sm_clock_hertz", labels): float(random.uniform(0.6, 0.9)),
        ("gpu.power_watts", labels): float(random.uniform(1.2, 1.5)),
        ("gpu.mean_power_watts", labels): float(random.uniform(1.2, 1.5)),
        ("gpu.temperature_celsius", labels): float(random.uniform(1.1, 1.3)),
        ("gpu.event_reason_ratio", (*labels, ("reason", "sw_power_cap"))): float(random.uniform(5, 25)),
    }


def _memory_of_another_server(_random: np.random.Generator, node: Node) -> Mapping[Key, float]:
    others = sorted(set(range(node.gpus)) - set(node.own))
    if not others:
        return {}
    labels = (("gpu", str(others[0])),)
    return {("gpu.other_memory_bytes", labels): 1.1, ("gpu.memory_used_bytes", labels): 1.08}


def _warmer_memory(random: np.random.Generator, node: Node) -> Mapping[Key, float]:
    return {
        ("gpu.memory_temperature_celsius", (("gpu", str(index)),)): float(random.uniform(1.04, 1.1))
        for index in node.own
    }


_KINDS: Sequence[_Changes] = (
    _disk(DISK),
    _disk(OTHER_DISK),
    _clients,
    _load,
    _one("host.memory_available_bytes", 0.75, 0.92),
    _one("host.numa_miss_per_s", 5, 40, ("numa_node", "0")),
    _of_scheduler("host.minor_faults_per_s", 2, 6),
    _of_scheduler("host.last_cpu", 0.2, 3),
    _of_scheduler("host.rss_bytes", 1.02, 1.08),
    _one("host.on_cpu_ratio", 1.3, 2, ("process", "main"), ("thread", "main")),
    _one("self.store_rows_per_s", 1.4, 2),
    _one("self.cpu_ratio", 1.3, 2),
    _warmer_memory,
)
_OF_OTHER_GPUS: Sequence[_Changes] = (_gpu_of_another_server, _memory_of_another_server)
"""Only where the processes on a GPU are known can anybody tell that it is another server's."""
_OF_DECODES: Sequence[_Changes] = (_one("engine.cache_hit_ratio", 0.6, 0.85),)
"""What of a prompt must be computed is nothing to a step that only decodes."""
_COMMANDS = ("restic", "apt-get", "logrotate", "fluent-bit", "updatedb")


def with_bystanders(
    random: np.random.Generator, node: Node, after: Levels, spared: Sequence[str], *, decodes: bool
) -> tuple[Levels, tuple[str, ...]]:
    """The levels after the change, with at least three more that changed, and the names of these.

    Nothing is changed whose name begins with one of `spared`. `decodes` tells that the cycles are plain decodes.
    """
    changed: Levels = dict(after)
    names: list[str] = []
    wanted = _LEAST + int(random.integers(0, 3))
    kinds = [*_KINDS, *(_OF_DECODES if decodes else ())]
    kinds += _OF_OTHER_GPUS if not any(name.startswith("gpu.process_") for name in spared) else ()
    for place in random.permutation(len(kinds)).tolist():
        if len(names) >= wanted:
            break
        factors = kinds[place](random, node)
        if (
            not factors
            or any(name.startswith(tuple(spared)) for name, _ in factors)
            or not factors.keys() & after.keys()
        ):
            continue
        names.append(next(iter(factors))[0])
        for key, factor in factors.items():
            if key in changed:
                level = changed[key]
                changed[key] = replace(level, mean=min(level.mean * factor, level.most))
    if chance(random, 0.5) and not "host.other_command_ratio".startswith(tuple(spared)):
        names.append("host.other_command_ratio")
        cpus = float(random.uniform(0.1, 1.5))
        changed["host.other_command_ratio", (("command", str(random.choice(_COMMANDS))),)] = Level(cpus, 30.0, 0.1)
        everybody = changed["host.other_processes_ratio", ()]
        changed["host.other_processes_ratio", ()] = replace(everybody, mean=everybody.mean + cpus)
    return changed, tuple(names)
