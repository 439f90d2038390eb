"""How a reading changed: its levels before and after, how sure that is, and whether it was then that it changed."""

import math
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.attribution.evidence import Trace
from cyclewatch.detectors.phases import Bools, Floats, Integers
from cyclewatch.detectors.statistics.normal import normal_scores
from cyclewatch.detectors.statistics.robust import long_run_sigma

SLACK_NS = 30 * 10**9
"""How far the beginning of a change may be off, where its series does not tell: some windows."""

_SLACK_LEAST_NS, _SLACK_MOST_NS = 10 * 10**9, 120 * 10**9
_NEARLY_AS_LIKELY = 10.0
"""How much less the log likelihood of a place may be than that of the best: neighbours are alike, so that it counts
each window more than once."""

_SURE = 4.0
"""Standard errors from which on a difference is one: some dozens of series are looked at."""

_SURE_WITHOUT_ONE = 2.5
"""The same without the farthest value after the change, so that a single spike is no level."""

_SURE_IN_ITSELF = 1.5
"""The same in standard errors of the values after the change, which may be noisier than those before."""

_LEAST_FACTOR_ALONE = 1.05
"""By how much readings must differ that have no neighbours to tell their noise from."""

_AS_LIKELY = 0.8
"""Part of the best place's gain that a place near the change must have, so that the reading changed there."""

_NOISE_FROM, _WITHOUT_ONE_FROM, _PLACE_FROM = 3, 4, 6
"""Values from which on a side tells its noise, one may be left out, and all together tell a place."""

_HUGE = 1e18


@dataclass(frozen=True, slots=True)
class Change:
    """Means of a reading before and after, the standard error of their difference, and whether that is one.

    `at_start` tells that the reading changed when the cycle did, as far as that can be told.
    """

    before: float
    after: float
    error: float
    sure: bool
    at_start: bool

    @property
    def difference(self) -> float:
        """From before to after."""
        return self.after - self.before

    @property
    def factor(self) -> float:
        """After over before, or the other way round where it fell: at least 1; infinite from or to nothing."""
        low, high = sorted((abs(self.before), abs(self.after)))
        return high / low if low > 0 else math.inf if high > 0 else 1.0

    @property
    def score(self) -> float:
        """Difference in standard errors; infinite where a reading that never moved did."""
        if self.difference == 0:
            return 0.0
        return abs(self.difference) / self.error if self.error > 0 else math.inf


def change_of(trace: Trace, started_at_ns: int, slack_ns: int = SLACK_NS) -> Change | None:
    """What became of a reading at a change that began then, give or take `slack_ns`; None where a side is missing."""
    known = _known(trace.values)
    order = np.argsort(trace.at_ns[known], kind="stable")
    at_ns, values = trace.at_ns[known][order], trace.values[known][order]
    late = at_ns >= started_at_ns
    if not late.any() or late.all():
        return None
    pace_ns = _pace_ns(at_ns)
    before, after = values[~late], _settled(at_ns[late], values[late], started_at_ns + pace_ns)
    error = _error(before, after)
    return Change(
        before=float(before.mean()),
        after=float(after.mean()),
        error=error,
        sure=_is_sure(before, after, error),
        at_start=_changed_at(at_ns, values, started_at_ns, slack_ns + 2 * pace_ns),
    )


def begun(trace: Trace, started_at_ns: int, slack_ns: int = SLACK_NS) -> Change | None:
    """The change of a reading that is told only while it is not zero, and began to be told at the change."""
    known = _known(trace.values)
    at_ns, values = trace.at_ns[known], trace.values[known]
    if not len(values) or at_ns.min() < started_at_ns:
        return None
    at_start = int(at_ns.min()) <= started_at_ns + slack_ns + 2 * _pace_ns(at_ns)
    return Change(before=0.0, after=float(values.mean()), error=0.0, sure=bool(values.any()), at_start=at_start)


def _known(values: Floats) -> Bools:
    """Which values can be reckoned with, shape kept."""
    known: Bools = np.abs(values) < _HUGE
    return known


def _pace_ns(at_ns: Integers) -> int:
    return int(np.median(np.diff(at_ns))) if len(at_ns) > 1 else 0


def _settled(at_ns: Integers, values: Floats, settled_ns: int) -> Floats:
    """Without the values that tell in part of the time before, if others are left."""
    settled = values[at_ns >= settled_ns]
    return settled if len(settled) >= min(2, len(values)) else values


def _error(before: Floats, after: Floats) -> float:
    """Standard error of the difference of the means if nothing but the noise of the time before were in it; 0 for none.

    Bursts that the robust estimate leaves out are part of that noise.
    """
    if len(before) < _NOISE_FROM:
        return 0.0
    sigma = max(long_run_sigma(before - np.median(before)), float(before.std()))
    return sigma * math.sqrt(1 / len(before) + 1 / len(after))


def _is_sure(before: Floats, after: Floats, error: float) -> bool:
    level, difference = float(before.mean()), float(after.mean() - before.mean())
    if difference == 0:
        return False
    if len(before) < _NOISE_FROM:
        return abs(difference) >= (_LEAST_FACTOR_ALONE - 1) * abs(level)
    if abs(difference) < _SURE * error:
        return False
    if len(after) < _WITHOUT_ONE_FROM:
        return True
    away = math.copysign(1.0, difference)
    rest = np.delete(after, int(np.argmax((after - level) * away)))
    of_after = float(after.std()) / math.sqrt(len(after))
    return float(rest.mean() - level) * away > max(_SURE_WITHOUT_ONE * error, _SURE_IN_ITSELF * of_after)


def _changed_at(at_ns: Integers, values: Floats, started_at_ns: int, slack_ns: int) -> bool:
    """Whether a place near `started_at_ns` splits the ranks of the values about as well as the best place does."""
    if len(values) < _PLACE_FROM or np.ptp(values) == 0:
        return True
    gains = _gains(values)
    near = np.abs(at_ns[1:] - started_at_ns) <= slack_ns
    return bool(near.any()) and float(gains[near].max()) >= _AS_LIKELY * float(gains.max())


def slack_ns(levels: Trace | None, started_at_ns: int) -> int:
    """How far the beginning of a change may be off, by the series that changed: where a step fits it nearly as well."""
    if levels is None or len(levels.values) < _PLACE_FROM:
        return SLACK_NS
    known = _known(levels.values)
    at_ns, values = levels.at_ns[known], levels.values[known]
    if len(values) < _PLACE_FROM or np.ptp(values) == 0:
        return SLACK_NS
    gains = _gains(values)
    scores = normal_scores(values)
    left = np.maximum(float(((scores - scores.mean()) ** 2).sum()) - gains, 1e-9)
    places = at_ns[1:][len(values) / 2 * np.log(left / left.min()) <= _NEARLY_AS_LIKELY]
    return int(np.clip(np.abs(places - started_at_ns).max(), _SLACK_LEAST_NS, _SLACK_MOST_NS))


def _gains(values: Floats) -> Floats:
    """By how much a step before each value but the first lessens the squared error of the ranks, shape (n - 1,)."""
    n = len(values)
    scores = normal_scores(values)
    counts = np.arange(1, n)
    sums = np.cumsum(scores - scores.mean())[:-1]
    gains: Floats = sums**2 * n / (counts * (n - counts))
    return gains
