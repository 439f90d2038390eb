"""What a series did hour by hour over the last two weeks: its daily season, and drift too slow to be a step.

    hours = Hours()
    for at_ns, level in windows:
        if hours.add(at_ns, level) and (drift := hours.drift(min_shift)):
            report(drift)
            hours.rebase(drift)

Levels are logs of measured over expected, less the level that was taken as normal. That normal must move with reported
steps only: if it followed the season or the drift, neither would be left to be seen here.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from cyclewatch.detectors.phases import Floats, Integers
from cyclewatch.detectors.statistics import autoregression
from cyclewatch.detectors.statistics.robust import clip_outliers, robust_sigma
from cyclewatch.detectors.watching.decision import GONE_RATIO
from cyclewatch.detectors.watching.order import is_repeated
from cyclewatch.detectors.watching.saved import check_version

VERSION = 1

HOUR_NS = 3600 * 10**9
_DAY_HOURS = 24
_KEPT_HOURS = 14 * _DAY_HOURS
_WINDOWS_MIN = 60
"""Fewest windows of an hour that counts."""

_VALUES_MAX = 720
"""Most values of an hour that are kept for its median: every window of 5 s; of shorter ones, every second or fourth."""

_DECIMALS = 6
"""Values are kept to a millionth: far below any effect, and the saved state is half as long."""

_SEASON_DAYS_MIN = 2
_DAY_HOURS_MIN = 18
"""Fewest counted hours that make a day."""

_NOISE_HOURS_MIN = 3 * _DAY_HOURS
"""Fewest counted hours from which noise can be told from season and trend."""

_SURE_ERRORS = 4.0


@dataclass(frozen=True)
class Drift:
    """A slow change against the reference, in either direction. Levels are logs, times UTC nanoseconds.

    `error` is the standard error of `after - before`, and `points` how many hours of day both are the mean of.
    `ended` tells that what had drifted up is back. `reference` is the level from which the next drift counts, once
    this one has been taken in by `Hours.rebase`.
    """

    before: float
    after: float
    error: float
    started_at_ns: int
    points: int
    ended: bool
    reference: float


class Hours:
    """Levels of the last 14 days by hour, and the day that later ones are compared with.

    That day is pinned: the first 24 hours in a row of which at least 18 counted. Days are compared hour of day by hour
    of day, so that no daily season looks like a drift, even where hours are missing. It moves by `rebase` only.
    """

    def __init__(self) -> None:
        self._hours: deque[tuple[int, float]] = deque(maxlen=_KEPT_HOURS)
        """Counted hours, as hours since 1970 and level, in order of time."""
        self._hour = -1
        self._values: list[float] = []
        self._seen = 0
        self._every = 1
        self._last_ns = -1
        self._pinned: dict[int, float] = {}
        """Levels of the reference day by hour of day (UTC); empty until there is one."""
        self._level = 0.0
        self._origin: float | None = None
        self._since_hour = 0

    def __len__(self) -> int:
        """Counted hours that are kept."""
        return len(self._hours)

    def add(self, at_ns: int, value: float) -> bool:
        """Take the level of the window that starts at `at_ns` (UTC); whether this closed an hour that counts.

        What is repeated, or not finite, is left out.
        """
        if is_repeated(at_ns, self._last_ns) or not math.isfinite(value):
            return False
        hour = at_ns // HOUR_NS
        if at_ns < self._last_ns:
            self._put_back(hour)
        self._last_ns = at_ns
        closed = hour != self._hour and self._close()
        self._hour = hour
        if len(self._values) == _VALUES_MAX:
            self._values = self._values[::2]
            self._every *= 2
        if self._seen % self._every == 0:
            self._values.append(round(value, _DECIMALS))
        self._seen += 1
        return closed

    def _close(self) -> bool:
        """Keep the hour under way if it counts: its median, which no spikes move."""
        counts = self._seen >= _WINDOWS_MIN
        if counts:
            self._hours.append((self._hour, float(np.median(self._values))))
            if not self._pinned:
                self._pin()
        self._values, self._seen, self._every = [], 0, 1
        return counts

    def _put_back(self, hour: int) -> None:
        """Forget what a clock that was ahead took for this hour and later ones."""
        while self._hours and self._hours[-1][0] >= hour:
            self._hours.pop()
        self._values, self._seen, self._every = [], 0, 1
        self._since_hour = min(self._since_hour, hour)

    def _pin(self) -> None:
        """Take the last day as the reference if it is one."""
        last = self._hours[-1][0]
        day = self._day(0)
        if len(day) < _DAY_HOURS_MIN or self._hours[0][0] > last + 1 - _DAY_HOURS:
            return
        self._pinned = day
        self._level = float(np.mean(list(day.values())))
        self._since_hour = last + 1

    def _day(self, since_hour: int) -> dict[int, float]:
        """Levels by hour of day of the last 24 hours, none before `since_hour`."""
        since = max(since_hour, self._hours[-1][0] + 1 - _DAY_HOURS)
        return {hour % _DAY_HOURS: level for hour, level in self._hours if hour >= since}

    def usual(self, at_ns: int) -> float | None:
        """The level at this hour of day (UTC): the median of the days before; None with fewer than two.

        Where users keep to a clock that changes for summer, it is an hour off until half of the days kept lie behind
        the change: at most 0.8 % for a daily wave of 3 %. It lags behind a drift by half of the days kept: by 7 % at
        1 % a day. A change of summer time does not touch `drift`, which compares whole days.
        """
        now = at_ns // HOUR_NS
        levels = [level for hour, level in self._hours if hour < now and (now - hour) % _DAY_HOURS == 0]
        return float(np.median(levels)) if len(levels) >= _SEASON_DAYS_MIN else None

    def drift(self, min_shift: float) -> Drift | None:
        """How the last day differs from the reference, where surely by at least `min_shift` (a difference of logs).

        To be asked when an hour was closed. While an upward drift is open, it also tells its end: less than half of
        `min_shift` is left. Until `rebase`, every call compares with the same reference.
        """
        if not self._pinned or len(self._hours) < _NOISE_HOURS_MIN:
            return None
        day = self._day(self._since_hour)
        common = [hour for hour in day if hour in self._pinned]
        if len(common) < _DAY_HOURS_MIN:
            return None
        difference = float(np.mean([day[hour] - self._pinned[hour] for hour in common]))
        after = float(np.mean(list(self._pinned.values()))) + difference
        gone = self._origin is not None and after - self._origin < min_shift / 2
        if not gone and abs(after - self._level) < min_shift:
            return None
        error = self._noise() * math.sqrt(2 / len(common))
        if not gone and abs(after - self._level) < _SURE_ERRORS * error:
            return None
        ended = self._origin is not None and after - self._origin < max(
            min_shift, GONE_RATIO * (self._level - self._origin)
        )
        started_hour = self._hours[-1][0] + 1 - _DAY_HOURS if ended else self._since_hour
        return Drift(
            before=self._level,
            after=after,
            error=error,
            started_at_ns=max(started_hour, self._since_hour) * HOUR_NS,
            points=len(common),
            ended=ended,
            reference=self._origin if gone and self._origin is not None else after,
        )

    def rebase(self, drift: Drift) -> None:
        """Take in a drift that was reported: the next one counts from here, with a day of its own."""
        if drift.ended:
            self._origin = None
        elif self._origin is None and drift.after > drift.before:
            self._origin = drift.before
        self._level = drift.reference
        self._since_hour = self._hours[-1][0] + 1

    def _noise(self) -> float:
        """Long-run standard deviation of hours around a straight line and their hours of day.

        In few hours wandering looks like trend and season. What is left is too small by a third for three days, and
        by a seventh for a week (AR(1) 0.8, simulated); a day divided by their number makes up for that.
        """
        hours = np.array([hour for hour, _ in self._hours])
        levels = np.array([level for _, level in self._hours])
        times = _less_hours_of_day((hours - hours[0]).astype(np.float64), hours)
        levels = _less_hours_of_day(levels, hours)
        rest = levels - times * float(times @ levels) / max(float(times @ times), 1.0)
        freedom = len(rest) - len(np.unique(hours % _DAY_HOURS)) - 1
        rest = clip_outliers(rest, 0.0, robust_sigma(rest))
        phi = autoregression.fit_best(rest)
        errors = autoregression.whiten(rest, phi)
        variance = float(errors @ errors) / len(errors) * len(rest) / freedom
        return math.sqrt(variance) / (1 - float(phi.sum())) * (1 + _DAY_HOURS / len(rest))

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "hours": [list(entry) for entry in self._hours],
            "hour": self._hour,
            "values": list(self._values),
            "seen": self._seen,
            "every": self._every,
            "last_ns": self._last_ns,
            "pinned": [list(entry) for entry in self._pinned.items()],
            "level": self._level,
            "origin": self._origin,
            "since_hour": self._since_hour,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        check_version("state of hours", state["version"], VERSION)
        self._hours.clear()
        self._hours.extend((int(hour), float(level)) for hour, level in state["hours"])
        self._hour = int(state["hour"])
        self._values = [float(value) for value in state["values"]]
        self._seen = int(state["seen"])
        self._every = int(state["every"])
        self._last_ns = int(state["last_ns"])
        self._pinned = {int(hour): float(level) for hour, level in state["pinned"]}
        self._level = float(state["level"])
        self._origin = None if state["origin"] is None else float(state["origin"])
        self._since_hour = int(state["since_hour"])


def _less_hours_of_day(values: Floats, hours: Integers) -> Floats:
    """`values`, shape (n,), less the mean of those at the same hour of day."""
    of_day = hours % _DAY_HOURS
    counts = np.bincount(of_day, minlength=_DAY_HOURS)
    means = np.bincount(of_day, values, _DAY_HOURS) / np.maximum(counts, 1)
    rest: Floats = values - means[of_day]
    return rest
