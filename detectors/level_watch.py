"""Watching a level as it comes: lasting shifts, with what every day brings taken into account, and slow drift."""

from dataclasses import dataclass
from typing import Any

from cyclewatch.detectors.decision import Parameters
from cyclewatch.detectors.hours import Drift, Hours
from cyclewatch.detectors.normal import normal_tail
from cyclewatch.detectors.online import Suspicion
from cyclewatch.detectors.shift_watch import Change, Kind, ShiftWatch


@dataclass(frozen=True)
class LevelStep:
    """What one level led to."""

    suspicion: Suspicion | None = None
    changes: tuple[Change, ...] = ()
    reason: str = ""


class LevelWatch:
    """Detects steps and drift of one series of levels (logs of measured over expected)."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.shifts = ShiftWatch(parameters)
        self._hours = Hours()
        self._stepped = 0.0
        """Sum of the steps that were reported: what is left of a level without them is season and drift."""

    @property
    def settled(self) -> bool:
        """Whether the baseline stands."""
        return self.shifts.settled

    def update(self, at_ns: int, level: float, doubt: tuple[float, ...] = ()) -> LevelStep:
        """Take the level of the window that starts at `at_ns` (UTC); windows must come in order of time."""
        was_settled = self.settled
        step = self.shifts.update(at_ns, level, self._usual, doubt)
        if not was_settled:
            return LevelStep(reason=step.reason)
        if step.change and not step.change.measured_again:
            self._stepped += step.change.after - step.change.before
        drift = None
        if self._hours.add(at_ns, level - self._stepped):
            drift = self._hours.drift(self._parameters.min_shift)
        changes = (step.change,) if step.change else ()
        if drift is not None:
            self._hours.rebase(drift)
            changes = (*changes, _change_of(drift, at_ns))
        return LevelStep(step.suspicion, changes, step.reason)

    def _usual(self, at_ns: int) -> float | None:
        """The level at this hour on the days before; None before there are two of them."""
        usual = self._hours.usual(at_ns)
        return None if usual is None else usual + self._stepped

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {"shifts": self.shifts.state(), "hours": self._hours.state(), "stepped": self._stepped}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        self.shifts.restore(state["shifts"])
        self._hours.restore(state["hours"])
        self._stepped = float(state["stepped"])


def _change_of(drift: Drift, at_ns: int) -> Change:
    size = abs(drift.after - drift.before)
    return Change.between(
        drift.before,
        drift.after,
        drift.error,
        started_at_ns=drift.started_at_ns,
        detected_at_ns=at_ns,
        probability=1.0 - 2 * normal_tail(size / drift.error) if drift.error else 1.0,
        windows_after=drift.points,
        kind=Kind.DRIFT,
    )
