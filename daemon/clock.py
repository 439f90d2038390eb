"""Clocks: the system's, and one that runs faster for the demo."""

import time
from pathlib import Path
from typing import Protocol

from cyclewatch.collectors.base import Now


class Clock(Protocol):
    """Where the daemon takes time from."""

    def now(self) -> Now:
        """Both clocks, read together."""
        ...

    def real_seconds(self, seconds: float) -> float:
        """How long `seconds` of this clock really last."""
        ...


class SystemClock:
    """The clocks of the machine.

    UTC is the monotonic clock plus an offset that is taken anew only after a step of more than a second:
    windows keep their places while NTP slews.
    """

    _STEP_NS = 10**9

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> Now:
        """Both clocks, read together."""
        monotonic_ns = time.monotonic_ns()
        offset_ns = time.time_ns() - monotonic_ns
        if abs(offset_ns - self._offset_ns) > self._STEP_NS:
            self._offset_ns = offset_ns
        return Now(monotonic_ns, monotonic_ns + self._offset_ns)

    def real_seconds(self, seconds: float) -> float:
        """Seconds are seconds."""
        return seconds


def boot_id(proc: Path) -> str:
    """This boot of the machine, by its `/proc`: process ids and the monotonic clock begin anew with each."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


class ScaledClock:
    """A clock that runs `speed` times as fast from `origin` on, an instant that `real_origin_ns` stands for.

    `origin` is in the time of a recording; `real_origin_ns` is a reading of `time.monotonic_ns`, so that
    another process can run the same clock.
    """

    def __init__(self, origin: Now, real_origin_ns: int, speed: float) -> None:
        self._origin = origin
        self._real_origin_ns = real_origin_ns
        self._speed = speed

    def now(self) -> Now:
        """Both clocks, read together."""
        passed_ns = int((time.monotonic_ns() - self._real_origin_ns) * self._speed)
        return Now(self._origin.monotonic_ns + passed_ns, self._origin.wall_ns + passed_ns)

    def real_seconds(self, seconds: float) -> float:
        """Seconds of this clock pass faster."""
        return seconds / self._speed
