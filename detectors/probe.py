"""Is it the machine that has become slower? The same fixed work now, against its own history."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.robust import robust_sigma

HISTORY_MIN = 8
"""Fewer earlier times than this say too little of what is usual."""

_SIGMAS = 3.0
_QUANTILE = 0.95
_SPREAD_MIN = 0.02
_SLOWER_MIN = 1.02
_SAME_MAX = 1.10


class Verdict(StrEnum):
    """What a probe says of the machine."""

    MACHINE = "machine"
    """Some of the fixed work surely takes longer than usual."""

    NOT_MACHINE = "not the machine"
    """All of it surely takes no tenth longer than usual."""

    NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Comparison:
    """One work now, against its own history of `count` times; seconds.

    `factor` is how many times longer than usual (the median) it takes; `low` and `high` allow for how far its times
    usually lie apart. All four are None where the history is too short.
    """

    name: str
    labels: Mapping[str, str]
    now_s: float
    count: int
    usual_s: float | None = None
    factor: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def slower(self) -> bool:
        """Whether it surely takes longer than usual."""
        return self.low is not None and self.low > _SLOWER_MIN

    @property
    def same(self) -> bool:
        """Whether it surely takes hardly longer than usual."""
        return self.high is not None and self.high < _SAME_MAX


def compare(name: str, labels: Mapping[str, str], now_s: float, history_s: Floats) -> Comparison:
    """The time `now_s` of a work against earlier ones, shape (n,); times that are none are passed over.

    The spread of a history is three of its standard deviations, told from the median absolute deviation, or what 95 %
    of it stay within, if that is more: on a busy node a few times are far off, and one more would prove nothing.
    """
    times_s = history_s[np.isfinite(history_s) & (history_s > 0)]
    count = len(times_s)
    if count < HISTORY_MIN or not (math.isfinite(now_s) and now_s > 0):
        return Comparison(name, labels, now_s, count)
    logs = np.log(times_s)
    usual = float(np.median(logs))
    off = float(np.quantile(np.abs(logs - usual), _QUANTILE))
    spread = max(_SIGMAS * robust_sigma(logs), off, _SPREAD_MIN)
    log_factor = math.log(now_s) - usual
    return Comparison(
        name,
        labels,
        now_s,
        count,
        usual_s=math.exp(usual),
        factor=_exp(log_factor),
        low=_exp(log_factor - spread),
        high=_exp(log_factor + spread),
    )


def _exp(log: float) -> float:
    """The factor of this logarithm, the largest number there is where that is still larger."""
    return math.exp(log) if log < math.log(sys.float_info.max) else sys.float_info.max


def verdict_of(comparisons: Sequence[Comparison]) -> Verdict:
    """What all works of one probe say together."""
    if any(one.slower for one in comparisons):
        return Verdict.MACHINE
    if comparisons and all(one.same for one in comparisons):
        return Verdict.NOT_MACHINE
    return Verdict.NOT_KNOWN
