"""Watching levels as they come: lasting shifts, where what every day brings is none, slow drift, and slower tails."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from cyclewatch.detectors.statistics.normal import normal_tail
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.hours import Drift, Hours
from cyclewatch.detectors.watching.online import Suspicion
from cyclewatch.detectors.watching.shift_watch import Change, Kind, ShiftWatch


@dataclass(frozen=True)
class Level:
    """Measured against expected cycle time in one window: all that the decision needs.

    `log_ratio` is the median of log(measured / expected), `standard_error` its own, for `effective` independent
    cycles; `tail` is how far the 99th percentile lies above the median, NaN for too few cycles; `known` of `total`
    cycles had a load that the model has seen. `doubt`, as long in every window of a series, is what `log_ratio` may be
    wrong by: see `change_points/doubt.py`.
    """

    at_ns: int
    log_ratio: float
    standard_error: float
    effective: float
    tail: float
    known: int
    total: int
    doubt: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Taken:
    """The level that the last step led to, and from how many windows after it that is to be measured again."""

    level: float
    measure_at: int


@dataclass(frozen=True)
class LevelStep:
    """What one level led to."""

    suspicion: Suspicion | None = None
    changes: tuple[Change, ...] = ()
    reason: str = ""


class LevelWatch:
    """Detects steps and drift of one series of levels (logs of measured over expected), and steps of its tail."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.shifts = ShiftWatch(parameters)
        self._tails = ShiftWatch(replace(parameters, min_effect=parameters.min_tail_effect), Kind.TAIL)
        self._hours = Hours()
        self._stepped = 0.0
        """Sum of the steps that were reported: what is left of a level without them is season and drift."""

        self._taken: _Taken | None = None
        """None from when the level after the last step is known from as many windows as are kept."""

    @property
    def settled(self) -> bool:
        """Whether the baseline stands."""
        return self.shifts.settled

    def update(self, level: Level) -> LevelStep:
        """Take the level of a window; windows must come in order of time."""
        was_settled = self.settled
        step = self.shifts.update(level.at_ns, level.log_ratio, self._usual, level.doubt)
        if not was_settled:
            return LevelStep(reason=step.reason)
        if step.change and not step.change.measured_again:
            self._take_step(step.change)
        elif self._taken and self.shifts.windows >= self._taken.measure_at:
            self._measure_step(self._taken)
        changes = [step.change] if step.change else []
        if drift := self._drift(level):
            changes.append(drift)
        if tail := self._tails.update(level.at_ns, level.tail).change:
            changes.append(tail)
        return LevelStep(step.suspicion, tuple(changes), step.reason)

    def _take_step(self, change: Change) -> None:
        """Sum up a step from the level taken last, so that nothing stays of what that was wrong by."""
        self._stepped += change.after - (self._taken.level if self._taken else change.before)
        self._taken = _Taken(change.after, 2 * change.windows_after)

    def _measure_step(self, taken: _Taken) -> None:
        """Correct the last step: what was wrong with it, told from few windows, must not look like drift."""
        level, windows = self.shifts.measured(), self.shifts.windows
        self._stepped += level - taken.level
        enough = 2 * windows > self._parameters.history_windows
        self._taken = None if enough else _Taken(level, 2 * windows)

    def _drift(self, level: Level) -> Change | None:
        if not self._hours.add(level.at_ns, level.log_ratio - self._stepped):
            return None
        drift = self._hours.drift(self._parameters.min_shift)
        if drift is None:
            return None
        self._hours.rebase(drift)
        return _change_of(drift, level.at_ns)

    def _usual(self, at_ns: int) -> float | None:
        """The level at this hour on the days before; None before there are two of them."""
        usual = self._hours.usual(at_ns)
        return None if usual is None else usual + self._stepped

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "shifts": self.shifts.state(),
            "tails": self._tails.state(),
            "hours": self._hours.state(),
            "stepped": self._stepped,
            "taken": asdict(self._taken) if self._taken else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        self.shifts.restore(state["shifts"])
        self._tails.restore(state["tails"])
        self._hours.restore(state["hours"])
        self._stepped = float(state["stepped"])
        self._taken = _Taken(**state["taken"]) if state["taken"] else None


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
