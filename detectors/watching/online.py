"""The online statistic: a two-sided CUSUM, O(1) a window, that raises a suspicion."""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_CLIP_SIGMAS = 4.0
_BISECTION_STEPS = 60


class Direction(StrEnum):
    """Which way a cycle time went."""

    SLOWER = "slower"
    FASTER = "faster"


@dataclass(frozen=True)
class Suspicion:
    """The CUSUM crossed its threshold: since `since_index` the series seems to run higher or lower."""

    direction: Direction
    since_ns: int
    score: float


@dataclass
class CusumState:
    """Two one-sided sums and where each last left zero."""

    high: float = 0.0
    low: float = 0.0
    high_since: int = -1
    low_since: int = -1


class Cusum:
    """Page's CUSUM around a level, for values with long-run standard deviation `sigma`.

    `drift` is half of the shift it is tuned to. The threshold gives a mean of `run_length` windows between
    false suspicions, by Siegmund's approximation for Brownian motion: ARL = (exp(2kh) - 2kh - 1) / (2 k^2) in
    units of sigma. A single value counts for at most four sigmas, so that a spike alone raises nothing.
    """

    def __init__(self, level: float, sigma: float, drift: float, run_length: float) -> None:
        self._level = level
        self._sigma = sigma
        self._drift = drift
        k = self._drift / sigma
        self._threshold = sigma * _siegmund_threshold(k, run_length)
        self._state = CusumState()

    def update(self, at_ns: int, value: float) -> Suspicion | None:
        """Take the value of the window at `at_ns`; a suspicion as long as a sum stands above the threshold."""
        state = self._state
        limit = self._drift + _CLIP_SIGMAS * self._sigma
        step = min(max(value - self._level, -limit), limit)
        state.high = max(0.0, state.high + step - self._drift)
        state.low = max(0.0, state.low - step - self._drift)
        state.high_since = (at_ns if state.high_since < 0 else state.high_since) if state.high else -1
        state.low_since = (at_ns if state.low_since < 0 else state.low_since) if state.low else -1
        if state.high > self._threshold and state.high >= state.low:
            return Suspicion(Direction.SLOWER, state.high_since, state.high / self._threshold)
        if state.low > self._threshold:
            return Suspicion(Direction.FASTER, state.low_since, state.low / self._threshold)
        return None

    def state(self) -> dict[str, Any]:
        """The sums, as JSON values; level and noise are the owner's."""
        return asdict(self._state)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._state = CusumState(**state)


def _siegmund_threshold(k: float, run_length: float) -> float:
    """Threshold h, in sigmas, with (exp(2kh) - 2kh - 1) / (2 k^2) = run_length; found by bisection."""
    low, high = 0.0, math.log1p(2 * k * k * run_length) / k + 10.0
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        exponent = 2 * k * middle
        length = (math.expm1(min(exponent, 700.0)) - exponent) / (2 * k * k)
        low, high = (middle, high) if length < run_length else (low, middle)
    return high
