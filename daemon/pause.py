"""A pause of all sampling, so that somebody can measure the servers without it.

It ends when whoever asked for it hangs up, be it by being killed, and at its deadline at the latest.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from cyclewatch.daemon.control import Answer

log = structlog.get_logger(__name__)

LONGEST_S = 30.0
"""Rings must hold what is written meanwhile: 54 s at 300 cycles a second."""


class Pause:
    """At most one at a time. `hold` stops sampling, or refuses, and `release` lets it go on."""

    def __init__(self, hold: Callable[[], bool], release: Callable[[], None]) -> None:
        self._hold = hold
        self._release = release
        self._lock = threading.Lock()
        self._number = 0
        self._timer: threading.Timer | None = None

    @property
    def active(self) -> bool:
        """Whether sampling is paused at present."""
        return self._timer is not None

    def answer(self, question: Mapping[str, Any]) -> Answer | None:
        """Begin a pause if that is asked; None for any other question."""
        match question:
            case {"do": "pause", "seconds": int() | float() as seconds} if 0 < seconds <= LONGEST_S:
                return self._begin(seconds)
        return None

    def done(self, answer: Answer) -> None:
        """The asker has hung up: if it was given a pause, that is over."""
        if "pause" in answer:
            self._end(answer["pause"])

    def end(self) -> None:
        """End the pause, if there is one."""
        self._end(self._number)

    def _begin(self, seconds: float) -> Answer:
        with self._lock:
            if self._timer is not None:
                return {"error": "sampling is paused already: somebody else measures"}
            if not self._hold():
                return {"error": "a kernel profile or a probe is under way: try again in some seconds"}
            self._number += 1
            self._timer = threading.Timer(seconds, self._overdue, [self._number])
            self._timer.daemon = True
            self._timer.start()
            return {"pause": self._number}

    def _overdue(self, number: int) -> None:
        log.warning("a pause was not ended in time; sampling goes on")
        self._end(number)

    def _end(self, number: int) -> None:
        with self._lock:
            if self._timer is not None and number == self._number:
                self._timer.cancel()
                self._release()
                self._timer = None
