"""Watching one phase of one rank: from cycles and their load to levels, and from levels to changes.

`SeriesDetector.update` takes the cycles of one window and gives what follows from them. All state is in plain values
that can be saved and restored, so that a restarted daemon comes to the same verdicts.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.load.load_rows import Row, load_of, rows_of
from cyclewatch.detectors.load.workload import WorkloadModel
from cyclewatch.detectors.phases import Floats, Phase
from cyclewatch.detectors.statistics.robust import autocorrelation, quantiles
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.deployment import Pace, Reference
from cyclewatch.detectors.watching.level_watch import Level, LevelWatch
from cyclewatch.detectors.watching.online import Direction, Suspicion
from cyclewatch.detectors.watching.order import is_repeated
from cyclewatch.detectors.watching.saved import check_version
from cyclewatch.detectors.watching.shift_watch import Change, Kind
from cyclewatch.detectors.windows import CellWindow

__all__ = ["Change", "Direction", "Kind", "Level", "SeriesDetector", "Verdict"]

VERSION = 5

_TAIL_QUANTILE = 0.99
_TAIL_CYCLES_MIN = 100
"""Fewest cycles of a window whose 99th percentile says something."""

_KNOWN_LEAST = 0.5
"""Part of the cycles of a window, and of the windows, whose load must be known to judge another configuration by it."""


@dataclass(frozen=True)
class Verdict:
    """What one window led to.

    `level` is that of the window once the baseline stands; with `settled` it stands, and `baseline` are the levels that
    it was made of, `reference` the windows.
    """

    level: Level | None = None
    suspicion: Suspicion | None = None
    settled: bool = False
    baseline: tuple[Level, ...] = ()
    reference: Reference = ()
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
        self._levels = LevelWatch(parameters)
        self._last_ns = -1

    @property
    def settled(self) -> bool:
        """Whether the baseline stands."""
        return self._levels.settled

    @property
    def progress(self) -> float:
        """How much of the baseline has been seen, 0 to 1."""
        return 1.0 if self.settled else len(self._reference) / self.parameters.reference_windows

    @property
    def level(self) -> float:
        """The level taken as normal at present: log of measured over expected, about 0 until a change was confirmed."""
        return self._levels.shifts.level

    def update(self, at_ns: int, cycles: Records, cells: Sequence[CellWindow]) -> Verdict:
        """Take the judged cycles of the window that starts at `at_ns` (UTC); windows must come in order of time."""
        if is_repeated(at_ns, self._last_ns):
            return Verdict(reason="window out of order")
        self._last_ns = at_ns
        if len(cycles) < self.parameters.min_cycles:
            return Verdict(reason="too few cycles")
        if not self.settled:
            return self._learn_baseline(at_ns, cycles)
        level = self._measure(at_ns, cycles)
        if level.known < self.parameters.min_cycles:
            self._learn_loads(cells)
            return Verdict(level=level, reason="load not seen before")
        step = self._levels.update(level)
        if step.suspicion is None and not step.changes:
            self._learn_loads(cells)
        return Verdict(level=level, suspicion=step.suspicion, changes=step.changes, reason=step.reason)

    def _learn_baseline(self, at_ns: int, cycles: Records) -> Verdict:
        index = at_ns // self.parameters.window_ns
        self._reference.append((at_ns, rows_of(self.phase, cycles, index)))
        if len(self._reference) < self.parameters.reference_windows:
            return Verdict(reason="learning the baseline")
        self.model.fit(row for _, rows in self._reference for row in rows)
        watch = LevelWatch(self.parameters)
        watch.shifts.discarded = self._discarded
        levels = [self._rows_level(start_ns, rows) for start_ns, rows in self._reference]
        for level in levels:
            watch.update(level)
        if watch.shifts.discarded > self._discarded:
            self._reference = self._reference[watch.shifts.discarded - self._discarded :]
            self._discarded = watch.shifts.discarded
            self.model = WorkloadModel(self.phase)
            return Verdict(reason="the baseline was not steady; learning on")
        if not watch.settled:  # loads that came too rarely to be known
            self._reference = self._reference[1:]
            return Verdict(reason="learning the baseline")
        reference, self._reference = self._reference, []
        self._levels = watch
        return Verdict(settled=True, baseline=tuple(levels), reference=reference, reason="the baseline stands")

    def pace(self) -> Pace:
        """The level of the last windows, as far as nothing is known to have slowed them."""
        return Pace(*self._levels.shifts.steady())

    def pace_of(self, reference: Reference) -> Pace | None:
        """The level of windows of another configuration, against this one; None where most of the load is unknown."""
        levels = [self._rows_level(at_ns, rows) for at_ns, rows in reference]
        known = [level for level in levels if level.known >= max(_KNOWN_LEAST * level.total, 1)]
        if not known or len(known) < _KNOWN_LEAST * len(levels):
            return None
        return Pace(np.array([level.log_ratio for level in known]), np.array([level.doubt for level in known]))

    def _rows_level(self, at_ns: int, rows: Sequence[Row]) -> Level:
        """Mean log ratio of a window over its known loads, weighted by cycles; of the tail the rows tell nothing."""
        judged = [(row, residual) for row in rows if (residual := self.model.residual(row)) is not None]
        total = sum(row.count for row in rows)
        if not judged:
            return _unknown(at_ns, total)
        known, residuals = zip(*judged, strict=True)
        counts = [row.count for row in known]
        load = np.array([(row.batch_size, row.new_tokens, row.kv_tokens) for row in known]).T
        return replace(
            _unknown(at_ns, total),
            log_ratio=float(np.average(residuals, weights=counts)),
            known=sum(counts),
            doubt=self.model.doubt(load),
        )

    def _measure(self, at_ns: int, cycles: Records) -> Level:
        ratio, known = self.model.log_ratio(cycles)
        values: Floats = ratio[known]
        if not len(values):
            return _unknown(at_ns, len(cycles))
        low, median, high, tail = quantiles(values, (0.25, 0.5, 0.75, _TAIL_QUANTILE))
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
            doubt=self.model.doubt(load_of(cycles)),
        )

    def _learn_loads(self, cells: Sequence[CellWindow]) -> None:
        self.model.learn(cells, self.parameters.reference_windows // 2, self.level)

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "model": self.model.state(),
            "reference": [[start_ns, [astuple(row) for row in rows]] for start_ns, rows in self._reference],
            "discarded": self._discarded,
            "levels": self._levels.state(),
            "last_ns": self._last_ns,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        check_version("detector state", state["version"], VERSION)
        self.model = WorkloadModel.from_state(state["model"])
        self._reference = [(int(start_ns), [Row(*row) for row in rows]) for start_ns, rows in state["reference"]]
        self._discarded = int(state["discarded"])
        self._levels.restore(state["levels"])
        self._last_ns = int(state["last_ns"])


def _unknown(at_ns: int, total: int) -> Level:
    """The level of a window of which nothing is known but its number of cycles."""
    return Level(at_ns, math.nan, math.nan, math.nan, math.nan, 0, total)
