"""Putting a case together: a node, a fault of known time and dose, and all that is seen of it."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.attribution.evidence import Event, Evidence, RankCycles
from cyclewatch.detectors.kernels.comparison import ProfileComparison, compare_profiles
from cyclewatch.detectors.simulation.faults.bystanders import with_bystanders
from cyclewatch.detectors.simulation.faults.catalogue import FAULTS
from cyclewatch.detectors.simulation.faults.cycles import cycles_in, pace_of
from cyclewatch.detectors.simulation.faults.effects import Fault
from cyclewatch.detectors.simulation.faults.engine_readings import engine_levels, self_levels
from cyclewatch.detectors.simulation.faults.gpu_readings import gpu_levels
from cyclewatch.detectors.simulation.faults.host_readings import host_levels
from cyclewatch.detectors.simulation.faults.node import Node, chance
from cyclewatch.detectors.simulation.faults.observed import WINDOW_S, Observed, as_it_came, observe
from cyclewatch.detectors.simulation.faults.profiles import profile
from cyclewatch.detectors.simulation.faults.scene import LEAST, Part, Scene, draw_scene
from cyclewatch.detectors.simulation.faults.traces import Levels, S, traces
from cyclewatch.detectors.simulation.traffic import DECODE

_UNSURE_BELOW = 0.1
"""Slowdowns below are placed a window off now and then."""
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
        scene = draw_scene(random, faults)
        if scene is not None:
            return _seen(random, scene, faults, hidden=hidden)
    raise ValueError(f"seed {seed}: no node on which {words} slows anything down by {LEAST:.0%}")


def _seen(random: np.random.Generator, scene: Scene, faults: Sequence[Fault], *, hidden: bool) -> Case:
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
        levels=ranks[own].levels(node.ranks[own], scene.phase, stretch.start_ns, before | after),
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


def _profiled(random: np.random.Generator, scene: Scene, faults: Sequence[Fault], *, hidden: bool) -> bool:
    """Whether there are profiles of before and after; never of a cause that they alone would show after all."""
    if hidden or scene.node.synchronous or any(effect.restarted for effect in scene.effects):
        return False
    return any(fault.profiled for fault in faults) or chance(random, 0.5)


def _kernels(random: np.random.Generator, scene: Scene, rank: int) -> ProfileComparison:
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


def _levels(
    random: np.random.Generator, scene: Scene, ranks: Sequence[Observed], spared: Sequence[str]
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


def _events(random: np.random.Generator, scene: Scene, *, knows_gpus: bool) -> tuple[Event, ...]:
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
