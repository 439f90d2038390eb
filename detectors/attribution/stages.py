"""What the split itself shows: which stage became longer, and whether the scheduler's thread computed in it or not."""

from collections.abc import Iterator
from dataclasses import dataclass

from cyclewatch.config.causes import CausalGraph, Way
from cyclewatch.detectors.attribution.candidates import Candidate
from cyclewatch.detectors.attribution.growth import Growth
from cyclewatch.detectors.attribution.readings import Readings
from cyclewatch.detectors.attribution.sentences import grown
from cyclewatch.detectors.attribution.split import GPU_WAITS, WAIT
from cyclewatch.detectors.split_part import SplitPart

_LEAST_SHARE = 0.2
"""Smallest part of the slowdown that makes a stage worth a line."""

_MOSTLY = 0.6
_ALIKE = 0.5
"""How much of what a stop of the whole process would add to the other stages they must have got at least."""

_RUN_QUEUE = "host.run_queue_wait_ratio"
"""The wait for a CPU, which is told exactly: what it added is set off, and not taken for a stop."""

_WAITS: tuple[tuple[str, dict[str, str]], ...] = (
    ("host.major_faults_per_s", {}),
    ("host.pressure_ratio", {"resource": "[!c]*"}),
    ("host.cpu_mode_ratio", {"mode": "steal"}),
)
"""What else a process may wait for: all of it must have been read, and must not have moved, for a stop to be concluded.

Of pressure all but that on CPUs, which is the run queue's.
"""

_LEAST_REST = 0.02
"""Part of the cycle that the other stages must take for that to be told."""

STAGE_TEXT = {
    "schedule": "choosing the next batch",
    "input": "taking in requests",
    "launch": "run_batch",
    "wait": "the device",
    "result": "handling results",
    "rest": "outside the hooked stages",
}


@dataclass(frozen=True)
class Symptom:
    """A stage that became longer; `located` where it tells what the thread did wrong: it was off the CPU in there."""

    kind: str
    subject: str
    share: float
    located: bool
    proof: tuple[str, ...]


def symptoms(growth: Growth) -> Iterator[Symptom]:
    """Every stage that makes a good part of the slowdown.

    Where the CPU time of the scheduler's thread is known, the growth of the host stages is told apart into time in
    which it computed and time in which it was off the CPU: asleep, blocked, or waiting for one.
    """
    idle_us = growth.room_us([name for name in GPU_WAITS if name in growth.parts])
    if growth.share(idle_us) >= _LEAST_SHARE:
        proof = f"idle {idle_us / 1e3:+.3f} of {growth.total_us / 1e3:+.3f} ms"
        yield Symptom("gpu_idle", "the GPU waits for the host", growth.share(idle_us), located=False, proof=(proof,))
    for stage, text in STAGE_TEXT.items():
        part = growth.parts.get(stage)
        if part is None or growth.share(part.delta_us) < _LEAST_SHARE:
            continue
        proof = grown(part, growth.total_us)
        if stage == WAIT or growth.off_us is None:
            share = growth.share(part.delta_us)
            yield Symptom(f"stage_{stage}", f"{text}: takes longer", share, located=False, proof=(proof,))
        else:
            yield from _by_way(part, text, proof, growth)


def _by_way(part: SplitPart, text: str, proof: str, growth: Growth) -> Iterator[Symptom]:
    ways = (
        (Way.BLOCKED, "the scheduler thread is off the CPU longer", True),
        (Way.BUSY, "the scheduler thread computes longer", False),
    )
    for way, what, located in ways:
        us = part.delta_us * growth.way_us(way) / growth.grown_us
        if growth.share(us) >= _LEAST_SHARE:
            used = f"{us / 1e3:+.3f} ms of it {'off the CPU' if way is Way.BLOCKED else 'on the CPU'}"
            yield Symptom(f"stage_{part.part}_{way}", f"{text}: {what}", growth.share(us), located, (proof, used))


def stopped(growth: Growth, readings: Readings, graph: CausalGraph) -> Candidate | None:
    """The whole process was off the CPU now and then: all stages became longer alike, and nothing was waited for.

    A stall in the code makes one stage longer. What stops the process, a signal or the freezer, comes at any moment.
    """
    kind = graph.kinds["stopped"]
    queued_us = _queued_us(growth, readings)
    if growth.off_us is None or queued_us is None:
        return None
    off_us, grown_us = growth.way_us(Way.BLOCKED) - queued_us, growth.grown_us - queued_us
    if off_us < _MOSTLY * grown_us or growth.share(off_us) < _LEAST_SHARE:
        return None
    if not all(readings.moved(name, labels) is False for name, labels in _WAITS):
        return None
    most = max(growth.parts.values(), key=lambda part: part.delta_us)
    rest = [part for part in growth.parts.values() if part is not most]
    rest_before_us, rest_us = sum(part.before_us for part in rest), sum(part.delta_us for part in rest)
    if most.before_us <= 0 or rest_before_us < _LEAST_REST * growth.before_us:
        return None
    expected_us = rest_before_us * most.delta_us / most.before_us
    if rest_us < _ALIKE * expected_us:
        return None
    of_most, of_rest = most.after_us / most.before_us, (rest_before_us + rest_us) / rest_before_us
    proof = (
        f"{most.part} takes {of_most:.2f} times as long, the other stages {of_rest:.2f} times",
        f"{off_us / 1e3:+.3f} of {growth.total_us / 1e3:+.3f} ms are off the CPU, and not in its run queue",
        *(f"{name} did not move" for name, _ in _WAITS),
    )
    return Candidate(kind, "", None, exact=False, weight=1.0, proof=proof)


def _queued_us(growth: Growth, readings: Readings) -> float | None:
    """How much longer the scheduler's thread waited for a CPU, in a cycle; None where that was not read.

    Surely or not: where the time before was restless too, a stop is no better explanation than the wait is.
    """
    changes = [change for _, change in readings.of(_RUN_QUEUE)]
    if not changes:
        return None
    return max(0.0, *(one.after * growth.after_us - one.before * growth.before_us for one in changes))
