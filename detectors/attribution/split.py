"""Splitting the mean cycle before and after a change into its stages."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.attribution.evidence import StageMeans
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.split_part import SplitPart


def split(before: Iterable[StageMeans], after: Iterable[StageMeans]) -> tuple[SplitPart, ...]:
    """Mean stage times before and after, of the load buckets seen in both, weighted alike; empty where there is none.

    The parts sum to the mean cycle time on both sides.
    """
    old, new = _by_bucket(before), _by_bucket(after)
    common = sorted(set(old) & set(new))
    if not common:
        return ()
    weights = np.array([new[bucket][0] for bucket in common], np.float64)
    weights /= weights.sum()
    before_ns = weights @ np.stack([old[bucket][1] for bucket in common])
    after_ns = weights @ np.stack([new[bucket][1] for bucket in common])
    return tuple(
        SplitPart(stage, float(b) / 1e3, float(a) / 1e3)
        for stage, b, a in zip(STAGES, before_ns, after_ns, strict=True)
    )


def _by_bucket(means: Iterable[StageMeans]) -> dict[int, tuple[int, Floats]]:
    grouped: dict[int, list[StageMeans]] = defaultdict(list)
    for mean in means:
        grouped[mean.bucket].append(mean)
    return {
        bucket: (
            sum(one.count for one in group),
            np.average([one.stages_ns for one in group], axis=0, weights=[one.count for one in group]),
        )
        for bucket, group in grouped.items()
    }
