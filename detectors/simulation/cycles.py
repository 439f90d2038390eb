"""Putting load, cost, noise and slowdowns together into records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cyclewatch.collectors.records import RECORD, STAGES, CycleFlag, ForwardMode, RecordKind, Records
from cyclewatch.detectors.phases import Floats, Integers, Phase
from cyclewatch.detectors.simulation.noise import Disturbances, Noise, NoiseSource
from cyclewatch.detectors.simulation.server import Server
from cyclewatch.detectors.simulation.slowdowns import Shape, Slowdown
from cyclewatch.detectors.simulation.traffic import BESIDE, EXTEND, PHASES, Load, LoadSource, Traffic

_BLOCK_WINDOWS = 120
"""Windows made in one go. Blocks are always made whole, so that a longer run begins with the shorter one."""

_CPU_SAMPLED_EVERY = 16
_CYCLE_MIN_NS = 1000
_WAIT, _RESULT = STAGES.index("wait"), STAGES.index("result")


@dataclass(frozen=True)
class Truth:
    """What is behind the records of one window.

    `effects` are the ratios by which slowdowns made the cycles of each phase longer, tails apart; `tails` the same of
    the cycles in a tail. `noise` is the level (a log) of the window's noise by phase. `clean_ns`, shape (n,), is the
    cost of each record without noise or slowdown, 0 for garbage collections. `load` is against the mean, `cache_hit`
    the mean ratio of prompts that was cached.
    """

    window: int
    effects: Mapping[Phase, float]
    tails: Mapping[Phase, float]
    noise: Mapping[Phase, float]
    clean_ns: Floats
    load: float
    cache_hit: float


class SimulatedWindow(NamedTuple):
    """One window: when it starts on the server's clock, its records, and what is behind them."""

    start_ns: int
    records: Records
    truth: Truth


@dataclass(frozen=True)
class Simulation:
    """A simulated server. Equal ones give equal cycles, and only slowdowns differ where only slowdowns do."""

    seed: int
    server: Server = field(default_factory=Server)
    traffic: Traffic = field(default_factory=Traffic)
    noise: Noise = field(default_factory=Noise)
    slowdowns: tuple[Slowdown, ...] = ()
    window_ns: int = 5 * 10**9

    def windows(self, count: int) -> Iterator[SimulatedWindow]:
        """The first `count` windows, the first of which starts at 0."""
        of_load, of_noise, of_tails = map(np.random.default_rng, np.random.SeedSequence(self.seed).spawn(3))
        loads, noises = LoadSource(self.traffic, of_load), NoiseSource(self.noise, of_noise)
        sequence = 1
        for first in range(0, count, _BLOCK_WINDOWS):
            load = loads.block(_BLOCK_WINDOWS)
            noise = noises.block(_BLOCK_WINDOWS, load.window, load.phase)
            numbers = first + np.arange(_BLOCK_WINDOWS)
            in_tail = of_tails.uniform(size=len(load.window))
            block = self._block(load, noise, numbers, in_tail, sequence)
            sequence += len(block.records)
            yield from block.windows(min(_BLOCK_WINDOWS, count - first))

    def _block(self, load: Load, noise: Disturbances, numbers: Integers, in_tail: Floats, sequence: int) -> "_Block":
        clean = self.server.stages_ns(load)
        clean_ns = clean.sum(axis=0)
        grown, blocked_ns = self._grown(load, clean, clean_ns, numbers, in_tail)
        factor = np.exp(noise.ratio)
        stages = (grown * factor).astype(np.int64)
        stages[_RESULT] += noise.collected_ns
        stages[_WAIT] += np.maximum(_CYCLE_MIN_NS - stages.sum(axis=0), 0)
        cycle_ns = stages.sum(axis=0)
        records = np.zeros(len(cycle_ns), RECORD)
        records["kind"] = RecordKind.CYCLE
        records["cycle_ns"] = cycle_ns
        for stage, values in zip(STAGES, stages, strict=True):
            records[f"{stage}_ns"] = values
        computed = cycle_ns - stages[_WAIT] - (blocked_ns * factor).astype(np.int64)
        sampled = np.arange(len(records)) % _CPU_SAMPLED_EVERY == 0
        records["on_cpu_ns"] = np.where(sampled, computed, -1)
        extend = load.phase == EXTEND
        records["mode"] = np.where(extend, ForwardMode.EXTEND, ForwardMode.DECODE)
        records["launched_mode"] = np.where(load.phase == BESIDE, ForwardMode.EXTEND, ForwardMode.DECODE)
        records["flags"] = np.where(extend, 0, CycleFlag.CUDA_GRAPH) | CycleFlag.OVERLAP
        for name in ("batch_size", "new_tokens", "kv_tokens", "running"):
            records[name] = getattr(load, name)
        records["end_ns"] = self._ends(load, cycle_ns, numbers)
        records, window, clean_ns = _with_collections(records, load.window, clean_ns, noise)
        records["sequence"] = records["sequence_end"] = np.arange(sequence, sequence + len(records), dtype=np.uint64)
        effects, tails = self._effects(numbers)
        return _Block(records, window, clean_ns, numbers, effects, tails, noise.level, load, self.window_ns)

    def _grown(
        self, load: Load, clean: Floats, clean_ns: Floats, numbers: Integers, in_tail: Floats
    ) -> tuple[Floats, Floats]:
        """Stages with what slowdowns add, shape (6, n), and what of it the scheduler thread spent off the CPU."""
        grown, blocked_ns = clean.copy(), np.zeros(len(clean_ns))
        for slowdown in self.slowdowns:
            added_ns = slowdown.strength(numbers)[load.window] * clean_ns
            if slowdown.phase is not None:
                added_ns *= load.phase == PHASES.index(slowdown.phase)
            if slowdown.shape is Shape.TAIL:
                added_ns *= in_tail < slowdown.on
            grown[STAGES.index(slowdown.stage)] += added_ns
            if slowdown.stage != "wait" and not slowdown.on_cpu:
                blocked_ns += added_ns
        return grown, blocked_ns

    def _effects(self, numbers: Integers) -> tuple[Floats, Floats]:
        """Ratios added in each window and phase by slowdowns, and by tails, shape (windows, phases)."""
        effects = np.zeros((2, len(numbers), len(PHASES)))
        for slowdown in self.slowdowns:
            for column, phase in enumerate(PHASES):
                if slowdown.phase in (None, phase):
                    effects[int(slowdown.shape is Shape.TAIL), :, column] += slowdown.strength(numbers)
        return effects[0], effects[1]

    def _ends(self, load: Load, cycle_ns: Integers, numbers: Integers) -> Integers:
        """When cycles end, shape (n,): spread over their window, longer ones further apart."""
        total = np.bincount(load.window, cycle_ns, len(numbers))
        until = np.cumsum(cycle_ns)
        before = (np.cumsum(total) - total)[load.window]
        part = (until - before) / total[load.window]
        ends: Integers = numbers[load.window] * self.window_ns + (part * (self.window_ns - 1)).astype(np.int64)
        return ends


@dataclass(frozen=True)
class _Block:
    """Records of some windows, shape (n,), with their window, cost, and the truth by window and phase."""

    records: Records
    window: Integers
    clean_ns: Floats
    numbers: Integers
    effects: Floats
    tails: Floats
    levels: Floats
    load: Load
    window_ns: int

    def windows(self, count: int) -> Iterator[SimulatedWindow]:
        """The first `count` windows."""
        bounds = np.searchsorted(self.window, np.arange(count + 1)).tolist()
        effects, tails, levels = self.effects.tolist(), self.tails.tolist(), self.levels.tolist()
        for place in range(count):
            chosen = slice(bounds[place], bounds[place + 1])
            number = int(self.numbers[place])
            yield SimulatedWindow(
                number * self.window_ns,
                self.records[chosen],
                Truth(
                    window=number,
                    effects=dict(zip(PHASES, effects[place], strict=True)),
                    tails=dict(zip(PHASES, tails[place], strict=True)),
                    noise=dict(zip(PHASES, levels[place], strict=True)),
                    clean_ns=self.clean_ns[chosen],
                    load=float(self.load.level[place]),
                    cache_hit=float(self.load.cache_hit[place]),
                ),
            )


def _with_collections(
    records: Records, window: Integers, clean_ns: Floats, noise: Disturbances
) -> tuple[Records, Integers, Floats]:
    """Records, windows and costs with a record for each garbage collection before the cycle that it stretched."""
    collected = noise.collected_ns > 0
    if not collected.any():
        return records, window, clean_ns
    origin = np.repeat(np.arange(len(records)), 1 + collected)
    is_collection = np.zeros(len(origin), np.bool_)
    is_collection[:-1] = origin[1:] == origin[:-1]
    grown = records[origin]
    cycle = origin[is_collection]
    collections = np.zeros(len(cycle), RECORD)
    collections["kind"] = RecordKind.GARBAGE_COLLECTION
    collections["mode"] = noise.generation[cycle]
    collections["cycle_ns"] = noise.collected_ns[cycle]
    collections["on_cpu_ns"] = -1
    # Within its cycle: after the end of the cycle before, which may be that of another window.
    ends = records["end_ns"].astype(np.int64)
    before = np.where(cycle > 0, ends[cycle - 1], 0)
    before = np.where((cycle > 0) & (window[cycle - 1] == window[cycle]), before, ends[cycle] - 1000)
    collections["end_ns"] = ends[cycle] - np.maximum((ends[cycle] - before) // 2, 1)
    grown[is_collection] = collections
    return grown, window[origin], np.where(is_collection, 0.0, clean_ns[origin])
