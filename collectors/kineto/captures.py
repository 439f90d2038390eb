"""One capture of one process: asked for, handed out, recorded, and its file taken over.

Libkineto opens `FILE.tmp` when it is configured, records, and renames it when it has written all of it, each from a
thread of its own. While it does, it does not say in its polls that it is free; a synchronous profile
(`/start_profile`, `torch.profiler`) takes its place without a word, and the file never comes.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cyclewatch.collectors.kineto.directory import TRACE_PREFIX
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.collectors.kineto.protocol import CaptureOrder

POLL_WAIT_NS = 15 * 10**9
"""Three polls: a process that has not taken the order by then is not going to."""

START_WAIT_NS = 12 * 10**9
"""Libkineto's profiler thread begins 1 s after the process has read the order, at the latest at its next poll. A file
that has not been opened by then is elsewhere."""

BEGIN_NS = 10**9 // 2
"""So long after it has opened its file a process may still call itself free."""

BEHIND_NS = 4 * 10**9
"""A process that begins later than this has read the order at its next poll only."""

WRITE_WAIT_NS = 60 * 10**9
"""How long writing may take after the recording has ended."""


ROOM_BYTES = 64 * 2**20
"""Least room for a trace, however short it is."""

ROOM_BYTES_A_SECOND = 100 * 10**6
"""Room for a second of a trace: 300 ms of CPU operators at full speed are 20 MB."""


class Failure(StrEnum):
    """Why there is no profile."""

    NOT_TAKEN = "not_taken"
    BUSY = "busy"
    NO_FILE = "no_file"
    CANCELLED = "cancelled"
    ENDED = "ended"
    UNFINISHED = "unfinished"
    NO_ROOM = "no_room"


NOT_OURS = frozenset({Failure.BUSY, Failure.CANCELLED, Failure.ENDED})
"""Failures that say nothing against trying again: somebody else was at it, or the process was stopped."""


class CaptureError(Exception):
    """A capture led to nothing; one sentence for people, and the kind."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


@dataclass(frozen=True)
class Exposure:
    """When a process was exposed to profiling, in monotonic nanoseconds.

    `handed_out_ns` is the order, `configured_ns` when its file was seen (CUPTI is on from then), `ended_ns` when the
    file was complete.
    """

    handed_out_ns: int
    configured_ns: int
    ended_ns: int


def check_room(directory: Path, duration_ms: int) -> None:
    """See that there is room for a trace of `duration_ms`.

    Raises:
        CaptureError: there is not.
    """
    status = os.statvfs(directory)
    free_bytes = status.f_bavail * status.f_frsize
    needed_bytes = max(ROOM_BYTES, ROOM_BYTES_A_SECOND * duration_ms // 1000)
    if free_bytes < needed_bytes:
        raise CaptureError(
            Failure.NO_ROOM,
            f"{directory}: {free_bytes} bytes free, fewer than the {needed_bytes} that a trace of {duration_ms} ms may "
            "take: make room there, or record for a shorter time",
        )


class Capture:
    """Records `duration_ms` of one process to a file in `directory`; `token` makes the name of the file.

    `check` is called until it gives true; `poll` is called by the endpoint when the process asks.
    """

    def __init__(
        self,
        process: KinetoProcess,
        directory: Path,
        token: str,
        duration_ms: int,
        activities: tuple[str, ...],
        clock_ns: Callable[[], int],
    ) -> None:
        self.process = process
        self.order = CaptureOrder(str(directory / f"{TRACE_PREFIX}{token}.json"), duration_ms, activities)
        self.path = Path(self.order.file_name(process.own_pid))
        self._temporary = self.path.with_name(f"{self.path.name}.tmp")
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._asked_ns = clock_ns()
        self._seen_busy = False
        self._handed_out_ns = 0
        self._configured_ns = 0
        self._free_again_ns = 0

    def poll(self, process: KinetoProcess) -> str:
        """The process asks: the order, once."""
        with self._lock:
            if self._handed_out_ns:
                now_ns = self._clock_ns()
                if process.free and self._configured_ns and now_ns - self._configured_ns > BEGIN_NS:
                    self._free_again_ns = now_ns
                return ""
            if not process.free:
                self._seen_busy = True
                return ""
            self._handed_out_ns = self._clock_ns()
            return self.order.text

    @property
    def behind(self) -> bool:
        """Whether the process read the order one poll late, as it will all further answers."""
        return self._configured_ns - self._handed_out_ns > BEHIND_NS

    @property
    def handed_out_ns(self) -> int:
        """When the process took the order, 0 if it has not."""
        return self._handed_out_ns

    def check(self, *, alive: bool) -> Exposure | None:
        """How far it is: None while it goes on, the exposure once the file is complete.

        Raises:
            CaptureError: nothing will come of it.
        """
        with self._lock:
            now_ns, free_again_ns = self._clock_ns(), self._free_again_ns
            complete = self.path.exists()  # before anything that could only be told afterwards
            if complete and self._handed_out_ns:
                return Exposure(self._handed_out_ns, self._configured_ns or self._handed_out_ns, now_ns)
            if not self._configured_ns and self._handed_out_ns and self._temporary.exists():
                self._configured_ns = now_ns
        if not alive:
            raise CaptureError(Failure.ENDED, f"process {self.process.pid} ended before its profile was complete")
        if not self._handed_out_ns:
            self._check_taken(now_ns)
        elif free_again_ns:
            # It says that it is free, and the file would have had its name before that.
            raise CaptureError(
                Failure.CANCELLED,
                f"another profile of process {self.process.pid}, such as /start_profile, took the place of this one",
            )
        elif not self._configured_ns:
            if now_ns - self._handed_out_ns > START_WAIT_NS:
                raise CaptureError(
                    Failure.NO_FILE,
                    f"process {self.process.pid} took the order, but writes no file in {self.path.parent}: set "
                    f"KINETO_ONDEMAND_TRACE_DIR={self.path.parent} for it, and see that its user may write there",
                )
        elif now_ns - self._configured_ns > self.order.duration_ms * 10**6 + WRITE_WAIT_NS:
            raise CaptureError(
                Failure.UNFINISHED, f"{self.path.name}: not complete {WRITE_WAIT_NS // 10**9} s after the recording"
            )
        return None

    def _check_taken(self, now_ns: int) -> None:
        if now_ns - self._asked_ns <= POLL_WAIT_NS:
            return
        if self._seen_busy:
            raise CaptureError(Failure.BUSY, f"process {self.process.pid} is being profiled by somebody else")
        raise CaptureError(
            Failure.NOT_TAKEN, f"process {self.process.pid} has not asked for {POLL_WAIT_NS // 10**9} s: does it hang?"
        )

    def remove(self) -> None:
        """Remove what there is of the file."""
        for path in (self.path, self._temporary):
            path.unlink(missing_ok=True)
