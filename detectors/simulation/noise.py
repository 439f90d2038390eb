"""What makes simulated cycles differ from their cost although nothing is wrong."""

import math
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.phases import Bools, Floats, Integers
from cyclewatch.detectors.simulation.traffic import PHASES


@dataclass(frozen=True)
class Noise:
    """Noise of a server; sigmas are standard deviations of log cycle times.

    All cycles of a window share a level: a first-order autoregression between windows with `window_sigma` (stationary)
    and `correlation`; the part `common` of its variance is the same in all phases, the rest each phase's own. The part
    `disturbed` of the windows runs higher by `disturbed_sigmas` window sigmas, alone. Each cycle has `cycle_sigma` on
    top, normal, or Student's t with `tail_freedom` degrees of freedom (scaled to the same sigma); the part `spikes` of
    the cycles takes `spike_factor` times as long. Python collects garbage `collections` times a window on average,
    for `collection_ns` on average.
    """

    window_sigma: float = 0.02
    correlation: float = 0.5
    common: float = 0.5
    disturbed: float = 0.0
    disturbed_sigmas: float = 10.0
    cycle_sigma: float = 0.02
    tail_freedom: float | None = None
    spikes: float = 0.001
    spike_factor: float = 5.0
    collections: float = 0.05
    collection_ns: float = 20_000_000

    def __post_init__(self) -> None:
        """Refuse noise that cannot be."""
        if not 0 <= self.correlation < 1 or not 0 <= self.common <= 1:
            raise ValueError("correlation must be in [0, 1) and common in [0, 1]")
        if self.tail_freedom is not None and self.tail_freedom <= 2:  # noqa: PLR2004 (no variance)
            raise ValueError("tail_freedom must be above 2")


QUIET = Noise(window_sigma=0.0, correlation=0.0, cycle_sigma=0.0, spikes=0.0, collections=0.0)
"""No noise at all."""


@dataclass(frozen=True)
class Disturbances:
    """Noise of some windows: `level` (a log) of shape (windows, phases); the others of shape (n,).

    `ratio` is the log by which a cycle is longer, its window's level included; `collected_ns` the garbage collection
    that fell into it, 0 for none, and `generation` that of the collection.
    """

    level: Floats
    ratio: Floats
    collected_ns: Integers
    generation: Integers


class NoiseSource:
    """Draws the noise of a server, block by block."""

    def __init__(self, noise: Noise, random: np.random.Generator) -> None:
        self._noise = noise
        self._random = random
        # One walk for all phases and one for each.
        self._state: Floats = random.normal(size=len(PHASES) + 1)

    def block(self, windows: int, window: Integers, phase: Integers) -> Disturbances:
        """Noise of the next `windows` windows, whose cycles have these window and phase numbers, shape (n,)."""
        noise, random = self._noise, self._random
        level = self._levels(windows)
        count = len(window)
        if noise.tail_freedom is None:
            own = random.normal(size=count)
        else:
            own = random.standard_t(noise.tail_freedom, count) * math.sqrt(1 - 2 / noise.tail_freedom)
        spike = random.uniform(size=count) < noise.spikes
        ratio = level[window, phase] + noise.cycle_sigma * own + np.where(spike, math.log(noise.spike_factor), 0.0)
        collected: Bools = random.uniform(size=count) < noise.collections * windows / max(count, 1)
        lengths = random.lognormal(math.log(max(noise.collection_ns, 1)) - 0.125, 0.5, count)
        return Disturbances(
            level=level,
            ratio=ratio,
            collected_ns=np.where(collected, np.maximum(lengths, 1), 0).astype(np.int64),
            generation=random.choice(3, count, p=(0.7, 0.2, 0.1)),
        )

    def _levels(self, windows: int) -> Floats:
        """Levels of the next windows, shape (windows, phases)."""
        noise, random = self._noise, self._random
        drawn = random.normal(size=(windows, len(PHASES) + 1)) * math.sqrt(1 - noise.correlation**2)
        for number in range(windows):
            self._state = drawn[number] = noise.correlation * self._state + drawn[number]
        level = math.sqrt(noise.common) * drawn[:, :1] + math.sqrt(1 - noise.common) * drawn[:, 1:]
        level += noise.disturbed_sigmas * (random.uniform(size=(windows, 1)) < noise.disturbed)
        scaled: Floats = noise.window_sigma * level
        return scaled
