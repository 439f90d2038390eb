"""The decision asked again: levels that were measured before, and what other settings would have flagged in them.

    found = replay(levels, parameters)

It drives the objects that the daemon does. A level is the log of measured over expected cycle time, expected as the
model had it then: the model is not asked again. Tails are not kept, so that changes of them are not asked again either.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cyclewatch.detectors.decision import Parameters
from cyclewatch.detectors.hours import Drift, Hours
from cyclewatch.detectors.normal import normal_tail
from cyclewatch.detectors.online import Direction
from cyclewatch.detectors.shift import Z_95
from cyclewatch.detectors.shift_watch import Change, Kind, ShiftWatch
from cyclewatch.detectors.tracking import Regression, Tracker

KINDS = (Kind.LEVEL, Kind.DRIFT)
"""What can be asked again of stored levels."""

_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Replayed:
    """What would have been flagged in one series, in order of detection.

    Of `windows` that were looked at, `judged` came after the baseline: `hours` of them, in which something could
    have been flagged.
    """

    regressions: tuple[Regression, ...]
    windows: int
    judged: int
    hours: float


def replay(series: Iterable[tuple[int, float]], parameters: Parameters, name: str = "") -> Replayed:
    """What these settings flag in the levels of a series: UTC nanoseconds and log ratio, in order of time.

    The first windows make the baseline. Every regression is given as it stood last; one that is open at the
    end has no end. What is read is not kept, so that a series may be of any length.
    """
    watch, hours = ShiftWatch(parameters), Hours()
    trackers = {kind: Tracker(name, parameters) for kind in KINDS}
    found: dict[str, Regression] = {}
    stepped = 0.0
    windows = judged = 0

    def usual(at_ns: int) -> float | None:
        level = hours.usual(at_ns)
        return None if level is None else level + stepped

    for at_ns, value in series:
        windows += 1
        if not watch.settled:
            watch.update(at_ns, value)
            continue
        judged += 1
        change = watch.update(at_ns, value, usual).change
        if change and not change.measured_again:
            stepped += change.after - change.before
        drift = hours.drift(parameters.min_shift) if hours.add(at_ns, value - stepped) else None
        if drift:
            hours.rebase(drift)
        for one in (change, drift and _change_of(drift, at_ns)):
            if one:
                regression = trackers[one.kind].update(one)
                found[regression.key] = regression
    return Replayed(tuple(found.values()), windows, judged, judged * parameters.window_ns / _HOUR_NS)


def _change_of(drift: Drift, at_ns: int) -> Change:
    difference, margin = drift.after - drift.before, Z_95 * drift.error
    return Change(
        direction=Direction.SLOWER if difference > 0 else Direction.FASTER,
        started_at_ns=drift.started_at_ns,
        detected_at_ns=at_ns,
        before=drift.before,
        after=drift.after,
        effect=math.expm1(difference),
        ci=(math.expm1(difference - margin), math.expm1(difference + margin)),
        probability=1.0 - 2 * normal_tail(abs(difference) / drift.error) if drift.error else 1.0,
        windows_after=drift.points,
        kind=Kind.DRIFT,
    )
