"""Timelines of incidents, made up."""

import math
from dataclasses import replace
from typing import Any

from cyclewatch.daemon.store.incident_timeline import IncidentTimeline
from cyclewatch.daemon.store.timeline import CyclePoint

SECOND = 10**9
MINUTE = 60 * SECOND
STARTED_NS = 1_800_000_000 * SECOND  # 2027-01-15 08:00 UTC
USUAL_NS = 22_400_000.0


def point(at_ns: int, p50_ns: float, expected_ns: float = USUAL_NS, **changes: float) -> CyclePoint:
    """The cycles of one step."""
    made = CyclePoint(at_ns, 100, p50_ns * 1.1, p50_ns, p50_ns * 2, p50_ns * 3, math.log(p50_ns / expected_ns))
    return replace(made, **changes)  # type: ignore[arg-type]


def points(from_ns: int, to_ns: int, step_ns: int = 24 * SECOND, slower: float = 1.22) -> tuple[CyclePoint, ...]:
    """Decodes that become slower at `STARTED_NS`, beside small waves."""
    found = []
    for number, at_ns in enumerate(range(from_ns, to_ns, step_ns)):
        factor = slower if at_ns >= STARTED_NS else 1.0
        found.append(point(at_ns, USUAL_NS * factor * (1 + 0.01 * math.sin(2.1 * number))))
    return tuple(found)


TIMELINE = IncidentTimeline(
    target="127.0.0.1:30000",
    phase="decode",
    kind="level",
    from_ns=STARTED_NS - 15 * MINUTE,
    to_ns=STARTED_NS + 2 * MINUTE,
    started_at_ns=STARTED_NS,
    ended_at_ns=None,
    points=points(STARTED_NS - 15 * MINUTE, STARTED_NS + 2 * MINUTE),
)


def timeline(**changes: Any) -> IncidentTimeline:
    """One that became 22 % slower two minutes ago."""
    return replace(TIMELINE, **changes)
