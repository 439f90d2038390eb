"""Whether a kernel's calls take another time than before, by their spread and by how the other kernels fared.

A profile tells of the calls of a kernel their number, mean, standard deviation and a few more figures, not the times
themselves. Welch's test alone is far too careful with them: a kernel is called with several shapes, in every step in
the same order, so that its calls differ a lot and its mean hardly does. In two runs of one training job the means of
kernels whose calls spread by 40 to 500 % of their mean agree within 1 %, a twentieth of what that spread lets expect.
How much less it is, is read off the kernels of the pair itself (an empirical null, Efron 2004), and used for
a kernel only as far as its shortest, median and mean call and their spread moved together, as they do when all its
calls take longer. Communication and copies wait for others, by chance: for them the spread is all there is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.kernels.families import Family
from cyclewatch.detectors.kernels.pairing import Calls
from cyclewatch.detectors.phases import Bools, Floats

MIN_EFFECT = math.log(1.03)
"""Smallest change of a call's time, as a log ratio, that is told."""

FALSE_ALARMS = 0.01
"""Of comparisons without any change, how many may name a kernel; all kernels of a comparison share it."""

_REPEATABILITY = 0.005
"""By how much the mean of a kernel differs between two runs however many its calls are: clocks, memory's places."""

_REPEATABILITY_ALONE = 0.01
"""The same, where too few kernels are there to read it off them."""

_REPEATABILITY_MAX = 0.02
_SCALE_MAX = 2.0
"""Where kernels differ by more, they changed, each in its own way."""

_ROUNDING = 0.29
"""Standard deviation of a uniform error of 1."""

_MIXED = 0.1
"""From this spread of its calls on, over their mean, a kernel is taken to be called with several shapes."""

_FEWEST_PEERS = 8
_FEWEST_CALLS = 8
_UPPER_QUARTILE = 1.15
"""Of the absolute value of a standard normal variable."""

_WAITING = frozenset({Family.COMMUNICATION, Family.MEMCPY})
_COARSEST_NS = 1000
_UNTOLD_FACTOR = 2.0
"""How much larger than `MIN_EFFECT` a change must be where nothing of the spread is told."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How the time of a call changed: log of after over before, and how surely.

    `p_value` is two-sided for this kernel alone, None where no spread is told; `sure` minds all kernels asked about.
    """

    log_ratio: float
    p_value: float | None
    sure: bool


@dataclass(frozen=True, slots=True)
class _Side:
    """Columns of shape (n,), NaN where not told: number, mean, standard deviation, shortest and median of the calls."""

    count: Floats
    mean: Floats
    std: Floats
    shortest: Floats
    median: Floats


def shifts(before: Sequence[Calls], after: Sequence[Calls], same_work: Bools) -> list[Shift]:
    """How the time of a call of each kernel changed.

    The log ratio of the means, with Welch's variance on the log scale, (s1/m1)^2/n1 + (s2/m2)^2/n2; p-values by
    Student's t; Bonferroni's bound over the kernels, one half of it alike, the other by their time (Genovese 2006).

    Args:
        before: n kernels.
        after: the same kernels.
        same_work: whether each was called as often a unit as before, shape (n,): only then are its shapes the same.
    """
    if not before:
        return []
    old, new = _side(before), _side(after)
    ratio = np.log(new.mean) - np.log(old.mean)
    away = np.abs(ratio - np.median(ratio))
    told = np.isfinite(old.std) & np.isfinite(new.std)
    old_variance, new_variance = (np.where(told, (one.std / one.mean) ** 2, 1.0) / one.count for one in (old, new))
    error = np.sqrt(old_variance + new_variance)
    degrees = _welch_degrees(old_variance, new_variance, old.count, new.count)
    blur = _ROUNDING * _resolution_ns([*before, *after]) * (1 / old.mean + 1 / new.mean)
    floor = np.hypot(_repeatability(away, error), blur)
    steady = same_work & np.array([one.identity.family not in _WAITING for one in before])
    steady &= np.minimum(old.count, new.count) >= _FEWEST_CALLS
    mixed = np.maximum(old.std / old.mean, new.std / new.mean) > _MIXED
    p_values = np.ones(len(ratio))
    for peers in (told & mixed, told & ~mixed, ~told):
        asked = peers & steady
        like = asked if asked.sum() >= _FEWEST_PEERS else told & steady
        known = int(like.sum()) >= _FEWEST_PEERS
        scale = min(_scale(away[like] / np.hypot(error, floor)[like]), _SCALE_MAX) if known else 1.0
        careful = np.hypot(max(scale, 1.0) * error, floor)
        p_values = np.where(peers, _two_sided(np.abs(ratio) / careful, degrees), p_values)
        if scale < 1:
            close = np.hypot(np.maximum(scale * error, np.where(told, _disagreement(old, new, ratio), 0.0)), floor)
            closely = _two_sided(np.abs(ratio) / close, np.full(len(ratio), like.sum() / 2))
            p_values = np.where(asked, np.minimum(p_values, closely), p_values)
    least = np.where(told, MIN_EFFECT, _UNTOLD_FACTOR * MIN_EFFECT)
    time = old.count * old.mean + new.count * new.mean
    allowed = FALSE_ALARMS / 2 * (time / time.sum() + 1 / len(time))
    sure = (p_values <= allowed) & (np.abs(ratio) >= least)
    return [
        Shift(one, p_value if known else None, certain)
        for one, p_value, known, certain in zip(
            ratio.tolist(), p_values.tolist(), told.tolist(), sure.tolist(), strict=True
        )
    ]


def welch(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Two-sided p-value that two samples of positive times have other means, on the log scale; None for under three."""
    if min(len(before), len(after)) < 3:  # noqa: PLR2004 (a spread of two says nothing)
        return None
    parts = [np.log(np.maximum(times, 1.0)) for times in (before, after)]
    old_variance, new_variance = (np.array([part.var(ddof=1) / len(part)]) for part in parts)
    old_count, new_count = (np.array([float(len(part))]) for part in parts)
    degrees = _welch_degrees(old_variance, new_variance, old_count, new_count)
    error = np.sqrt(old_variance + new_variance + _REPEATABILITY_ALONE**2)
    return float(_two_sided(np.abs(parts[1].mean() - parts[0].mean()) / error, degrees)[0])


def _scale(scores: Floats) -> float:
    """How much wider than standard normal these absolute scores are; a quarter of them may have changed."""
    return float(np.quantile(scores, 0.75)) / _UPPER_QUARTILE


def _repeatability(away: Floats, error: Floats) -> float:
    """By how much means of however many calls differ between these profiles, by the precise half of the kernels."""
    if len(away) < _FEWEST_PEERS:
        return _REPEATABILITY_ALONE
    return min(max(_REPEATABILITY, _scale(away[error <= np.median(error)])), _REPEATABILITY_MAX)


def _side(calls: Sequence[Calls]) -> _Side:
    columns = np.array([_without_outlier(one) for one in calls], np.float64)
    return _Side(*columns.T)


def _without_outlier(calls: Calls) -> tuple[float, float, float, float, float]:
    """Number, mean, standard deviation, shortest and median; without the longest where it is most of the spread."""
    count, mean, std = calls.calls, calls.total_ns / calls.calls, calls.std_ns
    if std is None or count < 2 or mean <= 0:  # noqa: PLR2004 (a spread needs two)
        return count, max(mean, 0.5), math.nan, math.nan, math.nan
    longest = calls.max_ns
    squares = (count - 1) * std * std
    if longest is not None and count > 4 and (longest - mean) ** 2 > squares / 2:  # noqa: PLR2004 (what is left has a spread)
        squares = max(0.0, squares - count / (count - 1) * (longest - mean) ** 2)
        mean = (count * mean - longest) / (count - 1)
        count -= 1
        std = math.sqrt(squares / (count - 1))
    shortest = math.nan if calls.min_ns is None else float(calls.min_ns)
    median = math.nan if calls.median_ns is None else float(calls.median_ns)
    return count, max(mean, 0.5), std, shortest, median


def _disagreement(old: _Side, new: _Side, ratio: Floats) -> Floats:
    """Standard deviation of the log ratios of shortest, median, mean and spread; infinite where two are not told."""
    columns = [ratio]
    with np.errstate(divide="ignore", invalid="ignore"):
        for one, other in ((old.shortest, new.shortest), (old.median, new.median), (old.std, new.std)):
            column = np.log(other / one)
            columns.append(np.where((one == 0) & (other == 0), ratio, column))
    table = np.stack(columns)
    known = np.isfinite(table)
    number = known.sum(axis=0)
    centre = np.where(known, table, 0.0).sum(axis=0) / number
    squares = (np.where(known, table - centre, 0.0) ** 2).sum(axis=0)
    enough = number >= 3  # noqa: PLR2004 (see above)
    return np.where(enough, np.sqrt(squares / np.maximum(number - 1, 1)), math.inf)


def _resolution_ns(calls: Sequence[Calls]) -> int:
    """The step in which the profiles tell times: 1,000 in old traces, which have whole microseconds."""
    return math.gcd(_COARSEST_NS, *(time for one in calls for time in (one.min_ns, one.max_ns) if time))


def _welch_degrees(variance_old: Floats, variance_new: Floats, count_old: Floats, count_new: Floats) -> Floats:
    """Degrees of freedom by Welch and Satterthwaite, shape (n,); at least 1."""
    parts = variance_old**2 / np.maximum(count_old - 1, 1) + variance_new**2 / np.maximum(count_new - 1, 1)
    whole = (variance_old + variance_new) ** 2
    return np.maximum(np.divide(whole, parts, out=np.full_like(whole, 1e9), where=parts > 0), 1.0)


def _two_sided(score: Floats, degrees: Floats) -> Floats:
    """P(|T| > score) of Student's t, shape kept; its normal score is within 1 % (Wallace 1959, eq. 4.3)."""
    normal = (8 * degrees + 1) / (8 * degrees + 3) * np.sqrt(degrees * np.log1p(score * score / degrees))
    return np.array([math.erfc(one / math.sqrt(2)) for one in normal.tolist()])
