"""Splitting the mean cycle before and after a change into its parts: stages, and kernels where profiles show them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.attribution.evidence import Evidence, StageMeans
from cyclewatch.detectors.attribution.same_load import at_same_load
from cyclewatch.detectors.kernels.changes import PhaseSplit, ProfileComparison, Unit
from cyclewatch.detectors.split_part import SplitPart

WAIT, LAUNCH, COMMUNICATION = "wait", "launch", "communication"
UNEXPLAINED = "unexplained"
GPU_WAITS = ("waiting_for_host", "gpu_idle", "outside_of_steps")
"""Parts of a profile's step in which the GPU waits for the host: of a cycle the host stages say what for."""

_LIKE_A_CYCLE = (Unit.STEP, Unit.REPLAY, Unit.CYCLE)
_FAR_OFF = math.log(2)
"""How far the step of a profile may be from the mean cycle, as a log ratio, to be taken for one of its kind."""


@dataclass(frozen=True)
class Split:
    """The parts of the mean cycle, which sum to it on both sides, and what they were made of, in words."""

    parts: tuple[SplitPart, ...]
    made_of: str


def split_of(evidence: Evidence) -> Split:
    """The split of a change, from all that is at hand.

    With profiles, the parts are the kernels by family, what the GPU did between them, and the host stages while it had
    nothing to do; what is then left of the cycle is unexplained. On a CPU the kernels run within `launch`.
    """
    stages = split(evidence.before, evidence.after)
    step = _fitting_step(evidence.kernels, stages) if stages else _main_step(evidence.kernels)
    if step is None:
        return Split(stages, "cycle records" if stages else "nothing")
    if not stages:
        return Split(step.parts, "kernel profiles")
    within = [part for part in stages if part.part == LAUNCH] if evidence.synchronous else stages
    outside = [part for part in stages if part not in within]
    return Split((*_with_kernels(within, step), *outside), "cycle records and kernel profiles")


def split(before: Iterable[StageMeans], after: Iterable[StageMeans]) -> tuple[SplitPart, ...]:
    """Mean stage times before and after, of the load buckets seen in both, weighted alike; empty where there is none.

    The parts sum to the mean cycle time on both sides.
    """
    pairs = at_same_load(before, after)
    if not pairs:
        return ()
    weights = np.array([pair.weight for pair in pairs])
    before_ns = weights @ np.stack([pair.before.stages_ns for pair in pairs])
    after_ns = weights @ np.stack([pair.after.stages_ns for pair in pairs])
    return tuple(
        SplitPart(stage, float(b) / 1e3, float(a) / 1e3)
        for stage, b, a in zip(STAGES, before_ns, after_ns, strict=True)
    )


def _main_step(comparison: ProfileComparison | None) -> PhaseSplit | None:
    return comparison.phases[0] if comparison is not None and comparison.phases else None


def _fitting_step(comparison: ProfileComparison | None, stages: Sequence[SplitPart]) -> PhaseSplit | None:
    """The phase of the profiles whose step is about as long as the mean cycle; None where none is."""
    if comparison is None or not comparison.comparable or comparison.unit not in _LIKE_A_CYCLE:
        return None
    cycle_ns = sum(part.before_us for part in stages) * 1e3, sum(part.after_us for part in stages) * 1e3

    def far(step: PhaseSplit) -> float:
        pairs = zip((step.before_ns, step.after_ns), cycle_ns, strict=True)
        return max(
            abs(math.log(of_step / of_cycle)) if min(of_step, of_cycle) > 0 else math.inf for of_step, of_cycle in pairs
        )

    nearest = min(comparison.phases, key=far, default=None)
    return nearest if nearest is not None and far(nearest) <= _FAR_OFF else None


def _with_kernels(within: Sequence[SplitPart], step: PhaseSplit) -> tuple[SplitPart, ...]:
    """The time of these stages by what the GPU did in it."""
    busy = [part for part in step.parts if part.part not in {*GPU_WAITS, UNEXPLAINED}]
    stages = [part for part in within if part.part != WAIT]
    old, new = (
        _one_side(_us(busy, side), _us(stages, side), sum(_us(within, side).values()))
        for side in ("before_us", "after_us")
    )
    return tuple(SplitPart(name, old.get(name, 0.0), new.get(name, 0.0)) for name in dict.fromkeys((*old, *new)))


def _us(parts: Iterable[SplitPart], side: str) -> dict[str, float]:
    return {part.part: float(getattr(part, side)) for part in parts}


def _one_side(busy_us: Mapping[str, float], stages_us: Mapping[str, float], whole_us: float) -> dict[str, float]:
    """Parts that sum to the whole: kernels, host stages as far as the GPU had nothing to do, and what is left."""
    idle_us = whole_us - sum(busy_us.values())
    of_host_us = sum(stages_us.values())
    covered_us = min(max(idle_us, 0.0), of_host_us)
    scale = covered_us / of_host_us if of_host_us > 0 else 0.0
    return {
        **busy_us,
        **{stage: time_us * scale for stage, time_us in stages_us.items()},
        UNEXPLAINED: idle_us - covered_us,
    }
