"""Whether all kernels became slower together, which is no kernel's doing."""

import math
from collections.abc import Sequence

import numpy as np

from cyclewatch.detectors.kernels.changes import KernelChange, Uniform, Verdict
from cyclewatch.detectors.kernels.pace import middle, quantile
from cyclewatch.detectors.kernels.significance import MIN_EFFECT
from cyclewatch.detectors.statistics.robust import robust_sigma

_FEWEST = 5
_TOGETHER = 0.9
_SIGMAS = 4.0


def uniform_change(changes: Sequence[KernelChange], *, sure_ones: bool) -> Uniform | None:
    """The common factor of the times of a call, where nine tenths of the time changed in one direction by it.

    The median log ratio must also be far from what its scatter over the kernels allows. Where something else can move
    all means together, only kernels that are surely slower or faster count (`sure_ones`).
    """
    both = [
        (
            math.log1p(change.effect),
            change.before.ns + change.after.ns,
            not sure_ones or change.verdict in {Verdict.SLOWER, Verdict.FASTER},
        )
        for change in changes
        if change.before and change.after and change.effect is not None
    ]
    if len(both) < _FEWEST:
        return None
    ratios, weights, counts = np.array(both, np.float64).T
    weights = weights / max(weights.sum(), 1e-9)
    common = middle(ratios, weights)
    moved = weights[(np.sign(common) * ratios >= MIN_EFFECT) & (counts > 0)].sum()
    error = 1.2533 * robust_sigma(ratios) / math.sqrt(len(ratios))  # of a median of normal values
    if abs(common) < MIN_EFFECT or moved < _TOGETHER or abs(common) < _SIGMAS * error:
        return None
    low, high = quantile(ratios, weights, 0.1), -quantile(-ratios, weights, 0.1)
    return Uniform(math.exp(common), math.exp(low), math.exp(high), len(ratios))
