"""Watching one phase of one rank: from cycles and their load to levels, and from levels to changes.

`SeriesDetector.update` takes the cycles of one window and gives what follows from them. All state is in plain values
that can be saved and restored, so that a restarted daemon comes to the same verdicts.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.decision import Parameters
from cyclewatch.detectors.hours import Hours
from cyclewatch.detectors.normal import normal_tail
from cyclewatch.detectors.online import Direction, Suspicion
from cyclewatch.detectors.phases import Floats, Phase
from cyclewatch.detectors.robust import autocorrelation
from cyclewatch.detectors.shift import Z_95
from cyclewatch.detectors.shift_watch import Change, Kind, ShiftWatch
from cyclewatch.detectors.windows import CellWindow
from cyclewatch.detectors.workload import Row, WorkloadModel

__all__ = ["Change", "Direction", "Kind", "Level", "SeriesDetector", "Verdict"]

VERSION = 2

_TAIL_QUANTILE = 0.99
_TAIL_CYCLES_MIN = 100
"""Fewest cycles of a window whose 99th percentile says something."""


@dataclass(frozen=True)
class Level:
    """Measured against expected cycle time in one window.

    `log_ratio` is the median of log(measured / expected), `standard_error` its own, for `effective` independent
    cycles; `tail` is how far the 99th percentile lies above the median, NaN for too few cycles; `known` of `total`
    cycles had a load that the model has seen.
    """

    at_ns: int
    log_ratio: float
    standard_error: float
    effective: float
    tail: float
    known: int
    total: int


@dataclass(frozen=True)
class Verdict:
    """What one window led to."""

    level: Level | None = None
    suspicion: Suspicion | None = None
    settled: bool = False
    changes: tuple[Change, ...] = ()
    reason: str = ""


class SeriesDetector:
    """Detects lasting changes of one phase of one rank against its own baseline: of its level, and of its tail."""

    def __init__(self, phase: Phase, parameters: Parameters) -> None:
        self.phase = phase
        self.parameters = parameters
        self.model = WorkloadModel(phase)
        self._reference: list[tuple[int, list[Row]]] = []
        self._discarded = 0
        self._level = ShiftWatch(parameters)
        self._tail = ShiftWatch(replace(parameters, min_effect=parameters.min_tail_effect), Kind.TAIL)
        self._hours = Hours()
        self._stepped = 0.0
        """Sum of the steps that were reported: what is left of a level without them is season and drift."""
        self._last_ns = -1

    @property
    def settled(self) -> bool:
        """Whether the baseline stands."""
        return self._level.settled

    @property
    def progress(self) -> float:
        """How much of the baseline has been seen, 0 to 1."""
        return 1.0 if self.settled else len(self._reference) / self.parameters.reference_windows

    @property
    def level(self) -> float:
        """The level taken as normal at present: log of measured over expected, about 0 until a change was confirmed."""
        return self._level.level

    def update(self, at_ns: int, cycles: Records, cells: Iterable[CellWindow]) -> Verdict:
        """Take the judged cycles of the window that starts at `at_ns` (UTC); windows must come in order of time."""
        if at_ns <= self._last_ns:
            return Verdict(reason="window out of order")
        self._last_ns = at_ns
        if len(cycles) < self.parameters.min_cycles:
            return Verdict(reason="too few cycles")
        if not self.settled:
            return self._learn_baseline(at_ns, list(cells))
        level = self._measure(at_ns, cycles)
        if level.known < self.parameters.min_cycles:
            self._learn_loads(cells)
            return Verdict(level=level, reason="load not seen before")
        step = self._level.update(at_ns, level.log_ratio, self._usual)
        if step.change and not step.change.measured_again:
            self._stepped += step.change.after - step.change.before
        if step.suspicion is None and not step.change:
            self._learn_loads(cells)
        tail = self._tail.update(at_ns, level.tail)
        drift = self._drifted(at_ns, level.log_ratio)
        changes = tuple(change for change in (step.change, tail.change, drift) if change)
        return Verdict(level=level, suspicion=step.suspicion, changes=changes, reason=step.reason)

    def _learn_baseline(self, at_ns: int, cells: list[CellWindow]) -> Verdict:
        self._reference.append((at_ns, [Row.of(cell) for cell in cells]))
        if len(self._reference) < self.parameters.reference_windows:
            return Verdict(reason="learning the baseline")
        self.model.fit(row for _, rows in self._reference for row in rows)
        watch = ShiftWatch(self.parameters)
        watch.discarded = self._discarded
        for start_ns, rows in self._reference:
            watch.update(start_ns, self._cells_level(rows))
        if watch.discarded > self._discarded:
            self._reference = self._reference[watch.discarded - self._discarded :]
            self._discarded = watch.discarded
            self.model = WorkloadModel(self.phase)
            return Verdict(reason="the baseline was not steady; learning on")
        if not watch.settled:  # loads that came too rarely to be known
            self._reference = self._reference[1:]
            return Verdict(reason="learning the baseline")
        self._reference = []
        self._level = watch
        return Verdict(settled=True, reason="the baseline stands")

    def _cells_level(self, rows: list[Row]) -> float:
        """Mean log ratio of a window over its known cells, weighted by cycles; NaN without any."""
        known = [row for row in rows if row.bucket in self.model.offsets]
        if not known:
            return math.nan
        residuals = [self.model.residual(row) for row in known]
        return float(np.average(residuals, weights=[row.count for row in known]))

    def _measure(self, at_ns: int, cycles: Records) -> Level:
        ratio, known = self.model.log_ratio(cycles)
        values: Floats = ratio[known]
        if not len(values):
            return Level(at_ns, math.nan, math.nan, 0.0, math.nan, 0, len(cycles))
        low, median, high, tail = np.quantile(values, (0.25, 0.5, 0.75, _TAIL_QUANTILE))
        r = autocorrelation(np.clip(values, low, high) - median)
        effective = len(values) * (1 - r) / (1 + r)
        return Level(
            at_ns=at_ns,
            log_ratio=float(median),
            # Standard error of a median of normal data, the spread taken from the quartiles.
            standard_error=1.2533 * float(high - low) / 1.349 / math.sqrt(effective),
            effective=effective,
            tail=float(tail - median) if len(values) >= _TAIL_CYCLES_MIN else math.nan,
            known=len(values),
            total=len(cycles),
        )

    def _usual(self, at_ns: int) -> float | None:
        """The level at this hour on the days before; None before there are two of them."""
        usual = self._hours.usual(at_ns)
        return None if usual is None else usual + self._stepped

    def _drifted(self, at_ns: int, log_ratio: float) -> Change | None:
        drift = None
        if self._hours.add(at_ns, log_ratio - self._stepped):
            drift = self._hours.drift(self.parameters.min_shift)
        if drift is None:
            return None
        self._hours.rebase(drift)
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

    def _learn_loads(self, cells: Iterable[CellWindow]) -> None:
        self.model.learn(cells, self.parameters.reference_windows // 2, self.level)

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "model": self.model.state(),
            "reference": [[start_ns, [asdict(row) for row in rows]] for start_ns, rows in self._reference],
            "discarded": self._discarded,
            "level": self._level.state(),
            "tail": self._tail.state(),
            "hours": self._hours.state(),
            "stepped": self._stepped,
            "last_ns": self._last_ns,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        if state["version"] != VERSION:
            raise ValueError(f"detector state of version {state['version']}, this release reads {VERSION}")
        self.model = WorkloadModel.from_state(state["model"])
        self._reference = [(int(start_ns), [Row(**row) for row in rows]) for start_ns, rows in state["reference"]]
        self._discarded = int(state["discarded"])
        self._level.restore(state["level"])
        self._tail.restore(state["tail"])
        self._hours.restore(state["hours"])
        self._stepped = float(state["stepped"])
        self._last_ns = int(state["last_ns"])
