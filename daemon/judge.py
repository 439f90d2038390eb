"""Judging the windows of every series: detection, open regressions, and what is known of their causes."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.findings import findings_of
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_state import PhaseState
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.unit import Run, StoredLevel, StoredRegression, Unit
from cyclewatch.daemon.tracks import RingTrack
from cyclewatch.daemon.watch import Findings, Found, SeriesKey, SeriesWatch
from cyclewatch.detectors.attribution import Evidence
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.deployment import Reference
from cyclewatch.detectors.watching.shift_watch import Kind
from cyclewatch.detectors.watching.tracking import Regression, State
from cyclewatch.detectors.windows import CellWindow, Window

log = structlog.get_logger(__name__)


class History(Protocol):
    """What the store remembers, as far as detection and attribution ask for it."""

    def detector_state(self, key: str) -> Mapping[str, Any] | None:
        """Saved state of a detector."""
        ...

    def evidence(
        self, run: Run, rank: str, phase: str, began_ns: int, span_ns: tuple[int, int], *, synchronous: bool
    ) -> Evidence:
        """What is known of the time before a regression began, and of the time at its present level, `span_ns`."""
        ...

    def replaced_by(self, run: Run) -> Sequence[Run]:
        """The latest runs of the target's configurations before this one, with the same model; newest first."""
        ...

    def evidence_of_deployment(
        self, replaced: Run, run: Run, rank: str, phase: str, span_ns: tuple[int, int]
    ) -> Evidence:
        """What is known of the end of a configuration, and of the time of the one that replaced it, `span_ns`."""
        ...


class Judge:
    """Holds the watches of all series; what they find goes into the unit of the turn.

    `phases` is what the metrics show of each phase of each rank.
    """

    def __init__(self, parameters: Parameters, metrics: Metrics, board: Board, history: History) -> None:
        self._parameters = parameters
        self._metrics = metrics
        self._board = board
        self._history = history
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
                self._found(track, watch, one, unit)
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
        replaced = self._replaced(track, watch.key.phase)
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

    def _replaced(self, track: RingTrack, phase: str) -> tuple[Run, SeriesWatch] | None:
        """The last configuration before this one whose series has a baseline, and its watch."""
        try:
            for run in self._history.replaced_by(track.run):
                key = SeriesKey(run.target, track.rank, phase, run.fingerprint, run.node)
                state = self._history.detector_state(key.text)
                if state is None:
                    continue
                watch = SeriesWatch(key, self._parameters)
                watch.restore(state)
                if watch.detector.settled:
                    return run, watch
        except SQLAlchemyError as error:
            log.warning("the store does not answer; nothing before is known", reason=reason_of(error))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the baseline of the configuration before is unusable", reason=str(error))
        return None

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

    def _found(self, track: RingTrack, watch: SeriesWatch, one: Found, unit: Unit) -> None:
        """Store a regression that is new or altered, with what is known of its cause."""
        regression = one.regression
        if regression.state is not State.RESOLVED:
            watch.note(regression.kind, self._findings(track, watch.key.phase, one))
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

    def _findings(self, track: RingTrack, phase: str, one: Found) -> Findings:
        """What is behind a regression, as far as is known by now."""
        began_ns, span_ns = one.regression.started_at_ns, (one.change.started_at_ns, one.change.detected_at_ns)
        try:
            if one.regression.kind is Kind.DEPLOYMENT:
                replaced = self._replaced(track, phase)
                if replaced is None:
                    return Findings()
                evidence = self._history.evidence_of_deployment(replaced[0], track.run, track.rank, phase, span_ns)
            else:
                evidence = self._history.evidence(
                    track.run, track.rank, phase, began_ns, span_ns, synchronous=track.synchronous
                )
        except SQLAlchemyError as error:
            log.warning("the store does not answer; the cause is not shown", reason=reason_of(error))
            return Findings()
        return findings_of(evidence)


def _mean_stages_s(cells: Sequence[CellWindow]) -> tuple[float, ...]:
    """Mean seconds of a cycle in each of `STAGES`, over all load buckets."""
    means_ns = np.average([cell.stages_ns for cell in cells], axis=0, weights=[cell.count for cell in cells])
    return tuple((means_ns / 1e9).tolist())


def _store_regression(track: RingTrack, watch: SeriesWatch, regression: Regression, unit: Unit) -> None:
    found = watch.findings(regression.kind)
    run, phase = track.run, watch.key.phase
    unit.regressions.append(
        StoredRegression(run.key, run.target, track.rank, phase, regression, found.split, found.causes)
    )
