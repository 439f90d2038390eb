"""Naming what is behind a change, from cycle records, host readings and events.

Every claim has its evidence and its share of the slowdown; what nothing explains is said to be unexplained.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from cyclewatch.detectors.attribution.evidence import Cause, Evidence, StageMeans, Status
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.split_part import SplitPart

_SHARE_MIN = 0.2
"""Smallest part of the slowdown that makes a candidate worth a line."""

_EXPLAINED = 0.5
"""Part of the slowdown from which on a cause on the host makes the stage it falls into a consequence."""

STAGE_TEXT = {
    "schedule": "choosing the next batch",
    "input": "taking in requests",
    "launch": "run_batch",
    "wait": "the device",
    "result": "handling results",
    "rest": "outside the hooked stages",
}


def causes(evidence: Evidence, parts: Sequence[SplitPart]) -> tuple[Cause, ...]:
    """Candidates for a slowdown, most likely first; says so where nothing explains it."""
    before_us, after_us = sum(part.before_us for part in parts), sum(part.after_us for part in parts)
    total_us = after_us - before_us
    if not parts or total_us <= 0:
        return ()
    found = list(_ratio_causes(evidence, before_us, after_us))
    explained = max((cause.share or 0.0 for cause in found), default=0.0)
    found.extend(_stage_causes(evidence, parts, before_us, after_us, explained))
    found.extend(_event_causes(evidence))
    if not any(cause.share and cause.share >= _SHARE_MIN for cause in found):
        found.append(
            Cause(
                "unexplained",
                "no part of the cycle stands out",
                0.1,
                None,
                Status.NOT_SHOWN,
                (_total(before_us, after_us),),
            )
        )
    return tuple(sorted(found, key=lambda cause: -cause.score))


def _total(before_us: float, after_us: float) -> str:
    return f"mean cycle {before_us / 1e3:.3f} ms before, {after_us / 1e3:.3f} ms after"


def _ratio_causes(evidence: Evidence, before_us: float, after_us: float) -> Iterable[Cause]:
    """Ratios of wall time that the scheduler thread lost to others, as microseconds of a cycle.

    One that explains most of the slowdown comes before what the stages show of it, another one by its share.
    """
    texts = {
        "host.run_queue_wait_ratio": (
            "run_queue_wait",
            "the scheduler thread waits for a CPU that others use",
        ),
        "host.cgroup_throttled_ratio": (
            "cgroup_throttling",
            "the server's control group has used up its CPU quota",
        ),
        "cycles.collected_ratio": ("garbage_collection", "Python's garbage collector stops the scheduler"),
    }
    for name, (kind, subject) in texts.items():
        before, after = _means(evidence, name)
        if not np.isfinite(after - before):
            continue
        share = (after * after_us - before * before_us) / (after_us - before_us)
        if share >= _SHARE_MIN:
            proof = f"{name} {before:.1%} of the time before, {after:.1%} after"
            share = min(share, 1.0)
            score = 1.0 + share if share >= _EXPLAINED else share
            yield Cause(kind, subject, score, share, Status.MEASURED, (proof,))


def _stage_causes(
    evidence: Evidence, parts: Sequence[SplitPart], before_us: float, after_us: float, explained: float
) -> Iterable[Cause]:
    """The stage that grew most; behind a measured cause on the host it is a consequence and ranks below it.

    Where the scheduler thread's CPU time is known, the growth is told apart into time in which it computed and time in
    which it was off the CPU (asleep, blocked, or waiting for one).
    """
    total_us = after_us - before_us
    worst = max(parts, key=lambda part: part.delta_us)
    if worst.delta_us < _SHARE_MIN * total_us:
        return
    grown = f"{worst.delta_us / 1e3:+.3f} of {total_us / 1e3:+.3f} ms"
    proof = f"{worst.part}: {worst.before_us / 1e3:.3f} ms before, {worst.after_us / 1e3:.3f} ms after ({grown})"
    stage, kind = STAGE_TEXT[worst.part], f"stage_{worst.part}"
    used_before, used_after = _on_cpu(evidence.before), _on_cpu(evidence.after)
    computed_us = used_after * after_us - used_before * before_us
    if worst.part == "wait" or not np.isfinite(computed_us):
        ways = [(kind, f"{stage}: takes longer", worst.delta_us)]
        proofs = [proof]
    else:
        computed_us = min(max(computed_us, 0.0), worst.delta_us)
        ways = [
            (f"{kind}_blocked", f"{stage}: the scheduler thread is off the CPU longer", worst.delta_us - computed_us),
            (f"{kind}_busy", f"{stage}: the scheduler thread computes longer", computed_us),
        ]
        used = f"{used_before * before_us / 1e3:.3f} ms a cycle before, {used_after * after_us / 1e3:.3f} ms after"
        proofs = [proof, f"scheduler thread on the CPU {used}"]
    for name, subject, grown_us in ways:
        share = min(grown_us / total_us, 1.0)
        if share >= _SHARE_MIN:
            score = share * (0.5 if explained >= _EXPLAINED else 1.0)
            yield Cause(name, subject, score, share, Status.MEASURED, tuple(proofs))


def _on_cpu(means: Iterable[StageMeans]) -> float:
    """CPU time of the scheduler thread over cycle time, weighted by time; NaN where it was never sampled."""
    sampled = [
        (mean.on_cpu_ratio, mean.count * sum(mean.stages_ns)) for mean in means if np.isfinite(mean.on_cpu_ratio)
    ]
    weight = sum(time for _, time in sampled)
    return sum(ratio * time for ratio, time in sampled) / weight if weight else float("nan")


def _event_causes(evidence: Evidence) -> Iterable[Cause]:
    for event in evidence.events:
        yield Cause("change", event.text, 0.9, None, Status.INFERRED, ("it happened when the slowdown began",))


def _means(evidence: Evidence, name: str) -> tuple[float, float]:
    """Means of a reading of the scheduler's main thread before and after the change; NaN where it was not read."""
    of_thread = {"rank": evidence.rank, "process": "scheduler", "thread": "main"}
    of_name = [
        trace
        for trace in evidence.traces
        if trace.name == name and all(of_thread.get(key, value) == value for key, value in trace.labels.items())
    ]
    after = [trace.at_ns >= evidence.started_at_ns for trace in of_name]
    old = [trace.values[~late] for trace, late in zip(of_name, after, strict=True)]
    new = [trace.values[late] for trace, late in zip(of_name, after, strict=True)]
    return _mean(old), _mean(new)


def _mean(parts: Sequence[Floats]) -> float:
    values = np.concatenate(parts) if parts else np.zeros(0)
    return float(values.mean()) if len(values) else float("nan")
