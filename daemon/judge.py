"""Judging the windows of every series: detection, open regressions, and the question what is behind them."""

import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.inquiry import History, Inquiry, Place
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_state import PhaseState
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.unit import StoredLevel, StoredRegression, Unit
from cyclewatch.daemon.tracks import RingTrack
from cyclewatch.daemon.watch import Findings, Found, SeriesKey, SeriesWatch
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.deployment import Reference
from cyclewatch.detectors.watching.tracking import Regression, State
from cyclewatch.detectors.windows import CellWindow, Window

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Asked:
    """Something that was found, and what is behind it, once that is known; None for what has ended."""

    track: RingTrack
    watch: SeriesWatch
    found: Found
    findings: "Future[Findings] | None"


class Judge:
    """Holds the watches of all series; what they find goes into the unit of a turn once its cause is known.

    `phases` is what the metrics show of each phase of each rank.
    """

    def __init__(
        self, parameters: Parameters, metrics: Metrics, board: Board, history: History, inquiry: Inquiry
    ) -> None:
        self._parameters = parameters
        self._metrics = metrics
        self._board = board
        self._history = history
        self._inquiry = inquiry
        self._asked: list[_Asked] = []
        self._changed: dict[str, SeriesWatch] = {}
        self.phases: dict[str, PhaseState] = {}

    def take_parameters(self, parameters: Parameters, rings: Collection[RingTrack]) -> None:
        """Judge by other parameters from the next window on; every watch goes on from its state, as after a restart."""
        self._parameters = parameters
        renewed: dict[str, SeriesWatch] = {}
        for track in rings:
            for phase, watch in track.watches.items():
                key = watch.key.text
                renewed[key] = renewed.get(key) or watch.with_parameters(parameters)
                track.watches[phase] = renewed[key]
        self._changed = {
            key: renewed.get(key) or watch.with_parameters(parameters) for key, watch in self._changed.items()
        }

    def states(self) -> dict[str, Mapping[str, Any]]:
        """Saved states of the watches that took windows since the last call, by their keys."""
        states: dict[str, Mapping[str, Any]] = {watch.key.text: watch.state() for watch in self._changed.values()}
        self._changed = {}
        return states

    def forget(self, target: str, kept: Collection[str]) -> None:
        """Drop the phases of a target but those in `kept`, by their places."""
        self.phases = {key: one for key, one in self.phases.items() if one.target != target or key in kept}

    def window(
        self, track: RingTrack, rings: Collection[RingTrack], window: Window, start_ns: int, now: Now, unit: Unit
    ) -> None:
        """Judge a window of `track` that began at `start_ns` (UTC); `rings` are all that are read."""
        run = track.run
        for phase, cycles in window.cycles.items():
            watch = track.watches.get(phase.value) or self._watch(track, rings, phase.value, unit)
            if watch is None:
                continue
            cells = [cell for cell in window.cells if cell.phase is phase]
            verdict, found = watch.update(start_ns, cycles, cells)
            self._changed[watch.key.text] = watch
            if verdict.settled:
                log.info("baseline stands", target=run.target, rank=track.rank, phase=phase.value)
                unit.levels += [
                    StoredLevel(run.key, track.rank, phase.value, level, suspected=False) for level in verdict.baseline
                ]
                found += self._deployed(track, watch, verdict.reference, start_ns)
            found += watch.look_again(start_ns)
            suspected = verdict.suspicion is not None
            self._board.judged(
                track.batch.ring.key, now.monotonic_ns, settled=watch.detector.settled, suspected=suspected
            )
            if verdict.level is not None:
                unit.levels.append(StoredLevel(run.key, track.rank, phase.value, verdict.level, suspected))
                if suspected:
                    self._metrics.suspicions.labels(run.target).inc()
            for one in found:
                self._found(track, watch, one)
            known = verdict.level is not None and math.isfinite(verdict.level.log_ratio)
            self.phases[track.place(phase.value)] = PhaseState(
                target=run.target,
                rank=track.rank,
                phase=phase.value,
                median_s=float(np.median(cycles["cycle_ns"])) / 1e9,
                ratio=math.exp(verdict.level.log_ratio) if verdict.level is not None and known else None,
                baseline_progress=watch.detector.progress,
                regression_open=bool(watch.open_regressions()),
                stages_s=_mean_stages_s(cells),
                regressions_began_s={one.kind.value: one.started_at_ns / 1e9 for one in watch.open_regressions()},
            )

    def _deployed(self, track: RingTrack, watch: SeriesWatch, reference: Reference, start_ns: int) -> list[Found]:
        """What a new configuration, whose baseline has just come to stand, changed against the one before it."""
        replaced = self._inquiry.replaced(_place(track, watch), self._parameters)
        if replaced is None:
            return []
        before, of_before = replaced
        found = watch.succeed(of_before, reference, start_ns)
        log.info(
            "held against the configuration before",
            target=track.run.target,
            rank=track.rank,
            phase=watch.key.phase,
            before=before.version,
            after=track.run.version,
            effect="no more than noise" if found is None else f"{found.change.effect:+.1%}",
        )
        return [] if found is None else [found]

    def _watch(self, track: RingTrack, rings: Collection[RingTrack], phase: str, unit: Unit) -> SeriesWatch | None:
        """The watch of this series: the one in use before a restart of the server, or as it was saved.

        None where the store does not answer: a baseline that is only out of reach must not be learned anew.
        """
        key = SeriesKey(track.run.target, track.rank, phase, track.run.fingerprint, track.run.node)
        in_use = (other.watches[phase] for other in rings if phase in other.watches)
        watch = next((one for one in in_use if one.key == key), None) or self._changed.get(key.text)
        if watch is None:
            watch = SeriesWatch(key, self._parameters)
            try:
                state = self._history.detector_state(key.text)
                if state is not None:
                    watch.restore(state)
            except SQLAlchemyError as error:
                log.warning("the saved baseline cannot be read; trying again", key=key.text, reason=reason_of(error))
                return None
            except (ValueError, KeyError, TypeError) as error:
                log.warning("the saved baseline is unusable; learning it anew", key=key.text, reason=str(error))
                watch = SeriesWatch(key, self._parameters)
        track.watches[phase] = watch
        for regression in watch.open_regressions():  # a configuration that came back has what was open of it again
            _store_regression(track, watch, regression, unit)
        return watch

    def settle(self, unit: Unit, *, wait: bool) -> None:
        """Store what was found once it is known of all of it what is behind it; `wait` until it is.

        All together and in order: a regression is stored with its cause, and `waiting` tells until then that the state
        of the detectors, which has it open already, must not be.
        """
        if not wait and not all(one.findings is None or one.findings.done() for one in self._asked):
            return
        asked, self._asked = self._asked, []
        for one in asked:
            self._store(one, unit)

    @property
    def waiting(self) -> bool:
        """Whether something was found of which it is not known yet what is behind it."""
        return bool(self._asked)

    def _found(self, track: RingTrack, watch: SeriesWatch, one: Found) -> None:
        """Ask for what is behind a regression that is new or altered."""
        findings = None
        if one.regression.state is not State.RESOLVED:
            findings = self._inquiry.ask(_place(track, watch), one, self._parameters)
        self._asked.append(_Asked(track, watch, one, findings))

    def _store(self, asked: _Asked, unit: Unit) -> None:
        track, watch, one = asked.track, asked.watch, asked.found
        regression = one.regression
        if asked.findings is not None:
            watch.note(regression.kind, asked.findings.result())
        _store_regression(track, watch, regression, unit)
        found = watch.findings(regression.kind)
        if one.is_new and regression.state is State.OPEN:
            self._metrics.regressions.labels(track.run.target).inc()
        tell = log.info if one.is_measured_again else log.warning
        tell(
            "improvement" if regression.state is State.NOTED else "regression",
            state=regression.state.value,
            target=track.run.target,
            rank=track.rank,
            phase=watch.key.phase,
            kind=regression.kind.value,
            effect=f"{regression.effect:+.1%}",
            ci=f"{regression.ci[0]:+.1%} to {regression.ci[1]:+.1%}",
            cause=found.causes[0]["subject"] if found.causes else "not shown",
        )


def _place(track: RingTrack, watch: SeriesWatch) -> Place:
    return Place(track.run, track.rank, watch.key.phase, track.synchronous)


def _mean_stages_s(cells: Sequence[CellWindow]) -> tuple[float, ...]:
    """Mean seconds of a cycle in each of `STAGES`, over all load buckets."""
    means_ns = np.average([cell.stages_ns for cell in cells], axis=0, weights=[cell.count for cell in cells])
    return tuple((means_ns / 1e9).tolist())


def _store_regression(track: RingTrack, watch: SeriesWatch, regression: Regression, unit: Unit) -> None:
    found = watch.findings(regression.kind)
    run, phase = track.run, watch.key.phase
    unit.regressions.append(
        StoredRegression(
            run.key, run.target, track.rank, phase, regression, found.split, found.causes, found.physical_bound
        )
    )
