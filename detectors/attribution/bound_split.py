"""The mean cycle against the speed of light: the least that a step of its load takes, and what is above that.

The bound counts what any implementation must do (`load/physical_bound.py`), so what is above it is what could be won:
by better kernels as far as they take longer than the bound, and by the host in the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.attribution.evidence import Evidence
from cyclewatch.detectors.attribution.same_load import BucketMeans, at_same_load
from cyclewatch.detectors.kernels.families import Family
from cyclewatch.detectors.kernels.step_split import OVERLAP
from cyclewatch.detectors.load.speed_of_light import ServedModel
from cyclewatch.detectors.split_part import SplitPart

KERNELS, HOST = "kernels", "host"
_ON_THE_GPU = frozenset({*(family.value for family in Family), OVERLAP})


@dataclass(frozen=True)
class StepBound:
    """The mean cycle of one side on one GPU: what it takes at least, by `memory` or `compute`, and what it took."""

    gpu: str
    at_least_us: float
    took_us: float
    bound_by: str

    @property
    def above_us(self) -> float:
        """What it took beyond the bound."""
        return self.took_us - self.at_least_us

    @property
    def ratio(self) -> float:
        """Speed of light: the bound over the time that it took, 0 to 1."""
        return self.at_least_us / self.took_us


@dataclass(frozen=True)
class BoundSplit:
    """Both sides against their bounds.

    `above` are the parts of what is above them, and sum to it: kernels less the bound, the host's stages, and what is
    neither; empty where no profile tells the kernels.
    """

    before: StepBound
    after: StepBound
    above: tuple[SplitPart, ...]


def bound_split(
    evidence: Evidence, parts: Sequence[SplitPart], before: ServedModel | None, after: ServedModel | None
) -> BoundSplit | None:
    """How far the mean cycle is from its bound, at the load of the split whose `parts` these are.

    None where a side is not known, the cycles are no steps of a GPU, or took less than the bound: then the GPU, the
    model or the load is not what it was taken for.
    """
    pairs = at_same_load(evidence.before, evidence.after)
    if evidence.synchronous or not pairs or before is None or after is None:
        return None
    old = _bound(before, [(pair.weight, pair.before) for pair in pairs])
    new = _bound(after, [(pair.weight, pair.after) for pair in pairs])
    if old is None or new is None:
        return None
    return BoundSplit(old, new, _above(parts, old, new))


def _bound(served: ServedModel, weighted: Iterable[tuple[float, BucketMeans]]) -> StepBound | None:
    by = {"memory": 0.0, "compute": 0.0}
    took_us = 0.0
    for weight, means in weighted:
        if means.load is None:
            return None
        bound = served.bound(means.load)
        by[bound.bound_by] += weight * bound.seconds * 1e6
        took_us += weight * float(means.stages_ns.sum()) / 1e3
    at_least_us = sum(by.values())
    if not 0 < at_least_us <= took_us:
        return None
    return StepBound(served.gpu_name, at_least_us, took_us, max(by, key=lambda name: by[name]))


def _above(parts: Sequence[SplitPart], before: StepBound, after: StepBound) -> tuple[SplitPart, ...]:
    kernels = [part for part in parts if part.part in _ON_THE_GPU]
    if not kernels:
        return ()
    host = [part for part in parts if part.part in STAGES]
    of_kernels, of_host = _sum(KERNELS, kernels), _sum(HOST, host)
    beyond = SplitPart(KERNELS, of_kernels.before_us - before.at_least_us, of_kernels.after_us - after.at_least_us)
    return (beyond, of_host, *(part for part in parts if part not in kernels and part not in host))


def _sum(name: str, parts: Sequence[SplitPart]) -> SplitPart:
    return SplitPart(name, sum(part.before_us for part in parts), sum(part.after_us for part in parts))
