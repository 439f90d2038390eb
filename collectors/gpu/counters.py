"""Counters to what happened between two readings of them."""

import math
from typing import NamedTuple


class Increase(NamedTuple):
    """By how much a counter went up, and in what time."""

    by: float
    elapsed_ns: int


class Counters:
    """The last readings of counters, by name."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def increase(self, name: str, value: float, at_ns: int, patience_ns: int = 0) -> Increase | None:
        """The increase since the last time there was one to tell.

        A counter that stands still has none to tell until `patience_ns` are over; then it has one of nothing.

        None also at the first reading, where no time passed, and where the counter went backwards (it wrapped, or the
        driver was loaded anew) or holds no number: from there it counts anew.
        """
        if not math.isfinite(value) or value < 0:
            self._last.pop(name, None)
            return None
        last = self._last.get(name)
        if last is not None and value == last[0] and 0 <= at_ns - last[1] < patience_ns:
            return None
        self._last[name] = value, at_ns
        if last is None or value < last[0] or at_ns <= last[1]:
            return None
        return Increase(value - last[0], at_ns - last[1])
