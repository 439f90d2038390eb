"""Series of readings: from the level that a state gives each of them to values with noise, at a collector's pace."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.attribution.evidence import Trace
from cyclewatch.detectors.phases import Floats, Integers

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
"""Name of a quantity, and labels."""

S = 10**9


@dataclass(frozen=True)
class Level:
    """Where a series stands, and how it moves around it.

    Values are `mean`, times noise with the standard deviation `spread`, plus noise of one sign with the absolute size
    `floor`. Between states it goes over with the time constant `lag_s`. One that is `counted` is a mean over the
    time since the reading before; `most` is what it cannot exceed. One that is `steady` has no noise and is told every
    30 s, and when it changes; one that is `rare` is told only where it is not zero. `whole` values are counts; what is
    `seen` is 1 with the probability `mean`, else 0. Each
    node is a little different: by `varied`, a standard deviation of logs, alike before and after.
    """

    mean: float
    pace_s: float
    spread: float = 0.03
    floor: float = 0.0
    varied: float = 0.1
    lag_s: float = 0.0
    counted: bool = True
    most: float = np.inf
    steady: bool = False
    rare: bool = False
    whole: bool = False
    seen: bool = False


Levels = dict[Key, Level]


@dataclass(frozen=True)
class Stretch:
    """The time that is looked at, and the moment of the change; UTC nanoseconds."""

    start_ns: int
    change_ns: int
    end_ns: int


_STEADY_PACE_S = 30.0
_CORRELATION = 0.5


def traces(
    random: np.random.Generator, before: Mapping[Key, Level], after: Mapping[Key, Level], stretch: Stretch
) -> Iterator[Trace]:
    """One series for each key of either side; a level that one side lacks is a series that begins or ends there."""
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        at_ns = _times(random, old, new, stretch)
        values = _values(random, old, new, at_ns, stretch)
        told = np.isfinite(values)
        if told.any():
            yield Trace(key[0], dict(key[1]), at_ns[told], values[told])


def ar1(random: np.random.Generator, count: int, correlation: float = _CORRELATION) -> Floats:
    """First-order autoregression of unit variance, shape (count,)."""
    steps = random.normal(size=count) * np.sqrt(1 - correlation**2)
    values = np.empty(count)
    state = random.normal()
    for number, step in enumerate(steps.tolist()):
        state = correlation * state + step
        values[number] = state
    return values


def _times(random: np.random.Generator, old: Level | None, new: Level | None, stretch: Stretch) -> Integers:
    """When a series is read: at its pace, which other work shifts a little; steady ones when they change, too."""
    level = old or new
    assert level is not None  # a key comes from one of the two
    pace_ns = round((_STEADY_PACE_S if level.steady else level.pace_s) * S)
    first_ns = stretch.start_ns + int(random.integers(0, pace_ns))
    at_ns = np.arange(first_ns, stretch.end_ns, pace_ns, dtype=np.int64)
    if level.steady and old is not None and new is not None and old.mean != new.mean:
        noticed_ns = stretch.change_ns + round(level.pace_s * random.uniform(0, 1) * S)
        at_ns = np.sort(np.append(at_ns, noticed_ns))
    return at_ns + random.integers(0, S // 50, len(at_ns))


def _values(
    random: np.random.Generator, old: Level | None, new: Level | None, at_ns: Integers, stretch: Stretch
) -> Floats:
    level = new or old
    assert level is not None
    old_mean, new_mean = (np.nan if side is None else side.mean for side in (old, new))
    since_s = (at_ns - stretch.change_ns) / S
    if level.rare:
        old_mean, new_mean = np.nan_to_num(old_mean), np.nan_to_num(new_mean)
    mean = np.where(since_s < 0, old_mean, new_mean)
    late = since_s >= 0
    if level.lag_s and old is not None and new is not None:
        mean[late] = new_mean + (old_mean - new_mean) * np.exp(-since_s[late] / level.lag_s)
    elif level.counted and not level.steady and old is not None and new is not None:
        # The first reading after the change still has a part of the time before it.
        mixed = late & (since_s < level.pace_s)
        mean[mixed] = old_mean + (new_mean - old_mean) * since_s[mixed] / level.pace_s
    if level.steady:
        return np.minimum(mean, level.most)
    if level.seen:
        return (random.uniform(size=len(mean)) < mean).astype(np.float64)
    varied = float(np.exp(random.normal(0, level.varied))) if level.varied else 1.0
    spread = np.where(late, level.spread, (old or level).spread)
    noisy = mean * varied * (1 + spread * ar1(random, len(mean)))
    if level.floor:
        noisy += level.floor * np.abs(ar1(random, len(mean)))
    noisy = np.clip(np.rint(noisy) if level.whole else noisy, 0, level.most)
    return np.where(noisy == 0, np.nan, noisy) if level.rare else noisy
