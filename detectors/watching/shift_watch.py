"""Watching one series as it comes: a baseline, an online suspicion, a confirmation, and the end of what was found.

`ShiftWatch.update` takes one value and gives what follows from it. All state is in plain values that can be saved and
restored, so that a restarted daemon comes to the same verdicts.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np

from cyclewatch.detectors.change_points.doubt import beside_doubt
from cyclewatch.detectors.change_points.shift import Z_95, Shift, most_likely_shift, shift_at, worth_testing
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics import autoregression
from cyclewatch.detectors.statistics.robust import clip_outliers, robust_sigma
from cyclewatch.detectors.watching.decision import REFERENCE_WINDOWS_MIN, Parameters, decide, left_over, went_away
from cyclewatch.detectors.watching.online import Cusum, Direction, Suspicion
from cyclewatch.detectors.watching.order import is_repeated
from cyclewatch.detectors.watching.recent import Recent
from cyclewatch.detectors.watching.saved import check_version

VERSION = 3

_MARGIN = 3
"""Fewest windows a split may leave at its end; how long a change must last is for the decision, not for its place."""

_OWN_NOISE_MIN = 100
"""Windows from which on their own noise is taken, and not that of the baseline."""

_UNSTEADY_P = 0.01
_DISCARD_MAX = 2
"""How many lengths of the baseline may be discarded because it was not steady."""

_LOOKS = 4
"""How often the test looks on after a shift too small to matter."""

_SUSPECTED_MAX = 64
"""Windows after which a suspicion that nothing came of is dropped: the level taken as normal was not quite right."""


_DOUBT_ALLOWANCE = 10.0
"""How many times likelier a shift may be noise beside doubt than without: what the load may explain is taken from its
size in full, and by noise alone it is as sure as it must be. Without this, a fifth of the slowdowns of 1 % is lost."""

_BEYOND_SIGMAS = 3.0
"""How far beyond a new level the last windows may be by noise."""

_IMPROVED_RATIO = 0.5
"""Part of the history's length that an improvement must last: what takes it back before is its end, no slowdown."""


class Kind(StrEnum):
    """What about a series changed."""

    LEVEL = "level"
    TAIL = "tail"
    """The slowest cycles got slower than the others did."""
    DRIFT = "drift"
    """The level moved too slowly to be a step."""
    DEPLOYMENT = "deployment"
    """Another version or other arguments are slower than those before them."""


@dataclass(frozen=True)
class Change:
    """A confirmed lasting change. Times are UTC nanoseconds; levels are logs of measured over expected."""

    direction: Direction
    started_at_ns: int
    detected_at_ns: int
    before: float
    after: float
    effect: float
    ci: tuple[float, float]
    probability: float
    windows_after: int
    kind: Kind = Kind.LEVEL
    measured_again: bool = False
    """Nothing new has happened: the size of the open slowdown is known better."""

    way_back: bool = False
    """The end of a short improvement, no slowdown."""

    @classmethod
    def between(cls, before: float, after: float, error: float, **facts: Any) -> Self:  # noqa: ANN401 (other fields)
        """The change between two levels whose difference has this standard error; `facts` are the other fields."""
        difference, margin = after - before, Z_95 * error
        return cls(
            direction=Direction.SLOWER if difference > 0 else Direction.FASTER,
            before=before,
            after=after,
            effect=math.expm1(difference),
            ci=(math.expm1(difference - margin), math.expm1(difference + margin)),
            **facts,
        )


@dataclass(frozen=True)
class _Opened:
    """The slowdown that is open: where it came from, and when its size is worth being measured again."""

    started_at_ns: int
    before: float
    before_error: float
    probability: float
    measure_at: int


@dataclass(frozen=True)
class Step:
    """What one value led to."""

    suspicion: Suspicion | None = None
    settled: bool = False
    change: Change | None = None
    reason: str = ""


class ShiftWatch:
    """Detects lasting shifts of one series of logs against its own baseline, in both directions."""

    def __init__(self, parameters: Parameters, kind: Kind = Kind.LEVEL) -> None:
        self.parameters = parameters
        self.kind = kind
        self.discarded = 0
        self._recent = Recent(parameters.history_windows)
        self._origin: float | None = None
        self._level = 0.0
        self._sigma = 0.0
        self._phi: tuple[float, ...] = ()
        self._cusum: Cusum | None = None
        self._suspected = 0
        self._opened: _Opened | None = None
        self._improved: tuple[float, int] | None = None
        """The level before it got faster, and since when it is; until that has lasted."""
        self._last_ns = -1

    @property
    def settled(self) -> bool:
        """Whether the baseline stands."""
        return self._cusum is not None

    @property
    def level(self) -> float:
        """The level taken as normal at present."""
        return self._level

    @property
    def windows(self) -> int:
        """Windows that are kept since the last change."""
        return len(self._recent)

    def measured(self) -> float:
        """The level since the last change: the mean of its windows, outliers clipped."""
        return float(self._tame().mean())

    def steady(self) -> tuple[Floats, Floats]:
        """Values, shape (n,), and doubts, shape (n, k), since the last change, less the slowdown that is open."""
        slower = 0.0 if self._origin is None else self._level - self._origin
        return self._recent.values - slower, self._recent.doubts

    def update(
        self,
        at_ns: int,
        value: float,
        usual: Callable[[int], float | None] = lambda _: None,
        doubt: tuple[float, ...] = (),
    ) -> Step:
        """Take the value of the window that starts at `at_ns` (UTC); windows must come in order of time.

        `usual` gives the level at this time on the days before, and is asked under suspicion only. `doubt`, of the
        same length in every window, is what the value may be wrong by: see `change_points/doubt.py`.
        """
        if is_repeated(at_ns, self._last_ns):
            return Step(reason="window out of order")
        if not math.isfinite(value):
            return Step(reason="no value")
        self._last_ns = at_ns
        self._recent.append(at_ns, value, doubt)
        if self._cusum is None:
            return self._learn()
        return self._judge(at_ns, self._cusum.update(at_ns, value), usual)

    def _judge(self, at_ns: int, suspicion: Suspicion | None, usual: Callable[[int], float | None]) -> Step:
        if ended := self._end(at_ns):
            return Step(change=ended)
        if suspicion is None:
            self._suspected = 0
            return Step(change=self._measured_again(at_ns))
        self._suspected += 1
        change, reason = self._confirm(at_ns, usual(at_ns))
        if change is None:  # what is suspected may be that a level told from few windows is not quite right
            change = self._measured_again(at_ns)
        if change is None and self._suspected == _SUSPECTED_MAX:
            self._arm(float(np.median(self._recent.values)))
        return Step(suspicion=suspicion, change=change, reason=reason)

    def _learn(self) -> Step:
        if len(self._recent) < self.parameters.reference_windows:
            return Step(reason="learning the baseline")
        values = self._recent.values
        shift = most_likely_shift(values, _MARGIN)
        steady = shift is None or shift.p_value > _UNSTEADY_P or abs(shift.difference) < self.parameters.min_shift
        if shift is not None and not steady and self.discarded < _DISCARD_MAX * self.parameters.reference_windows:
            # A baseline with a slowdown inside would take it for noise. What is never steady is taken as it is.
            self.discarded += shift.position
            self._recent.drop(shift.position)
            return Step(reason="the baseline was not steady; learning on")
        residuals = values - np.median(values)
        residuals = clip_outliers(residuals, 0.0, robust_sigma(residuals))
        phi = autoregression.fit_best(residuals)
        self._phi = tuple(float(one) for one in phi)
        self._sigma = robust_sigma(autoregression.whiten(residuals, phi)) / (1 - float(phi.sum()))
        self._arm(float(np.median(values)))
        return Step(settled=True, reason="the baseline stands")

    def _confirm(self, at_ns: int, usual: float | None) -> tuple[Change | None, str]:
        """Test the recent past for a shift."""
        values = self._recent.values
        known = np.array(self._phi)
        if len(values) >= _OWN_NOISE_MIN and not worth_testing(values, _MARGIN, known):
            return None, "nothing found"
        begin, reason = 0, ""
        for _ in range(_LOOKS):
            phi = known if len(values) - begin < _OWN_NOISE_MIN else None
            shift = most_likely_shift(values[begin:], _MARGIN, phi=phi)
            decision = decide(shift, self.parameters, slowed=self._origin is not None, usual=usual)
            reason = reason or decision.reason
            if shift is None:
                break
            shift = replace(shift, position=shift.position + begin)
            if decision.accepted and self._holds(values, shift):
                shift = self._beside_doubt(shift, values, begin, phi)
                surer = replace(shift, p_value=shift.p_value / _DOUBT_ALLOWANCE)
                if decide(surer, self.parameters, slowed=self._origin is not None, usual=usual).accepted:
                    return self._changed(shift, at_ns), ""
                return None, "explained by the load after all"
            if not decision.too_small:
                break
            begin = shift.position  # what is too small to matter must not hide what comes after it
        return None, reason

    def _beside_doubt(self, shift: Shift, values: Floats, begin: int, phi: Floats | None) -> Shift:
        """The shift of `values` from `begin` on, as it is beside what expectations may be wrong by."""
        doubts = self._recent.doubts[begin:]
        if not doubts.size:
            return shift
        values, here = values[begin:], replace(shift, position=shift.position - begin)
        if phi is None:
            level = np.where(np.arange(len(values)) >= here.position, shift.after, shift.before)
            phi = autoregression.fit_best(values - level)
        return replace(beside_doubt(here, values, doubts, phi), position=shift.position)

    def _holds(self, values: Floats, shift: Shift) -> bool:
        """Whether the last windows are at the new level: what is over again, or still under way, cannot be told yet."""
        last = float(np.median(values[-max(self.parameters.persistence_windows // 4, 1) :]))
        beyond = (last - shift.after) * math.copysign(1.0, shift.difference)
        under_way = beyond > max(abs(shift.difference), _BEYOND_SIGMAS * self._sigma)
        return not under_way and abs(last - shift.after) < abs(last - shift.before)

    def _end(self, at_ns: int) -> Change | None:
        """The change that ends the confirmed slowdown, where the last windows show that it has gone."""
        if self._origin is None:
            return None
        values = self._recent.values
        if not went_away(values, self._origin, self._level, self.parameters):
            return None
        slow = np.flatnonzero(values >= (self._origin + self._level) / 2)
        if not len(slow):
            return None
        return self._changed(shift_at(values, int(slow[-1]) + 1, np.array(self._phi)), at_ns)

    def _changed(self, shift: Shift, at_ns: int) -> Change:
        """Take the new level as normal; gives the change."""
        slower = shift.difference > 0
        started_at_ns = int(self._recent.at_ns[shift.position])
        self._recent.drop(shift.position)
        way_back = self._is_way_back(shift, started_at_ns)
        if not slower and self._origin is None:
            self._improved = self._improved or (shift.before, started_at_ns)
        elif not way_back:
            self._improved = None
        if slower and self._origin is None and not way_back:
            self._origin = shift.before
            measure_at = 2 * shift.values_after
            self._opened = _Opened(started_at_ns, shift.before, shift.error_before, 1.0 - shift.p_value, measure_at)
        else:  # of what has grown or shrunk since, the tracker keeps count
            self._opened = None
            if self._origin is not None and not left_over(shift.after, self._origin, self._level, self.parameters):
                self._origin = None
        self._arm(shift.after)
        return Change.between(
            shift.before,
            shift.after,
            shift.error,
            started_at_ns=started_at_ns,
            detected_at_ns=at_ns + self.parameters.window_ns,
            probability=1.0 - shift.p_value,
            windows_after=shift.values_after,
            kind=self.kind,
            way_back=way_back,
        )

    def _is_way_back(self, shift: Shift, started_at_ns: int) -> bool:
        """Whether this shift is but the end of an improvement: soon, and to the level before it at most."""
        if self._improved is None:
            return False
        level, since_ns = self._improved
        if started_at_ns - since_ns > _IMPROVED_RATIO * self.parameters.history_windows * self.parameters.window_ns:
            self._improved = None
            return False
        return shift.difference > 0 and shift.after - level < self.parameters.min_shift

    def _measured_again(self, at_ns: int) -> Change | None:
        """The open slowdown with its size taken from all windows since, whenever they have doubled.

        What is found as soon as it can be is found while it looks larger than it is.
        """
        opened = self._opened
        if opened is None or len(self._recent) < opened.measure_at:
            return None
        after = self.measured()
        self._opened = replace(opened, measure_at=2 * self.windows)
        self._arm(after)
        error = math.hypot(opened.before_error, self._error_after())
        found = Change.between(
            opened.before,
            after,
            error,
            started_at_ns=opened.started_at_ns,
            detected_at_ns=at_ns + self.parameters.window_ns,
            probability=opened.probability,
            windows_after=self.windows,
            kind=self.kind,
            measured_again=True,
        )
        return replace(found, direction=Direction.SLOWER)  # the open slowdown, even if hardly anything of it is left

    def _error_after(self) -> float:
        """Standard error of `measured`, by the noise since the change: a slowdown may have made it another."""
        phi, values, sigma = np.array(self._phi), self._tame(), self._sigma
        if len(values) >= REFERENCE_WINDOWS_MIN + len(phi):
            noise = autoregression.whiten(values - values.mean(), phi)
            sigma = float(noise.std(ddof=1)) / (1 - float(phi.sum()))
        return sigma / math.sqrt(len(values))

    def _tame(self) -> Floats:
        """The windows since the last change, shape (n,), outliers clipped."""
        values = self._recent.values
        return clip_outliers(values, float(np.median(values)), robust_sigma(values))

    def _arm(self, level: float) -> None:
        """Take `level` as normal from now on."""
        self._level = level
        self._suspected = 0
        sigma = max(self._sigma, 0.1 * self.parameters.min_shift)
        self._cusum = Cusum(level, sigma, self.parameters.min_shift / 2, self.parameters.suspicion_windows)

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "version": VERSION,
            "discarded": self.discarded,
            "recent": self._recent.state(),
            "origin": self._origin,
            "level": self._level,
            "sigma": self._sigma,
            "phi": list(self._phi),
            "cusum": self._cusum.state() if self._cusum else None,
            "suspected": self._suspected,
            "opened": asdict(self._opened) if self._opened else None,
            "improved": list(self._improved) if self._improved else None,
            "last_ns": self._last_ns,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        check_version("state of a watch", state["version"], VERSION)
        self.discarded = int(state["discarded"])
        self._recent.restore(state["recent"])
        self._origin = state["origin"]
        self._sigma = float(state["sigma"])
        self._phi = tuple(float(one) for one in state["phi"])
        self._last_ns = int(state["last_ns"])
        self._cusum = None
        if state["cusum"] is not None:
            self._arm(float(state["level"]))
            assert self._cusum is not None
            self._cusum.restore(state["cusum"])
        self._suspected = int(state["suspected"])
        self._opened = _Opened(**state["opened"]) if state["opened"] else None
        self._improved = (state["improved"][0], state["improved"][1]) if state["improved"] else None
