"""What sampling costs the server: cycles with it against cycles without it, in alternating stretches of time.

Two neighbouring stretches make a pair. Within a pair, cycles of the same phase and load are compared, so that neither
the traffic nor what drifts slowly on the machine is taken for a cost. The pairs, which do not depend on one another,
give the interval.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.phases import Floats, Phase, judged, load_buckets, phase_by_number, phases_of

PAIRS_MIN = 3
_CELL_CYCLES_MIN = 5
# Student's t, two-sided 95 %, by degrees of freedom from 1 on.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)


@dataclass(frozen=True)
class Stretch:
    """A stretch of time, monotonic nanoseconds."""

    began_ns: int
    ended_ns: int


@dataclass(frozen=True)
class Pair:
    """Two neighbouring stretches: with the daemon's sampling, and without."""

    sampled: Stretch
    paused: Stretch


@dataclass(frozen=True)
class Impact:
    """What sampling does to the cycles of one phase.

    `effect` is how much longer the median cycle is with sampling than without, as a ratio, and `ci` its 95 % interval;
    `cycles` is how many were compared, `median_ns` their median without sampling.
    """

    phase: Phase
    effect: float
    ci: tuple[float, float]
    pairs: int
    cycles: int
    median_ns: float

    @property
    def sentence(self) -> str:
        """The verdict, in words."""
        low, high = self.ci
        longer = "longer" if self.effect >= 0 else "shorter"
        size = f"{abs(self.effect):.1%} {longer} ({low:+.1%} to {high:+.1%})"
        return f"sampling makes {self.phase.value} cycles {size}" + (
            ", which may be chance" if low <= 0 <= high else ""
        )


def impacts(records: Records, pairs: Sequence[Pair]) -> list[Impact]:
    """The impact on every phase that at least `PAIRS_MIN` pairs have comparable cycles of.

    `records` are those of one ring, in any order; a cycle belongs to the stretch in which it ended.
    """
    usable = records[judged(records)]
    numbers = phases_of(usable)
    found = (_impact(phase_by_number(int(number)), usable[numbers == number], pairs) for number in np.unique(numbers))
    return [one for one in found if one is not None]


def _impact(phase: Phase, cycles: Records, pairs: Iterable[Pair]) -> Impact | None:
    effects: list[float] = []
    compared = 0
    paused_ns: list[Floats] = []
    for pair in pairs:
        sampled, paused = _cells(phase, _within(cycles, pair.sampled)), _cells(phase, _within(cycles, pair.paused))
        common = sampled.keys() & paused.keys()
        if common:
            weights = [min(len(sampled[bucket]), len(paused[bucket])) for bucket in common]
            logs = [math.log(np.median(sampled[bucket]) / np.median(paused[bucket])) for bucket in common]
            effects.append(float(np.average(logs, weights=weights)))
            paused_ns += [paused[bucket] for bucket in common]
            compared += sum(len(sampled[bucket]) + len(paused[bucket]) for bucket in common)
    if len(effects) < PAIRS_MIN:
        return None
    mean, margin = float(np.mean(effects)), _t(len(effects) - 1) * float(np.std(effects, ddof=1)) / len(effects) ** 0.5
    return Impact(
        phase=phase,
        effect=math.expm1(mean),
        ci=(math.expm1(mean - margin), math.expm1(mean + margin)),
        pairs=len(effects),
        cycles=compared,
        median_ns=float(np.median(np.concatenate(paused_ns))),
    )


def _within(cycles: Records, stretch: Stretch) -> Records:
    end_ns = cycles["end_ns"]
    return cycles[(end_ns >= stretch.began_ns) & (end_ns < stretch.ended_ns)]


def _cells(phase: Phase, cycles: Records) -> dict[int, Floats]:
    """Cycle times by load bucket, where there are enough of them."""
    buckets = load_buckets(phase, cycles)
    cycle_ns = cycles["cycle_ns"].astype(np.float64)
    return {
        int(bucket): cycle_ns[buckets == bucket]
        for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True)
        if count >= _CELL_CYCLES_MIN
    }


def _t(freedom: int) -> float:
    """Beyond the table, the normal quantile with the first term of its expansion: off by less than 0.01."""
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.4 / freedom
