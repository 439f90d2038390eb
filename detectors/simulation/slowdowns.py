"""Slowdowns of known place, size, shape and cause."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.phases import Floats, Integers, Phase


class Shape(StrEnum):
    """How a slowdown goes on."""

    STEP = "step"
    """All of it from the first window to the last."""
    RAMP = "ramp"
    """Grows evenly over its first `period_windows`, then stays."""
    BURST = "burst"
    """There for the first `on` part of every `period_windows`."""
    TAIL = "tail"
    """All the time, but only the part `on` of the cycles is slower: the median hardly moves."""


@dataclass(frozen=True)
class Slowdown:
    """A slowdown from `start_window` to before `end_window` (None: for ever).

    Its cycles take longer by the ratio `size`; the time is added to `stage`. `phase` is None for all phases.
    `on_cpu` tells whether the scheduler thread computes meanwhile; in the stage `wait` it never does.
    """

    shape: Shape = Shape.STEP
    start_window: int = 0
    end_window: int | None = None
    size: float = 0.03
    phase: Phase | None = None
    stage: str = "wait"
    on_cpu: bool = True
    period_windows: int = 60
    on: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.stage not in STAGES:
            raise ValueError(f"no stage {self.stage}: one of {', '.join(STAGES)}")
        if self.size < 0 or self.period_windows < 1 or not 0 <= self.on <= 1:
            raise ValueError("a slowdown needs size >= 0, period_windows >= 1 and on between 0 and 1")

    def strength(self, windows: Integers) -> Floats:
        """The ratio by which cycles of these windows are slower (of a tail: its cycles), shape kept."""
        since = windows - self.start_window
        active = since >= 0
        if self.end_window is not None:
            active &= windows < self.end_window
        part = np.ones(len(windows))
        if self.shape is Shape.RAMP:
            part = np.minimum((since + 1) / self.period_windows, 1.0)
        elif self.shape is Shape.BURST:
            part = (since % self.period_windows < max(1, round(self.on * self.period_windows))).astype(np.float64)
        strength: Floats = np.where(active, self.size * part, 0.0)
        return strength
