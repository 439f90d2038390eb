"""Samples on their way from the threads of the collectors to the pipeline's."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

from prometheus_client import Counter

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.records import CycleBatch, Sample

_CAPACITY = 20_000
_WAIT_S = 0.5


class SampleQueue:
    """Bounded. Cycles wait for room, since the ring keeps what is not read yet; others are dropped.

    Args:
        now: both clocks.
        stopping: set when nobody will take anything any more: then nothing waits.
        dropped: counts what found no room.
    """

    def __init__(
        self, now: Callable[[], Now], stopping: threading.Event, dropped: Counter, capacity: int = _CAPACITY
    ) -> None:
        self._now = now
        self._stopping = stopping
        self._dropped = dropped
        self._queue: queue.Queue[tuple[Sample, Now]] = queue.Queue(capacity)

    @property
    def waiting(self) -> int:
        """How many samples have not been taken yet."""
        return self._queue.qsize()

    def put(self, sample: Sample) -> None:
        """Queue a sample with the moment at which it came; called from the threads of collectors."""
        item = (sample, self._now())
        waits = isinstance(sample, CycleBatch)
        while True:
            try:
                self._queue.put(item, block=waits, timeout=_WAIT_S)
            except queue.Full:
                if waits and not self._stopping.is_set():
                    continue
                self._dropped.inc()
            return

    def take(self) -> Iterator[tuple[Sample, Now]]:
        """All that is queued, in the order in which it came."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()
