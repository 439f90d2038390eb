"""Cycles before and after at the same load: the load buckets that both sides have, weighted alike."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from cyclewatch.detectors.attribution.evidence import StageMeans
from cyclewatch.detectors.load.physical_bound import Load
from cyclewatch.detectors.phases import Floats


@dataclass(frozen=True)
class BucketMeans:
    """The mean cycle of a load bucket: nanoseconds by stage, shape (len(STAGES),), and its load where that is known."""

    count: int
    stages_ns: Floats
    load: Load | None


@dataclass(frozen=True)
class SameLoad:
    """One load bucket on both sides; `weight` is its part of the cycles after, of all such buckets 1 together."""

    weight: float
    before: BucketMeans
    after: BucketMeans


def at_same_load(before: Iterable[StageMeans], after: Iterable[StageMeans]) -> tuple[SameLoad, ...]:
    """The load buckets seen on both sides, in order; empty where there is none."""
    old, new = _by_bucket(before), _by_bucket(after)
    common = sorted(set(old) & set(new))
    whole = sum(new[bucket].count for bucket in common)
    return tuple(SameLoad(new[bucket].count / whole, old[bucket], new[bucket]) for bucket in common)


def _by_bucket(means: Iterable[StageMeans]) -> dict[int, BucketMeans]:
    grouped: dict[int, list[StageMeans]] = defaultdict(list)
    for mean in means:
        if mean.count > 0 and np.isfinite(mean.stages_ns).all():
            grouped[mean.bucket].append(mean)
    return {bucket: _together(group) for bucket, group in grouped.items()}


def _together(group: Sequence[StageMeans]) -> BucketMeans:
    counts = [one.count for one in group]
    loads = [astuple(one.load) for one in group if one.load is not None]
    return BucketMeans(
        count=sum(counts),
        stages_ns=np.average([one.stages_ns for one in group], axis=0, weights=counts),
        load=Load(*np.average(loads, axis=0, weights=counts).tolist()) if len(loads) == len(group) else None,
    )
