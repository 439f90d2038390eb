"""What is behind a regression: asked of the store in a thread of its own, so that no turn waits for it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.daemon.findings import findings_of
from cyclewatch.daemon.model_bound import served_model
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.unit import Run
from cyclewatch.daemon.watch import Findings, Found, SeriesKey, SeriesWatch
from cyclewatch.detectors.attribution import Evidence
from cyclewatch.detectors.load.speed_of_light import ServedModel
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.shift_watch import Kind

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


@dataclass(frozen=True)
class Place:
    """One phase of one rank of one run."""

    run: Run
    rank: str
    phase: str
    synchronous: bool

    def key(self, run: Run) -> SeriesKey:
        """The series of this rank and phase in a run of the same target."""
        return SeriesKey(run.target, self.rank, self.phase, run.fingerprint, run.node)


class Inquiry:
    """Finds out what is behind a regression. `hub` is where the models' files are; `executor` has one thread."""

    def __init__(self, history: History, hub: Path, executor: Executor) -> None:
        self._history = history
        self._hub = hub
        self._executor = executor

    def ask(self, place: Place, found: Found, parameters: Parameters) -> "Future[Findings]":
        """What is behind it, as far as is known by now; nothing where the store does not answer."""
        return self._executor.submit(self._findings, place, found, parameters)

    def replaced(self, place: Place, parameters: Parameters) -> tuple[Run, SeriesWatch] | None:
        """The last configuration before this one whose series has a baseline, and its watch."""
        try:
            for run in self._history.replaced_by(place.run):
                key = place.key(run)
                state = self._history.detector_state(key.text)
                if state is None:
                    continue
                watch = SeriesWatch(key, parameters)
                watch.restore(state)
                if watch.detector.settled:
                    return run, watch
        except SQLAlchemyError as error:
            log.warning("the store does not answer; nothing before is known", reason=reason_of(error))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the baseline of the configuration before is unusable", reason=str(error))
        return None

    def _findings(self, place: Place, one: Found, parameters: Parameters) -> Findings:
        run, rank, phase = place.run, place.rank, place.phase
        span_ns = (one.change.started_at_ns, one.change.detected_at_ns)
        before = run
        try:
            if one.regression.kind is Kind.DEPLOYMENT:
                replaced = self.replaced(place, parameters)
                if replaced is None:
                    return Findings()
                before = replaced[0]
                evidence = self._history.evidence_of_deployment(before, run, rank, phase, span_ns)
            else:
                began_ns = one.regression.started_at_ns
                evidence = self._history.evidence(run, rank, phase, began_ns, span_ns, synchronous=place.synchronous)
        except SQLAlchemyError as error:
            log.warning("the store does not answer; the cause is not shown", reason=reason_of(error))
            return Findings()
        return findings_of(evidence, self._served(before), self._served(run))

    def _served(self, run: Run) -> ServedModel | None:
        """What a run serves; None where that is not known, which is said when its first window is closed."""
        try:
            return served_model(run, self._hub)
        except (OSError, ValueError):
            return None
