"""Putting a case together: a node, a fault of known time and dose, and all that is seen of it."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.attribution.evidence import Event, Evidence, RankCycles, Trace
from cyclewatch.detectors.kernels.comparison import ProfileComparison, compare_profiles
from cyclewatch.detectors.phases import Bools, Floats
from cyclewatch.detectors.simulation.faults.bystanders import with_bystanders
from cyclewatch.detectors.simulation.faults.catalogue import FAULTS, Effect, Fault
from cyclewatch.detectors.simulation.faults.cycles import cycles_in, mean_ns, pace_of
from cyclewatch.detectors.simulation.faults.engine_readings import engine_levels, self_levels
from cyclewatch.detectors.simulation.faults.gpu_readings import gpu_levels
from cyclewatch.detectors.simulation.faults.host_readings import host_levels
from cyclewatch.detectors.simulation.faults.node import Node, chance, draw_cpu_node, draw_gpu_node
from cyclewatch.detectors.simulation.faults.observed import WINDOW_S, Observed, as_it_came, observe
from cyclewatch.detectors.simulation.faults.profiles import profile
from cyclewatch.detectors.simulation.faults.state import State
from cyclewatch.detectors.simulation.faults.traces import Levels, S, Stretch, traces
from cyclewatch.detectors.simulation.traffic import BESIDE, DECODE, EXTEND, Load, LoadSource

_EPOCH_NS = 1_790_000_000 * S
_SIZES = (0.03, 3.0)
_WINDOWS_BEFORE = (36, 120)
_AFTER_S = (30, 600)
_TWO_MOST = 1.0
"""Of two faults together: what each adds depends on which came first, and the more so the larger they are."""
_SHARE_LEAST = 0.05
_UNSURE_BELOW = 0.1
"""Slowdowns below are placed a window off now and then."""
_SOLVER_STEPS = 24
_TRIES = 30
_MISSING_CHANCE = 0.12
_COLLECTORS = (
    ("gpu.sm_ratio", "gpu.sm_occupancy", "gpu.tensor", "gpu.memory_bandwidth"),
    ("gpu.process_", "gpu.other_"),
    ("gpu.memory_temperature", "gpu.temperature_margin"),
    ("gpu.pcie_", "gpu.nvlink_"),
    ("engine.",),
    ("host.pressure", "host.cgroup_pressure"),
    ("host.other_",),
    ("host.disk",),
    ("host.network",),
    ("host.core_thr", "host.package_thr"),
    ("host.cpu_frequency",),
    ("host.on_cpu", "host.run_queue"),
    ("host.minor_faults", "host.major_faults", "host.voluntary", "host.involuntary", "host.last_cpu"),
    ("host.swap", "host.rss", "host.io_"),
    ("self.",),
    ("probe.",),
)
"""What is missing together: a source that a kernel, a chip, a container or a setting does not give."""


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
class Truth:
    """What is truly behind a case: its faults, the larger first; by what ratio cycles became longer.

    Where it is `hidden`, nothing in the evidence shows the fault. `bystanders` changed at the same moment for no
    reason.
    """

    parts: tuple[Part, ...]
    slowdown: float
    hidden: bool
    bystanders: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """What is seen, and what is behind it."""

    evidence: Evidence
    truth: Truth
    node: Node


def draw(kind: str, seed: int) -> Case:
    """A case of one fault, which its evidence shows."""
    return _draw((FAULTS[kind],), seed, hidden=False)


def draw_hidden(kind: str, seed: int) -> Case:
    """A case of one fault, of which nothing is left in the evidence but what it does to cycles."""
    return _draw((FAULTS[kind],), seed, hidden=True)


def draw_two(kinds: tuple[str, str], seed: int) -> Case:
    """A case of two faults that came at the same moment."""
    return _draw(tuple(FAULTS[kind] for kind in kinds), seed, hidden=False)


def _draw(faults: Sequence[Fault], seed: int, *, hidden: bool) -> Case:
    words = " ".join((*(fault.kind for fault in faults), str(hidden)))
    root = np.random.SeedSequence([seed, zlib.crc32(words.encode())])
    for stream in root.spawn(_TRIES):
        random = np.random.default_rng(stream)
        scene = _scene(random, faults)
        if scene is not None:
            return _seen(random, scene, faults, hidden=hidden)
    raise ValueError(f"seed {seed}: no node on which {words} slows anything down by {_SIZES[0]:.0%}")


@dataclass(frozen=True)
class _Scene:
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


def _scene(random: np.random.Generator, faults: Sequence[Fault]) -> _Scene | None:
    """A node on which the faults matter; None where they do not."""
    node = _node_for(random, faults)
    before = int(random.integers(*_WINDOWS_BEFORE))
    after = round(math.exp(random.uniform(math.log(_AFTER_S[0]), math.log(_AFTER_S[1]))) / WINDOW_S)
    load = LoadSource(node.traffic, random).block(before + after + 1)
    phase = int(random.choice([DECODE, BESIDE], p=[0.85, 0.15]))
    if node.synchronous:
        phase = int(random.choice([DECODE, BESIDE, EXTEND], p=[0.6, 0.15, 0.25]))
    effects = tuple(fault.prepare(random, node) for fault in faults)
    most = _SIZES[1] if len(faults) == 1 else _TWO_MOST
    size = math.exp(random.uniform(math.log(_SIZES[0]), math.log(most)))
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
    if whole < _SIZES[0]:
        return None
    parts = [
        _part(slows, doses, at, Part(fault.kind, fault.right, effect.device, 1.0))
        for at, (fault, effect) in enumerate(zip(faults, effects, strict=True))
    ]
    if min(part.share for part in parts) < _SHARE_LEAST:
        return None
    start_ns = _EPOCH_NS + int(random.integers(0, 10**7)) * S
    return _Scene(
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


def _seen(random: np.random.Generator, scene: _Scene, faults: Sequence[Fault], *, hidden: bool) -> Case:
    """What is measured of a scene."""
    node, stretch = scene.node, scene.stretch
    windows = int(scene.load.window[-1]) + 1
    ranks = observe(random, node, scene.states, scene.load, windows, scene.late)
    shown_by = tuple(name for fault in faults for name in fault.shown_by)
    down_s = float(random.uniform(20, 90)) if any(effect.restarted for effect in scene.effects) else 0.0
    off = int(random.choice([-1, 0, 1], p=[0.15, 0.7, 0.15])) if scene.slowdown < _UNSURE_BELOW else 0
    first = scene.first_window + off
    before = scene.load.window < first - math.ceil(down_s / WINDOW_S)
    after = scene.load.window >= first
    gone = _missing(random, () if hidden else shown_by) + (shown_by if hidden else ())
    events = () if hidden else _events(random, scene, knows_gpus=not any("gpu.process_" in name for name in gone))
    levels, bystanders = _levels(random, scene, ranks, shown_by + gone)
    readings = list(traces(random, *levels, stretch))
    readings += [observed.collected(name, stretch.start_ns) for name, observed in zip(node.ranks, ranks, strict=True)]
    own = int(random.integers(len(ranks)))
    evidence = Evidence(
        started_at_ns=stretch.start_ns + first * WINDOW_S * S,
        rank=node.ranks[own],
        before=ranks[own].means(scene.phase, before),
        after=ranks[own].means(scene.phase, after),
        synchronous=node.synchronous,
        levels=_level_trace(ranks[own], scene, node.ranks[own], before | after),
        traces=tuple(trace for trace in readings if not trace.name.startswith(gone)),
        events=events,
        ranks=tuple(
            RankCycles(name, observed.means(scene.phase, before), observed.means(scene.phase, after))
            for name, observed in zip(node.ranks, ranks, strict=True)
            if name != node.ranks[own]
        ),
        kernels=_kernels(random, scene, own) if _profiled(random, scene, faults, hidden=hidden) else None,
    )
    return Case(evidence, Truth(scene.parts, scene.slowdown, hidden, bystanders), node)


def _profiled(random: np.random.Generator, scene: _Scene, faults: Sequence[Fault], *, hidden: bool) -> bool:
    """Whether there are profiles of before and after; never of a cause that they alone would show after all."""
    if hidden or scene.node.synchronous or any(effect.restarted for effect in scene.effects):
        return False
    return any(fault.profiled for fault in faults) or chance(random, 0.5)


def _kernels(random: np.random.Generator, scene: _Scene, rank: int) -> ProfileComparison:
    """A profile of one rank from before the change, compared with one from after it, at the same load."""
    node = scene.node
    chosen = scene.late & (scene.load.phase == DECODE)
    cycles = [cycles_in(node, state, scene.load)[rank] for state in scene.states]
    device_ns = float(cycles[0].device_ns[chosen].mean())
    taken = []
    for state, these in zip(scene.states, cycles, strict=True):
        pace = pace_of(node, state, rank, device_ns, float(these.stages_ns.sum(axis=0)[chosen].mean()))
        taken.append(profile(random, node, state.service, pace, node.ranks[rank]))
    return compare_profiles(*taken)


def _level_trace(observed: Observed, scene: _Scene, rank: str, chosen: Bools) -> Trace:
    trace = observed.levels(scene.phase, scene.stretch.start_ns, chosen)
    return replace(trace, labels={**trace.labels, "rank": rank})


def _levels(
    random: np.random.Generator, scene: _Scene, ranks: Sequence[Observed], spared: Sequence[str]
) -> tuple[tuple[Levels, Levels], tuple[str, ...]]:
    """Where all readings stand before and after, and the names of those that change for no reason."""
    node = scene.node
    backlog = chance(random, 0.3)
    busy_cpus = float(random.uniform(1, 3)) * max(len(node.own), 1) + (node.quota_cpus if node.synchronous else 0)
    both: list[Levels] = []
    usual_ns = ranks[0].use(node, scene.states[0].host, ~scene.late).cycle_ns
    for state, chosen in zip(scene.states, (~scene.late, scene.late), strict=True):
        came = replace(state, host=as_it_came(state.host, ranks[0].losses))
        uses = tuple(observed.use(node, came.host, chosen) for observed in ranks)
        found = host_levels(node, came, uses, busy_cpus) | gpu_levels(node, came, uses) | self_levels()
        both.append(found | engine_levels(node, came, uses[0], usual_ns, backlog=backlog))
    changed, names = with_bystanders(random, node, both[1], spared, decodes=scene.phase == DECODE)
    return (both[0], changed), names


def _events(random: np.random.Generator, scene: _Scene, *, knows_gpus: bool) -> tuple[Event, ...]:
    """What the faults make happen, a little before cycles change; now and then something of another server's GPU."""
    at_ns = scene.stretch.change_ns - int(random.uniform(0, 10) * S)
    found = [Event(at_ns, *happens) for effect in scene.effects for happens in effect.events]
    others = sorted(set(range(scene.node.gpus)) - set(scene.node.own))
    if knows_gpus and others and chance(random, 0.1):
        text = "XID 31: memory page fault, mostly a fault of the application"
        found.append(Event(at_ns, "xid", f"gpu{others[-1]}", "", text))
    return tuple(found)


def _missing(random: np.random.Generator, needed: Sequence[str]) -> tuple[str, ...]:
    """Beginnings of the names of what is not read on this node; nothing that begins like one of `needed`."""
    gone: tuple[str, ...] = ()
    for names in _COLLECTORS:
        wanted = any(name.startswith(need) or need.startswith(name) for name in names for need in needed)
        if not wanted and random.uniform() < _MISSING_CHANCE:
            gone += names
    return gone
