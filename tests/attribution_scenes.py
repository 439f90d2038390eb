"""Evidence made by hand, for the tests of attribution."""

from collections.abc import Mapping, Sequence

import numpy as np

from cyclewatch.detectors.attribution import Cause, Event, Evidence, StageMeans, Trace, causes, split

BEGAN_NS = 10**18
CPU_SERVER = (100e3, 10e3, 4000e3, 0.0, 300e3, 90e3)
"""Stages of a cycle without a GPU: nearly all is run_batch."""
GPU_SERVER = (300e3, 50e3, 1500e3, 7000e3, 900e3, 250e3)
"""Stages of a cycle with one: most of it the scheduler waits for the device."""
NAN = float("nan")


def trace(
    name: str,
    before: float,
    after: float,
    noise: float = 0.0,
    at_s: float = 0.0,
    pace_s: float = 5.0,
    after_s: float = 120.0,
    seed: int = 0,
    **labels: str,
) -> Trace:
    """A reading that steps from one level to another `at_s` after the slowdown began, with noise of a relative size."""
    times_s = np.arange(-600.0 + pace_s / 2, after_s, pace_s)
    levels = np.where(times_s < at_s, before, after)
    draws = np.random.default_rng(seed).standard_normal(len(times_s))
    return Trace(name, labels, BEGAN_NS + (times_s * 1e9).astype(np.int64), levels * (1 + noise * draws))


def slower(
    stages: Sequence[float],
    by_stage: Mapping[int, float],
    traces: Sequence[Trace] = (),
    events: Sequence[Event] = (),
    on_cpu: tuple[float, float] = (NAN, NAN),
) -> Evidence:
    """Evidence of cycles some of whose stages, by their place, take that many nanoseconds longer."""
    after = [time + by_stage.get(place, 0.0) for place, time in enumerate(stages)]
    return Evidence(
        BEGAN_NS,
        "tp0",
        before=[StageMeans(8, 1000, tuple(stages), on_cpu[0])],
        after=[StageMeans(8, 200, tuple(after), on_cpu[1])],
        synchronous=stages[3] == 0,
        traces=traces,
        events=events,
    )


def named(evidence: Evidence) -> tuple[Cause, ...]:
    """The causes of it."""
    return causes(evidence, split(evidence.before, evidence.after))


def kinds(evidence: Evidence) -> list[str]:
    """Their kinds, the first first."""
    return [cause.kind for cause in named(evidence)]
