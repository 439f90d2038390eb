"""Key findings as sentences."""

from collections.abc import Sequence

from cyclewatch.detectors.attribution import BoundSplit, Cause, Status
from cyclewatch.detectors.split_part import SplitPart
from cyclewatch.detectors.statistics.level_difference import LevelDifference

_TIMES = 2.0
"""From here on a factor is easier to read than a percentage."""

CONSEQUENCE = "a consequence of "
"""How the evidence of a cause that follows from another one begins."""

_FOLLOWED = 3
_SAME = 0.005
"""Changes below this are no change in words; a test that knows the noise says more (`cyclewatch regressions`)."""


def duration(time_us: float) -> str:
    """A time as people read it."""
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if abs(time_us) >= size:
            return f"{time_us / size:,.4g} {unit}"
    return f"{round(time_us * 1e3, 3) + 0.0:,.3g} ns"  # + 0.0: no "-0 ns"


def slower_sentence(
    what: str, slower: float | None, *, claims: bool, difference: LevelDifference | None = None
) -> tuple[str, ...]:
    """By how much something became slower or faster; none where it is not known."""
    if slower is None:
        return ()
    interval = ""
    if difference is not None:
        low, high = difference.ci
        interval = f" (window by window {difference.effect:+.1%}, 95 % interval {low:+.1%} to {high:+.1%})"
        if not difference.is_sure:
            return (f"{what}: no difference that can be told from the noise{interval}",)
    change = f"{abs(slower - 1):.1%} {'longer' if slower > 1 else 'shorter'}"
    size = f"{slower:.2f} times as long" if slower >= _TIMES else change
    return (f"{what}: {size}{interval}" + ("" if claims else "; no regression can be told from that"),)


def split_sentence(parts: Sequence[SplitPart]) -> tuple[str, ...]:
    """The part that makes up most of the difference; none where there is no difference."""
    total = sum(part.delta_us for part in parts)
    whole = sum(part.before_us for part in parts)
    if not parts or abs(total) < _SAME * whole:
        return ()
    most = max(parts, key=lambda part: part.delta_us if total > 0 else -part.delta_us)
    times = f"{duration(most.before_us)} before, {duration(most.after_us)} after"
    return (f"{most.delta_us / total:.0%} of the difference is in {most.part}: {times}",)


def bound_sentence(bound: BoundSplit | None) -> tuple[str, ...]:
    """How much of a step is above the least that its load takes; none where that is not known."""
    if bound is None:
        return ()
    old, new = bound.before, bound.after
    least = [duration(one.at_least_us) for one in (old, new)]
    once = least[0] if least[0] == least[1] else " before and at least ".join(least) + " after"
    above = f"above it {duration(old.above_us)} before, {duration(new.above_us)} after"
    parts = ", ".join(f"{part.part.replace('_', ' ')} {duration(part.after_us)}" for part in bound.above)
    return (f"a step of this load takes at least {once} (by {new.bound_by}); {above}{f' ({parts})' if parts else ''}",)


def cause_sentences(causes: Sequence[Cause]) -> tuple[str, ...]:
    """The first cause, and what follows from another one."""
    first = [_first(one) for one in causes[:1]]
    followed = [
        f"{subject_of(one)}: {proof}" for one in causes for proof in one.evidence if proof.startswith(CONSEQUENCE)
    ]
    return (*first, *followed[:_FOLLOWED])


def _first(cause: Cause) -> str:
    share = "" if cause.share is None else f", {cause.share:.0%} of the slowdown"
    if cause.status is Status.NOT_SHOWN:
        return f"no cause is shown: {cause.subject}{share}"
    what = f"{cause.kind} of {cause.device}" if cause.device else cause.kind
    return f"first cause: {cause.subject} ({what}; {cause.status.value}{share})"


def subject_of(cause: Cause) -> str:
    """What a cause is, and what of its kind it concerns."""
    return f"{cause.subject} ({cause.device})" if cause.device else cause.subject
