"""The decision asked again: levels that were measured before, and what other settings would have flagged in them.

    found = replay(levels, parameters)

It drives the objects that the daemon does. A level is the log of measured over expected cycle time, expected as the
model had it then: the model is not asked again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.level_watch import Level, LevelWatch
from cyclewatch.detectors.watching.shift_watch import Kind
from cyclewatch.detectors.watching.tracking import Regression, Tracker

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


def replay(levels: Iterable[Level], parameters: Parameters, name: str = "") -> Replayed:
    """What these settings flag in the levels of the series called `name`, in order of time.

    The first windows make the baseline. Every regression is given as it stood last; one that is open at the
    end has no end. What is read is not kept, so that a series may be of any length.
    """
    watch = LevelWatch(parameters)
    trackers = {kind: Tracker(name, parameters) for kind in Kind}
    found: dict[str, Regression] = {}
    windows = judged = 0
    for level in levels:
        windows += 1
        judged += watch.settled
        for change in watch.update(level).changes:
            regression = trackers[change.kind].update(change)
            found[regression.key] = regression
    return Replayed(tuple(found.values()), windows, judged, judged * parameters.window_ns / _HOUR_NS)
