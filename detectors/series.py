"""Watching one phase of one rank: reference, online statistic, confirmation.

`SeriesDetector.update` takes one window and gives what follows from it. All state is in plain values that can
be saved and restored, so that a restarted daemon comes to the same verdicts.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.decision import (
    MIN_AFTER_WINDOWS,
    MIN_BEFORE_WINDOWS,
    SUSPICION_RUN_LENGTH,
    Parameters,
    decide,
    left_over,
    went_away,
)
from cyclewatch.detectors.online import Cusum, Direction, Suspicion
from cyclewatch.detectors.phases import Floats, Phase
from cyclewatch.detectors.robust import autocorrelation, long_run_sigma
from cyclewatch.detectors.segmentation import NOTHING_KNOWN, Noise, Shift, most_likely_shift, shift_at
from cyclewatch.detectors.windows import CellWindow
from cyclewatch.detectors.workload import Row, WorkloadModel

VERSION = 1

_UNSTEADY_P = 0.01
_DISCARD_MAX = 2
"""How many lengths of the reference may be discarded because it was not steady."""

_NOISE_WEIGHT_MAX = 10.0
"""Independent windows that the reference's noise counts for at most, so that a noise that grows is believed."""


@dataclass(frozen=True)
class Level:
    """Measured against expected cycle time in one window.

    `log_ratio` is the median of log(measured / expected), `standard_error` its own; `known` of `total` cycles
    had a load that the model has seen.
    """

    at_ns: int
    log_ratio: float
    standard_error: float
    known: int
    total: int


@dataclass(frozen=True)
class Change:
    """A confirmed lasting shift. Times are UTC nanoseconds; levels are logs of measured over reference."""

    direction: Direction
    started_at_ns: int
    detected_at_ns: int
    before: float
    after: float
    effect: float
    ci: tuple[float, float]
    probability: float
    windows_after: int


@dataclass(frozen=True)
class Verdict:
    """What one window led to."""

    level: Level | None = None
    suspicion: Suspicion | None = None
    settled: bool = False
    change: Change | None = None
    reason: str = ""


class SeriesDetector:
    """Detects lasting changes of one phase of one rank against its own reference."""

    def __init__(self, phase: Phase, parameters: Parameters) -> None:
        self.phase = phase
        self.parameters = parameters
        self.model = WorkloadModel(phase)
        self._reference: list[tuple[int, list[Row]]] = []
        self._discarded = 0
        self._history: deque[tuple[int, float]] = deque(maxlen=parameters.history_windows)
        self._min_before = MIN_BEFORE_WINDOWS
        self._origin: float | None = None
        self._level = 0.0
        self._noise = NOTHING_KNOWN
        self._cusum: Cusum | None = None
        self._last_ns = -1

    @property
    def settled(self) -> bool:
        """Whether the reference stands."""
        return self._cusum is not None

    @property
    def progress(self) -> float:
        """How much of the reference has been seen, 0 to 1."""
        return 1.0 if self.settled else len(self._reference) / self.parameters.reference_windows

    @property
    def level(self) -> float:
        """The level taken as normal at present: log of measured over reference, 0 until a change was confirmed."""
        return self._level

    def update(self, at_ns: int, cycles: Records, cells: Iterable[CellWindow]) -> Verdict:
        """Take the judged cycles of the window that starts at `at_ns` (UTC); windows must come in order of time."""
        if at_ns <= self._last_ns:
            return Verdict(reason="window out of order")
        self._last_ns = at_ns
        if len(cycles) < self.parameters.min_cycles:
            return Verdict(reason="too few cycles")
        if self._cusum is None:
            return self._learn_reference(at_ns, list(cells))
        level = self._measure(at_ns, cycles)
        if level.known < self.parameters.min_cycles:
            self._learn_loads(cells)
            return Verdict(level=level, reason="load not seen before")
        return self._judge(level, cells, self._cusum)

    def _judge(self, level: Level, cells: Iterable[CellWindow], cusum: Cusum) -> Verdict:
        at_ns = level.at_ns
        self._history.append((at_ns, level.log_ratio))
        if ended := self._end(at_ns):
            return Verdict(level=level, change=ended)
        suspicion = cusum.update(at_ns, level.log_ratio)
        if suspicion is None:
            self._learn_loads(cells)
            return Verdict(level=level)
        change, reason = self._confirm(at_ns)
        return Verdict(level=level, suspicion=suspicion, change=change, reason=reason)

    def _learn_reference(self, at_ns: int, cells: list[CellWindow]) -> Verdict:
        self._reference.append((at_ns, [Row.of(cell) for cell in cells]))
        if len(self._reference) < self.parameters.reference_windows:
            return Verdict(reason="learning the reference")
        self.model.fit(row for _, rows in self._reference for row in rows)
        levels = [(start_ns, self._cells_level(rows)) for start_ns, rows in self._reference]
        if (unsteady := self._unsteady_until([level for _, level in levels])) > 0:
            self._reference = self._reference[unsteady:]
            self._discarded += unsteady
            self.model = WorkloadModel(self.phase)
            return Verdict(reason="the reference was not steady; learning on")
        self._history.extend((start_ns, level) for start_ns, level in levels if np.isfinite(level))
        values = self._values()
        residuals = values - np.median(values)
        r = autocorrelation(residuals)
        weight = min(len(values) * (1 - r) / (1 + r), _NOISE_WEIGHT_MAX)
        self._noise = Noise(long_run_sigma(residuals), weight)
        self._reference = []
        self._arm(0.0)
        return Verdict(settled=True, reason="the reference stands")

    def _unsteady_until(self, levels: list[float]) -> int:
        """How many windows at the beginning of the reference ran at another level than the rest; 0 for none.

        A baseline with a slowdown inside would take it for noise. What never gets steady is taken as it is in the end.
        """
        values = np.array(levels)
        if self._discarded >= _DISCARD_MAX * self.parameters.reference_windows or not np.isfinite(values).all():
            return 0
        shift = most_likely_shift(values, MIN_BEFORE_WINDOWS // 2, MIN_BEFORE_WINDOWS // 2)
        if shift is None or shift.p_value > _UNSTEADY_P or abs(shift.after - shift.before) < self.parameters.min_shift:
            return 0
        return shift.position

    def _cells_level(self, rows: list[Row]) -> float:
        """Mean log ratio of a reference window over its known cells, weighted by cycles; NaN without any."""
        known = [row for row in rows if row.bucket in self.model.offsets]
        if not known:
            return float("nan")
        residuals = [self.model.residual(row) for row in known]
        return float(np.average(residuals, weights=[row.count for row in known]))

    def _measure(self, at_ns: int, cycles: Records) -> Level:
        ratio, known = self.model.log_ratio(cycles)
        values: Floats = ratio[known]
        if not len(values):
            return Level(at_ns, float("nan"), float("nan"), 0, len(cycles))
        median = float(np.median(values))
        low, high = np.quantile(values, (0.25, 0.75))
        # Standard error of a median of normal data, the spread taken from the quartiles.
        error = 1.2533 * float(high - low) / 1.349 / float(np.sqrt(len(values)))
        return Level(at_ns, median, error, len(values), len(cycles))

    def _confirm(self, at_ns: int) -> tuple[Change | None, str]:
        """Test the recent past for a shift."""
        values = self._values()
        shift = most_likely_shift(values, self._min_before, MIN_AFTER_WINDOWS, self._noise, self._sigma_floor)
        decision = decide(shift, self.parameters, slowed=self._origin is not None)
        if shift is None or not decision.accepted:
            return None, decision.reason
        return self._changed(shift, at_ns), ""

    def _end(self, at_ns: int) -> Change | None:
        """The change that ends the confirmed slowdown, where the last windows show that it has gone."""
        values = self._values()
        if self._origin is None or not went_away(values, self._origin, self._level, self.parameters):
            return None
        slow = np.flatnonzero(values >= (self._origin + self._level) / 2)
        if not len(slow):
            return None
        return self._changed(shift_at(values, int(slow[-1]) + 1, 1, self._noise, self._sigma_floor), at_ns)

    def _values(self) -> Floats:
        return np.array([value for _, value in self._history])

    def _changed(self, shift: Shift, at_ns: int) -> Change:
        """Take the new level as normal; gives the change."""
        slower = shift.after > shift.before
        started_at_ns = self._history[shift.position][0]
        for _ in range(shift.position):
            self._history.popleft()
        # The new level is known from a test already: its end may be looked for at once.
        self._min_before = min(MIN_BEFORE_WINDOWS, shift.windows_after)
        if slower and self._origin is None:
            self._origin = shift.before
        elif self._origin is not None and not left_over(shift.after, self._origin, self._level, self.parameters):
            self._origin = None
        self._arm(shift.after)
        return Change(
            direction=Direction.SLOWER if slower else Direction.FASTER,
            started_at_ns=started_at_ns,
            detected_at_ns=at_ns + self.parameters.window_ns,
            before=shift.before,
            after=shift.after,
            effect=shift.effect,
            ci=shift.ci,
            probability=1.0 - shift.p_value,
            windows_after=shift.windows_after,
        )

    @property
    def _sigma_floor(self) -> float:
        return 0.1 * self.parameters.min_shift

    def _arm(self, level: float) -> None:
        """Take `level` as normal from now on."""
        self._level = level
        sigma = max(self._noise.sigma, self._sigma_floor)
        self._cusum = Cusum(level, sigma, self.parameters.min_shift / 2, SUSPICION_RUN_LENGTH)

    def _learn_loads(self, cells: Iterable[CellWindow]) -> None:
        self.model.learn(cells, self.parameters.reference_windows // 2, self._level)

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "model": self.model.state(),
            "reference": [[start_ns, [asdict(row) for row in rows]] for start_ns, rows in self._reference],
            "discarded": self._discarded,
            "history": [list(entry) for entry in self._history],
            "min_before": self._min_before,
            "origin": self._origin,
            "level": self._level,
            "noise": asdict(self._noise),
            "cusum": self._cusum.state() if self._cusum else None,
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
        self._history.clear()
        self._history.extend((int(at_ns), float(value)) for at_ns, value in state["history"])
        self._min_before = int(state["min_before"])
        self._origin = state["origin"]
        self._noise = Noise(**state["noise"])
        self._last_ns = int(state["last_ns"])
        self._cusum = None
        if state["cusum"] is not None:
            self._arm(float(state["level"]))
            assert self._cusum is not None
            self._cusum.restore(state["cusum"])
