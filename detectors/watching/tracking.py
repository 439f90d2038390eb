"""From changes to regressions: what opens, grows, shrinks and ends."""

import hashlib
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cyclewatch.detectors.watching.decision import Parameters, left_over
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.shift_watch import Change, Kind


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
        self._improvement: Regression | None = None

    def update(self, change: Change) -> Regression:
        """What a confirmed change makes of this series' regressions; the one that is new or altered."""
        if self.open is None and change.way_back and self._improvement is not None:
            self._improvement = replace(self._improvement, ended_at_ns=change.started_at_ns)
            return self._improvement
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
        slower = change.direction is Direction.SLOWER and not change.way_back
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
        self.open, self._improvement = (regression, None) if slower else (None, regression)
        return regression

    def state(self) -> dict[str, Any]:
        """What is open and what was last noted, as JSON values."""
        return {"open": _state_of(self.open), "improvement": _state_of(self._improvement)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            KeyError: the state is not one.
        """
        self.open, self._improvement = _from_state(state["open"]), _from_state(state["improvement"])


def _state_of(regression: Regression | None) -> dict[str, Any] | None:
    if regression is None:
        return None
    values = {name: getattr(regression, name) for name in regression.__dataclass_fields__}
    return {**values, "ci": list(regression.ci)}


def _from_state(state: dict[str, Any] | None) -> Regression | None:
    if state is None:
        return None
    words = {
        "state": State(state["state"]),
        "direction": Direction(state["direction"]),
        "kind": Kind(state["kind"]),
    }
    return Regression(**{**state, **words, "ci": (state["ci"][0], state["ci"][1])})
