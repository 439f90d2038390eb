"""A thread for calls that may never return: whoever asks waits only so long, and takes what is there by then."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cyclewatch.collectors.gpu.calls import CallWatch
from cyclewatch.collectors.records import Failure, Sample

_SPOKEN_S = (10, 60, 600, 3600)
"""A stall is told in these steps, so that it is a new message only at each of them."""


@dataclass
class Turn:
    """One piece of work: it adds samples as it goes, and ends early once `abandoned`."""

    work: Callable[["Turn"], None]
    samples: list[Sample] = field(default_factory=list)
    abandoned: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    began_s: float = 0.0


class Worker:
    """Runs turns one after the other in one thread of its own, which begins with the first."""

    def __init__(self, watch: CallWatch, deadline_s: float) -> None:
        self._watch = watch
        self._deadline_s = deadline_s
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stalled: Turn | None = None

    def run(self, work: Callable[[Turn], None]) -> list[Sample]:
        """What the work gave. Where one call lasts past the deadline, what it gave until then, and a `Failure`.

        Until that call returns, no other work begins.

        Raises:
            Exception: what the work raised.
        """
        if self._stalled is not None:
            if not self._stalled.done.is_set():
                return [self._failure(self._stalled)]
            self._stalled = None
        turn = Turn(work, began_s=time.monotonic())
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="nvml", daemon=True)
            self._thread.start()
        self._turns.put(turn)
        serial = -1
        while not turn.done.wait(self._deadline_s):
            if self._watch.serial == serial:  # the same call for the whole of that wait
                turn.abandoned = True
                self._stalled = turn
                return [*turn.samples, self._failure(turn)]
            serial = self._watch.serial
        if turn.error is not None:
            raise turn.error
        return turn.samples

    def close(self, last: Callable[[], None]) -> None:
        """Do a last piece of work, and end the thread. Where a call keeps it, both come once that returns."""
        if self._thread is None:
            return
        self._turns.put(Turn(lambda _: last()))
        self._turns.put(None)
        self._thread.join(self._deadline_s)

    def _loop(self) -> None:
        while (turn := self._turns.get()) is not None:
            try:
                turn.work(turn)
            except Exception as error:  # noqa: BLE001 (raised again where the work was ordered)
                turn.error = error
            turn.done.set()

    def _failure(self, turn: Turn) -> Failure:
        waited_s = time.monotonic() - turn.began_s
        spoken_s = max((step for step in _SPOKEN_S if step <= waited_s), default=self._deadline_s)
        call = self._watch.current or "a call"
        return Failure(
            "nvml",
            f"NVML call {call} has not returned for {spoken_s:g} s: no GPU is read until it does; the kernel's log "
            "may tell why (dmesg | grep NVRM)",
        )
