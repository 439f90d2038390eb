"""What a picture shows of a timeline: curves in one unit, and the same in words. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from cyclewatch.daemon.alerts.shorten import shortened
from cyclewatch.daemon.store.incident_timeline import IncidentTimeline
from cyclewatch.daemon.store.timeline import CyclePoint
from cyclewatch.detectors.watching.shift_watch import Kind

_GAP = 3
"""Where points lie further apart than this many times their usual distance, nothing was measured between them."""

_HEADING_MAX = 200
_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))

Curve = tuple[tuple[int, float], ...]
"""Instants (UTC nanoseconds) and cycle times, in the unit of the picture."""


@dataclass(frozen=True)
class Curves:
    """Cycle times of a timeline in `unit`; each curve in the parts between which nothing was measured.

    `expected` is what the load explains; it is empty where that is not known. `what` is what was taken of the cycles.
    """

    unit: str
    what: str
    measured: tuple[Curve, ...]
    expected: tuple[Curve, ...]

    @property
    def values(self) -> list[float]:
        """All cycle times of both."""
        return [value for curve in (*self.measured, *self.expected) for _, value in curve]


def curves_of(timeline: IncidentTimeline) -> Curves | None:
    """The curves of a timeline; None where there are less than two points."""
    tail = timeline.kind == Kind.TAIL
    measured = _times((one.start_ns, one.p99_ns if tail else one.p50_ns) for one in timeline.points)
    if len(measured) < 2:  # noqa: PLR2004 (a curve has two ends)
        return None
    # What is expected of the slowest cycles is not stored.
    expected = () if tail else _times((one.start_ns, _expected_ns(one)) for one in timeline.points)
    longest_ns = max(time_ns for _, time_ns in measured + expected)
    factor, unit = next((one for one in _UNITS if longest_ns >= one[0]), _UNITS[-1])
    gap_ns = _GAP * median(later - earlier for (earlier, _), (later, _) in pairwise(measured))
    return Curves(
        unit,
        "99th percentile of the cycle time" if tail else "median cycle time",
        tuple(_parts(measured, gap_ns, factor)),
        tuple(_parts(expected, gap_ns, factor)),
    )


def alternative_text(timeline: IncidentTimeline, curves: Curves) -> str:
    """What the picture shows, for those who cannot see it: one or two sentences of less than 400 characters."""
    times = [point for curve in curves.measured for point in curve]
    until_ns = timeline.to_ns if timeline.ended_at_ns is None else timeline.ended_at_ns
    before = [value for at_ns, value in times if at_ns < timeline.started_at_ns]
    slower = [value for at_ns, value in times if timeline.started_at_ns <= at_ns < until_ns]
    after = [value for at_ns, value in times if at_ns >= until_ns]
    began = clock_time(timeline.started_at_ns)
    told = [f"{_about(before, curves.unit)} before {began} UTC", f"{_about(slower, curves.unit)} since then"]
    if timeline.ended_at_ns is not None:
        told.append(f"{_about(after, curves.unit)} after {clock_time(timeline.ended_at_ns)} UTC")
    heading = f"{curves.what[0].upper()}{curves.what[1:]} of {timeline.phase} on {timeline.target}"
    return f"{shortened(heading, _HEADING_MAX)}: {', '.join(told)}."


def clock_time(at_ns: int) -> str:
    """Hours and minutes of an instant, in UTC."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%H:%M")


def _times(points: Iterable[tuple[int, float]]) -> Curve:
    """Those that are times; nothing was judged where one is not."""
    return tuple((at_ns, time_ns) for at_ns, time_ns in points if math.isfinite(time_ns) and time_ns > 0)


def _expected_ns(point: CyclePoint) -> float:
    try:
        return point.p50_ns / math.exp(point.log_ratio)
    except (OverflowError, ZeroDivisionError):
        return math.nan


def _parts(points: Curve, gap_ns: float, factor: int) -> Iterator[Curve]:
    """The curve in a unit of `factor` nanoseconds, cut where more than `gap_ns` lie between two points."""
    begin = 0
    for end in range(1, len(points) + 1):
        if end == len(points) or points[end][0] - points[end - 1][0] > gap_ns:
            yield tuple((at_ns, time_ns / factor) for at_ns, time_ns in points[begin:end])
            begin = end


def _about(values: Sequence[float], unit: str) -> str:
    return f"about {median(values):.3g} {unit}" if values else "not measured"
