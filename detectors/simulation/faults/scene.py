"""Drawing a node, its load, and faults of known time and dose that matter there; nothing is measured yet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.phases import Bools, Floats
from cyclewatch.detectors.simulation.faults.cycles import mean_ns
from cyclewatch.detectors.simulation.faults.effects import Effect, Fault
from cyclewatch.detectors.simulation.faults.node import Node, chance, draw_cpu_node, draw_gpu_node
from cyclewatch.detectors.simulation.faults.observed import WINDOW_S
from cyclewatch.detectors.simulation.faults.state import State
from cyclewatch.detectors.simulation.faults.traces import S, Stretch
from cyclewatch.detectors.simulation.traffic import BESIDE, DECODE, EXTEND, Load, LoadSource

_EPOCH_NS = 1_790_000_000 * S
LEAST, _MOST = 0.03, 3.0
"""Slowdowns, as ratios of the cycle."""
_WINDOWS_BEFORE = (36, 120)
_AFTER_S = (30, 600)
_TWO_MOST = 1.0
"""Of two faults together: what each adds depends on which came first, and the more so the larger they are."""
_SHARE_LEAST = 0.05
_SOLVER_STEPS = 24


@dataclass(frozen=True)
class Part:
    """One fault of a case: what is right to name for it, its device ("" where it has none), and its true share.

    The share is that of the slowdown which the fault accounts for. Two faults may hide or raise one another, and then
    it depends on their order: `alone` is what the fault does without the other, `removed` what goes away without it,
    and `share` the mean of both (Shapley's value).
    """

    kind: str
    right: tuple[str, ...]
    device: str
    share: float
    alone: float = 1.0
    removed: float = 1.0


@dataclass(frozen=True)
class Scene:
    """Node, traffic and fault, before anything is measured.

    `late` tells which cycles come after the change, and `first_window` is the first window that is mostly after it.
    """

    node: Node
    load: Load
    first_window: int
    late: Bools
    phase: int
    effects: tuple[Effect, ...]
    states: tuple[State, State]
    parts: tuple[Part, ...]
    slowdown: float
    stretch: Stretch


def draw_scene(random: np.random.Generator, faults: Sequence[Fault]) -> Scene | None:
    """A node on which the faults matter; None where they do not."""
    node = _node_for(random, faults)
    before = int(random.integers(*_WINDOWS_BEFORE))
    after = round(math.exp(random.uniform(math.log(_AFTER_S[0]), math.log(_AFTER_S[1]))) / WINDOW_S)
    load = LoadSource(node.traffic, random).block(before + after + 1)
    phase = int(random.choice([DECODE, BESIDE], p=[0.85, 0.15]))
    if node.synchronous:
        phase = int(random.choice([DECODE, BESIDE, EXTEND], p=[0.6, 0.15, 0.25]))
    effects = tuple(fault.prepare(random, node) for fault in faults)
    most = _MOST if len(faults) == 1 else _TWO_MOST
    size = math.exp(random.uniform(math.log(LEAST), math.log(most)))
    weights = [1.0] if len(faults) == 1 else (first := float(random.uniform(0.2, 0.8)), 1 - first)
    into = float(random.uniform(0, 1))
    begins = np.searchsorted(load.window, load.window)
    place: Floats = (np.arange(len(load.window)) - begins) / np.bincount(load.window)[load.window]
    late = (load.window > before) | ((load.window == before) & (place >= into))
    if not (late & (load.phase == phase)).any():
        return None
    slows = _Slows(node, effects, load, late & (load.phase == phase))
    doses = [_dose(slows, at, size * weight) for at, weight in enumerate(weights)]
    whole = slows.by(doses)
    if whole < LEAST:
        return None
    parts = [
        _part(slows, doses, at, Part(fault.kind, fault.right, effect.device, 1.0))
        for at, (fault, effect) in enumerate(zip(faults, effects, strict=True))
    ]
    if min(part.share for part in parts) < _SHARE_LEAST:
        return None
    start_ns = _EPOCH_NS + int(random.integers(0, 10**7)) * S
    return Scene(
        node=node,
        load=load,
        first_window=before + round(into),
        late=late,
        phase=phase,
        effects=effects,
        states=(node.healthy, slows.state(doses)),
        parts=tuple(sorted(parts, key=lambda part: -part.share)),
        slowdown=whole,
        stretch=Stretch(
            start_ns,
            start_ns + round((before + into) * WINDOW_S * S),
            start_ns + (before + after + 1) * WINDOW_S * S,
        ),
    )


def _node_for(random: np.random.Generator, faults: Sequence[Fault]) -> Node:
    """A node that these faults can happen on."""
    gpus, cpu = all(fault.gpus for fault in faults), all(fault.cpu for fault in faults)
    if cpu and (not gpus or chance(random, 0.5)):
        node = draw_cpu_node(random)
    else:
        ranks = next((fault.ranks for fault in faults if fault.ranks), None)
        node = draw_gpu_node(random, ranks=ranks, host_bound=any(fault.host_bound for fault in faults))
    virtual = next((fault.virtual for fault in faults if fault.virtual is not None), node.virtual)
    intel = not virtual and (node.intel or any(fault.counts_heat for fault in faults))
    return replace(node, virtual=virtual, intel=intel, several_nodes=any(fault.several_nodes for fault in faults))


class _Slows:
    """By what ratio doses of some effects make the chosen cycles longer on average."""

    def __init__(self, node: Node, effects: Sequence[Effect], load: Load, chosen: Bools) -> None:
        self._node, self._effects, self._load, self._chosen = node, effects, load, chosen
        self._healthy_ns = mean_ns(node, node.healthy, load, chosen)

    def state(self, doses: Sequence[float]) -> State:
        """The node with these doses; an effect with none does not exist."""
        state = self._node.healthy
        for effect, dose in zip(self._effects, doses, strict=True):
            state = effect.apply(state, dose) if dose else state
        return state

    def by(self, doses: Sequence[float]) -> float:
        """The ratio, 0 for no difference."""
        return mean_ns(self._node, self.state(doses), self._load, self._chosen) / self._healthy_ns - 1

    def alone(self, at: int, dose: float) -> float:
        """The same for one effect without the others."""
        return self.by([dose if place == at else 0.0 for place in range(len(self._effects))])


def _dose(slows: _Slows, at: int, wanted: float) -> float:
    """The dose of one effect that makes cycles longer by `wanted`, or the whole of it where that does less."""
    low, high = 1e-4, 1.0
    if slows.alone(at, high) <= wanted:
        return high
    for _ in range(_SOLVER_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slows.alone(at, middle) < wanted else (low, middle)
    return high


def _part(slows: _Slows, doses: Sequence[float], at: int, part: Part) -> Part:
    """The part with its shares in what all doses do together."""
    whole = slows.by(doses)
    alone = slows.alone(at, doses[at]) / whole
    removed = 1 - slows.by([0.0 if place == at else dose for place, dose in enumerate(doses)]) / whole
    return replace(part, share=(alone + removed) / 2, alone=alone, removed=removed)
