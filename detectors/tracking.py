"""From changes to regressions: what opens, grows, shrinks and ends."""

import hashlib
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cyclewatch.detectors.decision import Parameters, left_over
from cyclewatch.detectors.online import Direction
from cyclewatch.detectors.shift_watch import Change, Kind


class State(StrEnum):
    """Where a regression stands."""

    OPEN = "open"
    RESOLVED = "resolved"
    NOTED = "noted"
    """An improvement: kept, never open."""


@dataclass(frozen=True)
class Regression:
    """A lasting change of one kind, of one phase of one rank. Times are UTC nanoseconds; `base` and `level` are logs.

    `key` is stable: the same change found again (after a restart) has the same one.
    """

    key: str
    state: State
    direction: Direction
    kind: Kind
    started_at_ns: int
    detected_at_ns: int
    ended_at_ns: int | None
    base: float
    level: float
    effect: float
    ci: tuple[float, float]
    probability: float


class Tracker:
    """Keeps the open regression of one series."""

    def __init__(self, series: str, parameters: Parameters) -> None:
        self._series = series
        self._parameters = parameters
        self.open: Regression | None = None

    def update(self, change: Change) -> Regression:
        """What a confirmed change makes of this series' regressions; the one that is new or altered."""
        if self.open is None:
            return self._begin(change)
        if change.measured_again:
            self.open = replace(self.open, level=change.after, effect=change.effect, ci=change.ci)
            return self.open
        left = change.after - self.open.base
        if not left_over(change.after, self.open.base, self.open.level, self._parameters):
            ended = replace(self.open, state=State.RESOLVED, ended_at_ns=change.started_at_ns)
            self.open = None
            return ended
        margin = (math.log1p(change.ci[1]) - math.log1p(change.ci[0])) / 2
        self.open = replace(
            self.open,
            level=change.after,
            effect=math.expm1(left),
            ci=(math.expm1(left - margin), math.expm1(left + margin)),
            probability=max(self.open.probability, change.probability),
        )
        return self.open

    def _begin(self, change: Change) -> Regression:
        slower = change.direction is Direction.SLOWER
        text = f"{self._series}|{change.kind}|{change.direction}|{change.started_at_ns // 10**9}"
        regression = Regression(
            key=hashlib.sha256(text.encode()).hexdigest()[:16],
            state=State.OPEN if slower else State.NOTED,
            direction=change.direction,
            kind=change.kind,
            started_at_ns=change.started_at_ns,
            detected_at_ns=change.detected_at_ns,
            ended_at_ns=None,
            base=change.before,
            level=change.after,
            effect=change.effect,
            ci=change.ci,
            probability=change.probability,
        )
        self.open = regression if slower else None
        return regression

    def state(self) -> dict[str, Any] | None:
        """The open regression, as JSON values."""
        if self.open is None:
            return None
        return {
            **{name: getattr(self.open, name) for name in self.open.__dataclass_fields__},
            "ci": list(self.open.ci),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from a saved state."""
        if state is None:
            self.open = None
            return
        self.open = Regression(
            **{
                **state,
                "state": State(state["state"]),
                "direction": Direction(state["direction"]),
                "kind": Kind(state["kind"]),
                "ci": (state["ci"][0], state["ci"][1]),
            }
        )
