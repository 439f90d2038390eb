"""What a simulated server is asked to do: batches, prefills, cached tokens."""

import math
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.phases import Bools, Floats, Integers, Phase

PHASES = (Phase.DECODE, Phase.DECODE_BESIDE_EXTEND, Phase.EXTEND)
"""The phases of simulated cycles; arrays number them in this order."""

DECODE, BESIDE, EXTEND = range(3)

_WALK_STEP = 0.1
_KV_GROWTH = 0.15
_KV_PERIOD_CYCLES = 40.0
_HIT_SPREAD = 0.15
_HIT_MAX = 0.95


@dataclass(frozen=True)
class Traffic:
    """The load of a server. Cycles are a sample: a window has far fewer than a real one, of the same kinds.

    `decodes` cycles a window only decode; at mean load `extends` prefills come on top, each launched beside one more
    decode. `batch_size` is the mean number of running requests. Load walks between 1 - `swing` and 1 + `swing` of its
    mean, crossing half of that in about `swing_windows`, jumps every `jump_windows` on average (0 never), and
    follows the day by `diurnal`. Requests have `context_tokens` cached tokens each, changing by `context_spread` (a
    standard deviation of logs) within `swing_windows`. A prompt has `prompt_tokens`, spread by `prompt_spread` (of
    logs); the part `cache_hit` of it is found in the prefix cache, and that part changes by up to
    `cache_hit_change` every `cache_hit_windows` on average (0 never).
    """

    decodes: int = 32
    extends: float = 20.0
    batch_size: float = 24.0
    batch_size_max: int = 256
    swing: float = 0.5
    swing_windows: float = 60.0
    jump_windows: float = 720.0
    diurnal: float = 0.0
    day_windows: int = 17_280
    context_tokens: float = 1500.0
    context_spread: float = 0.3
    prompt_tokens: float = 1200.0
    prompt_spread: float = 0.6
    cache_hit: float = 0.5
    cache_hit_change: float = 0.3
    cache_hit_windows: float = 360.0
    chunk_tokens: int = 8192

    def __post_init__(self) -> None:
        """Refuse traffic that no server could have."""
        if self.decodes < 0 or self.extends < 0 or self.decodes + self.extends == 0:
            raise ValueError("traffic needs decodes or extends")
        if not (0 <= self.swing + self.diurnal < 1 and 0 <= self.cache_hit <= 1):
            raise ValueError("swing and diurnal together must be below 1, cache_hit a ratio")


STEADY = Traffic(
    extends=0.0, swing=0.0, jump_windows=0.0, context_spread=0.0, cache_hit_change=0.0, cache_hit_windows=0.0
)
"""Decodes only, of one mean batch size."""


@dataclass(frozen=True)
class Load:
    """The cycles of some windows in order of time; arrays of shape (n,), except the last two, of shape (windows,).

    `phase` numbers `PHASES`. `launched_*` is the prefill that was launched beside a decode. `level` is the load of
    a window against the mean, `cache_hit` its mean ratio of prompts that was cached.
    """

    window: Integers
    phase: Integers
    batch_size: Floats
    new_tokens: Floats
    kv_tokens: Floats
    running: Floats
    launched_requests: Floats
    launched_tokens: Floats
    level: Floats
    cache_hit: Floats


class LoadSource:
    """Draws the load of a server, block by block."""

    def __init__(self, traffic: Traffic, random: np.random.Generator) -> None:
        self._traffic = traffic
        self._random = random
        self._window = 0
        self._swing = float(random.uniform(-1, 1))
        self._context = float(random.normal())
        self._hit = float(random.uniform(-1, 1)) if traffic.cache_hit_windows else 0.0

    def block(self, windows: int) -> Load:
        """The load of the next `windows` windows."""
        traffic, random = self._traffic, self._random
        level, context, hit = self._levels(windows)
        prefills = random.binomial(2 * math.ceil(traffic.extends), np.minimum(level / 2, 1.0) * _part(traffic.extends))
        units = traffic.decodes + prefills
        window = np.repeat(np.arange(windows), units)
        is_prefill = _scattered(random, window, units, prefills)
        walk = _centred_walk(random, window, units)
        size = np.clip(np.rint(traffic.batch_size * level[window] + walk), 1, traffic.batch_size_max)
        growth = ((np.arange(len(window)) / _KV_PERIOD_CYCLES) % 1 - 0.5) * 2 * _KV_GROWTH
        kv_tokens = np.rint(size * context[window] * (1 + growth))
        requests = 1.0 + random.poisson(0.5, len(window))
        mean = math.log(traffic.prompt_tokens) - traffic.prompt_spread**2 / 2
        prompt = np.rint(requests * np.exp(random.normal(mean, traffic.prompt_spread, len(window)))) + 1
        cached = np.clip(hit[window] + random.normal(0, _HIT_SPREAD, len(window)), 0, _HIT_MAX)
        new = np.clip(np.rint(prompt * (1 - cached)), 1, traffic.chunk_tokens)
        # A prefill is two cycles: the decode it was launched beside, then itself.
        cycles = 1 + is_prefill
        unit = np.repeat(np.arange(len(window)), cycles)
        second = np.zeros(len(unit), np.bool_)
        second[1:] = unit[1:] == unit[:-1]
        phase = np.where(second, EXTEND, np.where(is_prefill[unit], BESIDE, DECODE))
        beside = phase == BESIDE
        return Load(
            window=window[unit],
            phase=phase,
            batch_size=np.where(second, requests[unit], size[unit]),
            new_tokens=np.where(second, new[unit], 0.0),
            kv_tokens=np.where(second, np.maximum(prompt, new)[unit], kv_tokens[unit]),
            running=size[unit],
            launched_requests=np.where(beside, requests[unit], 0.0),
            launched_tokens=np.where(beside, new[unit], 0.0),
            level=level,
            cache_hit=hit,
        )

    def _levels(self, windows: int) -> tuple[Floats, Floats, Floats]:
        """Load against its mean, cached tokens of a request, and cache-hit ratio, each of shape (windows,)."""
        traffic, random = self._traffic, self._random
        steps = random.normal(size=(windows, 2)).tolist()
        chances = random.uniform(size=(windows, 2)).tolist()
        targets = random.uniform(-1, 1, (windows, 2)).tolist()
        jump = 1 / traffic.jump_windows if traffic.jump_windows else 0.0
        change = 1 / traffic.cache_hit_windows if traffic.cache_hit_windows else 0.0
        step = 1 / math.sqrt(traffic.swing_windows)
        keep = math.exp(-1 / traffic.swing_windows)
        states = np.empty((windows, 3))
        for number in range(windows):
            self._swing = targets[number][0] if chances[number][0] < jump else self._swing + step * steps[number][0]
            self._swing = _reflected(self._swing)
            self._context = keep * self._context + math.sqrt(1 - keep**2) * steps[number][1]
            self._hit = targets[number][1] if chances[number][1] < change else self._hit
            states[number] = self._swing, self._context, self._hit
        day = 2 * np.pi * (self._window + np.arange(windows)) / traffic.day_windows
        self._window += windows
        level = 1 + traffic.swing * states[:, 0] + traffic.diurnal * np.sin(day)
        context = traffic.context_tokens * np.exp(traffic.context_spread * states[:, 1])
        hit = np.clip(traffic.cache_hit + traffic.cache_hit_change * states[:, 2], 0, _HIT_MAX)
        return level, context, hit


def _part(extends: float) -> float:
    """What of the rounded-up number of prefills is wanted."""
    return extends / math.ceil(extends) if extends else 0.0


def _reflected(value: float) -> float:
    """`value` thrown back at -1 and 1."""
    folded = (value + 1) % 4
    return folded - 1 if folded <= 2 else 3 - folded  # noqa: PLR2004 (the way from -1 to 1 and back is 4)


def _scattered(random: np.random.Generator, window: Integers, units: Integers, prefills: Integers) -> Bools:
    """Which units are prefills, at random places within their windows; shape (n,)."""
    order = np.lexsort((random.uniform(size=len(window)), window))
    first = np.cumsum(units) - units
    chosen = np.zeros(len(window), np.bool_)
    chosen[order] = np.arange(len(window)) - first[window] < prefills[window]
    return chosen


def _centred_walk(random: np.random.Generator, window: Integers, units: Integers) -> Floats:
    """A random walk of the batch size within each window, around 0; shape (n,)."""
    draws = random.uniform(size=len(window))
    walk = np.cumsum((draws < _WALK_STEP).astype(np.float64) - (draws > 1 - _WALK_STEP))
    centred: Floats = walk - (np.bincount(window, walk, len(units)) / np.maximum(units, 1))[window]
    return centred
