"""Profiling as a part of the daemon: put together from the store, started, asked, and stopped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.control import Answer
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.profiling.board import KEEP_STRETCHES_NS, Board, Stretch
from cyclewatch.daemon.profiling.decide import DAY_S
from cyclewatch.daemon.profiling.ledger import Entry, Ledger
from cyclewatch.daemon.profiling.sampler import ProfileRefusedError, Request, Sampler
from cyclewatch.daemon.profiling.switch import restored
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.profile_records import ProfileView
from cyclewatch.daemon.store.profiles import ProfileHistory
from cyclewatch.daemon.store.unit import Unit

log = structlog.get_logger(__name__)

_STOP_S = 5.0
_UNFINISHED_NS = 15 * 10**9
"""How long a profile counts that a daemon before this one did not see the end of."""


class Profiling:
    """`board` goes to the pipeline; everything else happens by itself.

    Raises:
        SQLAlchemyError: the database does not answer.
    """

    def __init__(
        self,
        settings: Settings,
        history: ProfileHistory,
        saved: Mapping[str, Any],
        discovery: Discovery,
        submit: Callable[[Unit], None],
        metrics: Metrics,
        clock: Callable[[], Now],
    ) -> None:
        now = clock()
        keep_s = max(DAY_S, settings.profiling.interval_s)
        known = history.since(now.wall_ns - int(keep_s * 1e9))
        self._history = history
        self.board = Board(tuple(_stretches(known, now)))
        self.sampler = Sampler(
            settings,
            self.board,
            discovery,
            Ledger(keep_s, map(_entry, known)),
            restored(saved),
            submit,
            metrics,
            clock,
        )

    def start(self) -> None:
        """Serve the channel, and take profiles."""
        try:
            self._history.end_unfinished("the daemon ended while it was being taken")
        except SQLAlchemyError as error:
            log.warning("unfinished profiles stay as they are", reason=reason_of(error))
        self.sampler.start()

    def stop(self) -> None:
        """Stop all of it; a profile under way is given up."""
        self.sampler.stop(_STOP_S)

    def answer(self, question: Mapping[str, Any]) -> Answer | None:
        """Do what the command line asks for; None for a question that is not about profiles."""
        from cyclewatch.daemon.reports.profile import profile_document  # noqa: PLC0415 (only when somebody asks)

        match question:
            case {"do": "switch", "on": bool(on)}:
                self.sampler.turn(on=on)
                return self.sampler.status()
            case {"do": "profile", "target": str(target), "pid": int() | None, "duration_ms": int() | None}:
                try:
                    taken = self.sampler.ask(Request(target, question["pid"], question["duration_ms"]))
                except ProfileRefusedError as error:
                    return {"error": str(error)}
                document = profile_document(taken.profile)
                return {"profile": document, "file": str(taken.capture.path) if taken.capture else None}
        return None

    def done(self, answer: Answer) -> None:
        """The asker has hung up: the trace that it may have copied is not needed any more."""
        if answer.get("file"):
            Path(answer["file"]).unlink(missing_ok=True)


def _entry(view: ProfileView) -> Entry:
    one = view.profile
    return Entry(one.key, one.target, one.rank, view.fingerprint, one.state, one.began_at_ns, one.ended_at_ns)


def _stretches(known: list[ProfileView], now: Now) -> list[Stretch]:
    """When servers were being profiled shortly before the start: those cycles are read again."""
    offset_ns = now.monotonic_ns - now.wall_ns
    return [
        Stretch(
            one.profile.target,
            one.profile.began_at_ns + offset_ns,
            (one.profile.ended_at_ns or one.profile.began_at_ns + _UNFINISHED_NS) + offset_ns,
        )
        for one in known
        if now.wall_ns - one.profile.began_at_ns < KEEP_STRETCHES_NS
    ]
