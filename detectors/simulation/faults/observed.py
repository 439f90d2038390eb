"""Cycles as they are measured: with noise, with losses in lumps, and summed up by load as windows are."""

from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.records import RECORD, STAGES, ForwardMode, RecordKind
from cyclewatch.detectors.attribution.evidence import StageMeans, Trace
from cyclewatch.detectors.phases import Bools, Floats
from cyclewatch.detectors.simulation.faults.cycles import Cycles, burst_ns, cycles_in
from cyclewatch.detectors.simulation.faults.host_readings import Use
from cyclewatch.detectors.simulation.faults.node import Node
from cyclewatch.detectors.simulation.faults.state import Host, State
from cyclewatch.detectors.simulation.faults.traces import S
from cyclewatch.detectors.simulation.noise import NoiseSource
from cyclewatch.detectors.simulation.traffic import EXTEND, PHASES, Load
from cyclewatch.detectors.windows import cells_of

WINDOW_S = 5

_CPU_SAMPLED_EVERY = 16
_COUNTED_FOR = 20
"""Cycles that stand for so many of their kind: a simulated window has fewer than a real one."""
_WAIT = STAGES.index("wait")


@dataclass(frozen=True)
class Observed:
    """The cycles of one rank before and after a change; arrays of stages have shape (6, n), the others (n,).

    `late` are those after the change. `collected_ns` is what garbage collections took of each, and `losses` how much
    was lost in lumps against what the state would lose on average.
    """

    load: Load
    late: Bools
    stages_ns: Floats
    computed_ns: Floats
    device_ns: Floats
    clean_ns: Floats
    collected_ns: Floats
    losses: float

    @property
    def total_ns(self) -> Floats:
        """Whole cycles, shape (n,)."""
        total: Floats = self.stages_ns.sum(axis=0)
        return total

    def means(self, phase: int, chosen: Bools) -> list[StageMeans]:
        """Means of the chosen cycles of one phase by load bucket; `phase` numbers `PHASES`."""
        chosen = chosen & (self.load.phase == phase)
        records = np.zeros(int(chosen.sum()), RECORD)
        records["kind"] = RecordKind.CYCLE
        records["mode"] = ForwardMode.EXTEND if phase == EXTEND else ForwardMode.DECODE
        records["batch_size"] = self.load.batch_size[chosen]
        records["new_tokens"] = self.load.new_tokens[chosen]
        records["cycle_ns"] = self.total_ns[chosen]
        for stage, values in zip(STAGES, self.stages_ns[:, chosen], strict=True):
            records[f"{stage}_ns"] = values
        sampled = np.arange(len(records)) % _CPU_SAMPLED_EVERY == 0
        records["on_cpu_ns"] = np.where(sampled, self.computed_ns[chosen], -1)
        return [
            StageMeans(cell.bucket, cell.count * _COUNTED_FOR, cell.stages_ns, cell.on_cpu_ratio)
            for cell in cells_of(PHASES[phase], records, sketches=False)
        ]

    def levels(self, rank: str, phase: int, start_ns: int, chosen: Bools) -> Trace:
        """The median over each window of log(measured / expected); expected is what a healthy server would take."""
        chosen = chosen & (self.load.phase == phase)
        window = self.load.window[chosen]
        ratio = np.log(self.total_ns[chosen] / self.clean_ns[chosen])
        numbers, first = np.unique(window, return_index=True)
        medians = np.array([np.median(part) for part in np.split(ratio, first[1:])])
        labels = {"rank": rank, "phase": PHASES[phase].value}
        return Trace("cycles.log_ratio", labels, start_ns + numbers * WINDOW_S * S, medians)

    def collected(self, rank: str, start_ns: int) -> Trace:
        """The share of each window in which the garbage collector stopped the scheduler."""
        total = np.bincount(self.load.window, self.total_ns)
        share = np.bincount(self.load.window, self.collected_ns) / np.maximum(total, 1)
        at_ns = start_ns + np.arange(len(total)) * WINDOW_S * S
        return Trace("cycles.collected_ratio", {"rank": rank}, at_ns, np.minimum(share, 1.0))

    def use(self, node: Node, host: Host, chosen: Bools) -> Use:
        """What the scheduler did on average over the chosen cycles, in which `host` lost what it did."""
        stages = self.stages_ns[:, chosen].mean(axis=1)
        cycle_ns = float(stages.sum())
        waits_idly = not (node.spins or node.synchronous)
        return Use(
            cycle_ns=cycle_ns,
            wanted=(1 - host.in_lumps) * (1 - float(stages[_WAIT]) / cycle_ns if waits_idly else 1.0),
            computed=min(float(self.computed_ns[chosen].mean()) / cycle_ns, 1.0),
            device=min(float(self.device_ns[chosen].mean()) / cycle_ns, 1.0),
            stages=tuple((stages / cycle_ns).tolist()),
        )


def observe(
    random: np.random.Generator, node: Node, states: tuple[State, State], load: Load, windows: int, late: Bools
) -> tuple[Observed, ...]:
    """The cycles of every rank: in the first state until the change, then in the second."""
    noise = NoiseSource(node.noise, random).block(windows, load.window, load.phase)
    # Ranks wait for one another, so that the noise of one is that of all; each has a little of its own.
    factor = np.exp(noise.ratio)
    before, after = (cycles_in(node, state, load) for state in states)
    bursts = burst_ns(random, after[0])
    host = states[1].host
    whole = sum(_lumps(host).values()) or 1.0
    collecting = host.collecting / whole
    imposed = (host.held_back + host.stopped) / whole
    lost_ns = np.where(late, bursts, 0.0)
    expected_ns = float(after[0].lost_ns[late].sum())
    own = [np.exp(random.normal(0, 0.003, len(factor))) for _ in before]
    clean_ns = before[0].total_ns
    return tuple(
        _observed(old, new, factor * mine, lost_ns, load, late, clean_ns, collecting, imposed, expected_ns)
        for old, new, mine in zip(before, after, own, strict=True)
    )


def _observed(
    old: Cycles,
    new: Cycles,
    factor: Floats,
    lost_ns: Floats,
    load: Load,
    late: Bools,
    clean_ns: Floats,
    collecting: float,
    imposed: float,
    expected_ns: float,
) -> Observed:
    stages = np.where(late, new.stages_ns, old.stages_ns) * factor
    # A stop falls wherever the thread is just then; what its own code runs into, where it runs.
    anywhere = stages / stages.sum(axis=0)
    running = np.where(np.arange(len(STAGES))[:, None] == _WAIT, 0.0, stages)
    running /= running.sum(axis=0)
    stages += lost_ns * (imposed * anywhere + (1 - imposed) * running)
    computed = np.where(late, new.computed_ns, old.computed_ns) * factor + lost_ns * new.lost_computing
    return Observed(
        load=load,
        late=late,
        stages_ns=stages,
        computed_ns=computed,
        device_ns=np.where(late, new.device_ns, old.device_ns) * factor,
        clean_ns=clean_ns,
        collected_ns=lost_ns * collecting,
        losses=float(lost_ns.sum()) / expected_ns if expected_ns else 1.0,
    )


_SHARE_MAX = 0.95
_LUMPS = ("held_back", "stopped", "collecting", "reclaiming", "swapping", "on_disk", "on_network")


def _lumps(host: Host) -> dict[str, float]:
    return {name: float(getattr(host, name)) for name in _LUMPS}


def as_it_came(host: Host, losses: float) -> Host:
    """The same with what was lost in lumps as much as it happened to be in this case."""
    return host.with_shares({name: min(share * losses, _SHARE_MAX) for name, share in _lumps(host).items()})
