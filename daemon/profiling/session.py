"""One profile from its order to its row in the store: what is noted when, and what is kept."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.kineto.captures import Capture
from cyclewatch.daemon.profiling.board import Board, Stretch
from cyclewatch.daemon.profiling.channel import Channel
from cyclewatch.daemon.profiling.decide import Reason
from cyclewatch.daemon.profiling.reduce import Reduction
from cyclewatch.daemon.profiling.subjects import Subject
from cyclewatch.daemon.profiling.taking import TakingError, Tools, take_by_channel, take_by_start_profile
from cyclewatch.daemon.store.profile_records import ProfileState, StoredProfile
from cyclewatch.daemon.store.unit import Unit

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Taken:
    """What came of a profile. `stretch` is None where the server was not exposed; `capture` still has its file.

    `failed` tells that it is refused for a reason that will be there the next time, `died` that the process ended while
    it was exposed.
    """

    subject: Subject
    profile: StoredProfile
    stretch: Stretch | None
    capture: Capture | None
    failed: bool
    died: bool


class Session:
    """Takes one profile; told of the exposure as it begins and ends."""

    def __init__(
        self,
        subject: Subject,
        reason: Reason,
        board: Board,
        clock: Callable[[], Now],
        submit: Callable[[Unit], None],
    ) -> None:
        self._subject = subject
        self._board = board
        self._clock = clock
        self._submit = submit
        self._stretch: Stretch | None = None
        view = subject.view
        self._profile = StoredProfile(
            key=secrets.token_hex(8),
            run_key=view.run.key if view else "",
            target=subject.target,
            rank=subject.rank,
            pid=subject.pid,
            reason=reason.value,
            method=subject.method,
            state=ProfileState.TAKING,
            began_at_ns=clock().wall_ns,
        )

    def began(self, at_ns: int) -> None:
        """Mark the server's cycles from now on, and leave word in the store, should the daemon be killed."""
        self._stretch = self._board.begin(self._subject.target, at_ns)
        self._profile = replace(self._profile, began_at_ns=self._utc(at_ns))
        self._store(self._profile)

    def ended(self, at_ns: int) -> None:
        """Mark no more."""
        if self._stretch is not None:
            self._board.end(self._stretch, at_ns)
        self._profile = replace(self._profile, ended_at_ns=self._utc(at_ns))

    def take(self, tools: Tools, channel: Channel, duration_ms: int) -> Taken:
        """Take it, and store what came of it."""
        capture: Capture | None = None
        failed = died = False
        try:
            reduction, capture = self._record(tools, channel, duration_ms)
        except TakingError as error:
            failed, died = error.counts, error.ended and self._stretch is not None
            self._profile = replace(self._profile, state=ProfileState.REFUSED, detail=str(error))
            log.warning("no profile", **self._place(), reason=str(error))
        else:
            self._profile = replace(
                self._profile,
                state=ProfileState.KEPT,
                totals={**reduction.totals, "duration_ms": duration_ms},
                warnings=reduction.warnings,
                kernels=reduction.kernels,
            )
            log.info("profile", **self._place(), why=self._profile.reason, kernels=len(reduction.kernels))
        self._store(self._profile)
        return Taken(self._subject, self._profile, self._stretch, capture, failed, died)

    def _record(self, tools: Tools, channel: Channel, duration_ms: int) -> tuple[Reduction, Capture | None]:
        subject, endpoint = self._subject, channel.endpoint
        if subject.process and endpoint:
            return take_by_channel(tools, endpoint, subject.process, duration_ms, self, gpu=subject.gpu)
        if subject.scheduler:
            directory = tools.settings.socket_dir
            return take_by_start_profile(tools, subject.scheduler, directory, self, gpu=subject.gpu), None
        raise TakingError(
            f"process {subject.pid} does not ask for profiles: start it with KINETO_USE_DAEMON=1 and "
            f"KINETO_IPC_SOCKET_DIR={tools.settings.socket_dir}; `cyclewatch doctor` says more"
        )

    def _store(self, profile: StoredProfile) -> None:
        view = self._subject.view
        self._submit(Unit(self._clock().wall_ns, runs=[view.run] if view else [], profiles=[profile]))

    def _utc(self, at_ns: int) -> int:
        now = self._clock()
        return at_ns + now.wall_ns - now.monotonic_ns

    def _place(self) -> dict[str, str | int]:
        return {"target": self._subject.target, "rank": self._subject.rank, "pid": self._subject.pid}
