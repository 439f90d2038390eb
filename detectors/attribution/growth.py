"""How much longer each part of the cycle became, and how much of that a cause may have added."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.collectors.records import STAGES
from cyclewatch.config.causes import Way
from cyclewatch.detectors.attribution.evidence import Evidence, StageMeans
from cyclewatch.detectors.attribution.readings import Readings
from cyclewatch.detectors.attribution.split import GPU_WAITS, UNEXPLAINED, WAIT, split, split_of
from cyclewatch.detectors.split_part import SplitPart

HOST_STAGES = tuple(stage for stage in STAGES if stage != WAIT)
WHOLE = "step"
"""The one part of a change of which no cycles are at hand."""

_SLEEPS = 1.15
"""A thread that computes at most so many times as long as its host stages last sleeps while it waits."""


@dataclass(frozen=True)
class Growth:
    """The mean cycle before and after, and its parts, in microseconds (of a change without cycles: in steps of before).

    What kernels took before is not a part of what the scheduler waited then, so that parts need not add up to the
    cycle; their growth does.

    `off_us` is how much longer the scheduler's thread was off the CPU, other than to wait for the device; None where
    that is not known.
    """

    before_us: float
    after_us: float
    parts: Mapping[str, SplitPart]
    off_us: float | None
    synchronous: bool

    @property
    def total_us(self) -> float:
        """By how much the cycle became longer."""
        return self.after_us - self.before_us

    @property
    def grown_us(self) -> float:
        """All that became longer, before what became shorter is set off against it."""
        return sum(max(part.delta_us, 0.0) for part in self.parts.values())

    def named(self, lengthens: Iterable[str]) -> tuple[str, ...]:
        """The parts that these words of causes.toml mean here; of a change without cycles, the whole step."""
        found: dict[str, None] = {}
        for word in lengthens:
            found.update(dict.fromkeys((WHOLE,) if WHOLE in self.parts else self._meant(word)))
        return tuple(name for name in found if name in self.parts)

    @property
    def host(self) -> tuple[str, ...]:
        """The parts in which the host is at work, or the GPU waits for it; on a CPU the kernels are the host's work."""
        if self.synchronous:
            return tuple(name for name in self.parts if name not in {WHOLE, UNEXPLAINED})
        return tuple(name for name in self.parts if name in HOST_STAGES or name in GPU_WAITS)

    def _meant(self, word: str) -> tuple[str, ...]:
        device = tuple(name for name in self.parts if name not in {*self.host, UNEXPLAINED})
        match word:
            case "host":
                return self.host
            case "device":
                return device
            case "communication" | "copies":
                shown = tuple(name for name in _SHOWN_BY_PROFILES[word] if name in self.parts)
                return shown or device
            case "launch" if self.synchronous:
                return self.host
            case _:
                return (word,)

    def room_us(self, names: Collection[str]) -> float:
        """By how much these parts became longer."""
        return sum(max(self.parts[name].delta_us, 0.0) for name in names)

    def way_us(self, way: Way) -> float:
        """How much longer the thread was off the CPU, or computed, in a cycle; infinite where that is not known."""
        if self.off_us is None or way is Way.EITHER:
            return math.inf
        off_us = min(max(self.off_us, 0.0), self.grown_us)
        return off_us if way is Way.BLOCKED else self.grown_us - off_us

    def share(self, time_us: float) -> float:
        """Part of the slowdown that is behind so much growth, 0 to 1."""
        return min(max(time_us / self.grown_us, 0.0), 1.0) if self.grown_us > 0 else 0.0


_ON_CPU = "host.on_cpu_ratio"
_ALWAYS = 0.97
"""Share of the time on a CPU from which on a thread never leaves it of its own will."""

_SHOWN_BY_PROFILES = {"communication": ("communication",), "copies": ("memcpy", "memset", "copying")}


def growth_of(evidence: Evidence, parts: Sequence[SplitPart], readings: Readings) -> Growth:
    """Growth of the parts of the cycle; where no cycles are at hand, of those given, or of the step as a whole.

    Host stages count as the cycle records have them, also while the device was busy: what it did then is told apart in
    its own part, by the kernels that became longer.
    """
    stages = split(evidence.before, evidence.after)
    whole = stages or parts
    if stages:
        parts = stages if evidence.synchronous else _with_device(stages, split_of(evidence).parts)
    elif not parts and evidence.slower is not None:
        whole = parts = (SplitPart(WHOLE, 1.0, evidence.slower),)
    before_us, after_us = sum(part.before_us for part in whole), sum(part.after_us for part in whole)
    named = {part.part: part for part in parts}
    growth = Growth(before_us, after_us, named, None, evidence.synchronous)
    return replace(growth, off_us=_off_us(evidence, growth, readings))


def _with_device(stages: Sequence[SplitPart], whole: Sequence[SplitPart]) -> tuple[SplitPart, ...]:
    """The stages, the wait parted as the kernels that became longer are; kept whole where none is known to have."""
    names = {part.part for part in stages}
    longer = [part for part in whole if part.part not in {*names, *GPU_WAITS, UNEXPLAINED} and part.delta_us > 0]
    wait = next(part for part in stages if part.part == WAIT)
    longer_us = sum(part.delta_us for part in longer)
    if wait.delta_us <= 0 or longer_us <= 0:
        return tuple(stages)
    host = (part for part in stages if part is not wait)
    scale = wait.delta_us / longer_us
    return (*host, *(replace(part, after_us=part.before_us + part.delta_us * scale) for part in longer))


def _off_us(evidence: Evidence, growth: Growth, readings: Readings) -> float | None:
    """By the thread's CPU time in the sampled cycles, or all the time, if it never was off the CPU before.

    A thread that spins while it waits for the device is on the CPU all the time, and one that sleeps then, only in the
    host stages. Of one that does either nothing can be told.
    """
    before_us, after_us = growth.before_us, growth.after_us
    read = next((change for _, change in readings.of(_ON_CPU)), None)
    if read is not None and read.before >= _ALWAYS:
        return (1 - read.after) * after_us - (1 - read.before) * before_us
    before, after = on_cpu(evidence.before), on_cpu(evidence.after)
    if not np.isfinite(after - before):
        return None
    if growth.synchronous or before >= _ALWAYS:
        return (1 - after) * after_us - (1 - before) * before_us
    host = [growth.parts[name] for name in growth.host]
    if before * before_us > _SLEEPS * sum(part.before_us for part in host):
        return None
    return sum(part.delta_us for part in host) - (after * after_us - before * before_us)


def on_cpu(means: Iterable[StageMeans]) -> float:
    """CPU time of the scheduler thread over cycle time, weighted by time; NaN where it was never sampled."""
    sampled = [
        (mean.on_cpu_ratio, mean.count * sum(mean.stages_ns)) for mean in means if np.isfinite(mean.on_cpu_ratio)
    ]
    weight = sum(time for _, time in sampled)
    return sum(ratio * time for ratio, time in sampled) / weight if weight else float("nan")
