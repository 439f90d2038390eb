"""What the time of a step is made of: its kernels by family, and what the GPU did between them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cyclewatch.collectors.profiles.records import KernelKind, Profile, Step
from cyclewatch.detectors.kernels.changes import PhaseSplit, Unit
from cyclewatch.detectors.kernels.pace import Pace
from cyclewatch.detectors.kernels.pairing import Calls
from cyclewatch.detectors.kernels.significance import welch
from cyclewatch.detectors.split_part import SplitPart

OVERLAP = "overlap"
"""What kernels that run at the same time count twice; never above 0."""

COPYING, WAITING, BETWEEN, IDLE = "copying", "waiting_for_host", "between_kernels", "gpu_idle"
OUTSIDE = "outside_of_steps"
UNEXPLAINED = "unexplained"
_LAST = (OVERLAP, COPYING, WAITING, BETWEEN, IDLE, OUTSIDE, UNEXPLAINED)
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Recorded:
    """A profile, and its kernels by identity and phase."""

    profile: Profile
    calls: Sequence[Calls]

    @property
    def tells_idle(self) -> bool:
        """Whether it says what the idle time was spent on."""
        return self.profile.totals.idle_ns is not None and self.profile.totals.waiting_for_host_ns is not None

    def families_ns(self, phase: str | None = None) -> dict[str, float]:
        """Time of the kernels, or where none ran of the operators of the CPU, by family; of one phase, or of all."""
        kind = KernelKind.KERNEL if self.profile.totals.calls else KernelKind.CPU_OP
        times_ns: dict[str, float] = defaultdict(float)
        for calls in self.calls:
            if calls.kind is kind and phase in {None, calls.phase}:
                times_ns[calls.identity.family.value] += calls.total_ns
        return dict(times_ns)


@dataclass(frozen=True, slots=True)
class _Side:
    """One phase of one profile: a unit's time, and its parts, which add up to it; nanoseconds."""

    count: float
    whole_ns: float
    parts_ns: Mapping[str, float]
    steps_ns: tuple[float, ...] = ()


def phase_splits(before: Recorded, after: Recorded, pace: Pace, *, by_phase: bool) -> tuple[PhaseSplit, ...]:
    """The split of a unit's time, of each phase where steps tell them, otherwise of everything; most time first.

    Idle time is told apart where both profiles do, and all steps are of one phase. What tables do not tell at all, idle
    time among it, is missing, and then the whole is the time of the kernels and copies.
    """
    both = (before, after)
    if by_phase and pace.unit is Unit.STEP:
        steps = [{step.phase for step in one.profile.steps} for one in both]
        splits = []
        for phase in steps[0] & steps[1] & pace.before.keys():
            detailed = all(one.tells_idle and alone == {phase} for one, alone in zip(both, steps, strict=True))
            splits.append(_split(phase, *(_of_steps(one, phase, detailed=detailed) for one in both)))
        return tuple(sorted(splits, key=lambda one: (-_time_ns(one), one.phase)))
    detailed, spanned = all(one.tells_idle for one in both), all(one.profile.totals.span_ns for one in both)
    sides = [
        _of_all(one, count, spanned=spanned, detailed=detailed) for one, count in zip(both, pace.whole, strict=True)
    ]
    return (_split("", *sides),)


def _time_ns(split: PhaseSplit) -> float:
    return split.before_ns * split.before_count + split.after_ns * split.after_count


def _split(phase: str, old: _Side, new: _Side) -> PhaseSplit:
    names = {
        name
        for side in (old, new)
        for name, time_ns in side.parts_ns.items()
        if abs(time_ns) > _ROUNDING * side.whole_ns
    }
    size = {name: -max(old.parts_ns.get(name, 0.0), new.parts_ns.get(name, 0.0)) for name in names}
    ordered = sorted(names, key=lambda name: (_LAST.index(name) if name in _LAST else -1, size[name], name))
    parts = tuple(
        SplitPart(name, old.parts_ns.get(name, 0.0) / 1e3, new.parts_ns.get(name, 0.0) / 1e3) for name in ordered
    )
    p_value = welch(old.steps_ns, new.steps_ns)
    return PhaseSplit(phase, old.count, new.count, old.whole_ns, new.whole_ns, parts, p_value)


def _of_steps(recorded: Recorded, phase: str, *, detailed: bool) -> _Side:
    """From the end of the step before to the end of this one; what the kernels of the steps do not fill is idle."""
    profile = recorded.profile
    steps, lengths_ns = _lengths_ns(profile.steps, phase)
    count = len(steps)
    families_ns = recorded.families_ns(phase)
    kernels_ns, in_steps_ns = sum(families_ns.values()), float(sum(step.kernel_ns for step in steps))
    on_gpu = profile.totals.calls > 0
    scale = (in_steps_ns / kernels_ns if kernels_ns and on_gpu else 1.0) / count
    parts_ns = {name: time_ns * scale for name, time_ns in families_ns.items()}
    whole_ns = sum(lengths_ns) / count
    if on_gpu:
        busy_ns = sum(step.busy_ns for step in steps) / count
        parts_ns[OVERLAP] = busy_ns - in_steps_ns / count
        idle_ns = max(0.0, whole_ns - busy_ns)
        if phase:
            outside_ns = sum(recorded.families_ns("").values()) / len(profile.steps)
            parts_ns[OUTSIDE] = min(outside_ns, idle_ns)
            idle_ns -= parts_ns[OUTSIDE]
        parts_ns |= _idle_parts(profile, idle_ns, detailed=detailed)
    return _Side(count, whole_ns, _with_rest(parts_ns, whole_ns), tuple(lengths_ns))


def _of_all(recorded: Recorded, count: float, *, spanned: bool, detailed: bool) -> _Side:
    parts_ns = {name: time_ns / count for name, time_ns in recorded.families_ns().items()}
    profile, totals = recorded.profile, recorded.profile.totals
    if not spanned or totals.span_ns is None:
        for calls in recorded.calls:
            if calls.kind in {KernelKind.MEMCPY, KernelKind.MEMSET}:
                parts_ns[calls.kind.value] = parts_ns.get(calls.kind.value, 0.0) + calls.total_ns / count
        return _Side(count, sum(parts_ns.values()), parts_ns)
    if totals.busy_ns is not None:
        parts_ns[OVERLAP] = (totals.busy_ns - totals.kernel_ns) / count
        parts_ns |= _idle_parts(profile, (totals.idle_ns or 0) / count, detailed=detailed)
    whole_ns = totals.span_ns / count
    return _Side(count, whole_ns, _with_rest(parts_ns, whole_ns))


def _lengths_ns(steps: tuple[Step, ...], phase: str) -> tuple[list[Step], list[float]]:
    """The steps of a phase, and how long after the end of the step before each ended.

    Nothing is known of the gap before the first step, which is taken to be as long as the others. Steps of several
    ranks lie over one another, and have no gaps.
    """
    ordered = sorted(steps, key=lambda step: (step.start_ns, step.end_ns))
    apart = all(one.end_ns <= other.start_ns for one, other in pairwise(ordered))
    chosen = [(step, last) for step, last in zip(ordered, [None, *ordered], strict=False) if step.phase == phase]
    gaps_ns = [step.start_ns - last.end_ns for step, last in chosen if apart and last]
    usual_ns = sum(gaps_ns) / len(gaps_ns) if gaps_ns else 0.0
    lengths_ns = [
        step.end_ns - step.start_ns + (step.start_ns - last.end_ns if apart and last else usual_ns)
        for step, last in chosen
    ]
    return [step for step, _ in chosen], lengths_ns


def _idle_parts(profile: Profile, idle_ns: float, *, detailed: bool) -> dict[str, float]:
    """The idle time in the shares in which the whole profile has it; otherwise in one piece."""
    totals = profile.totals
    if not detailed or not totals.idle_ns:
        return {IDLE: idle_ns}
    told = {COPYING: totals.copying_ns, WAITING: totals.waiting_for_host_ns, BETWEEN: totals.between_kernels_ns}
    parts_ns = {name: idle_ns * (time_ns or 0) / totals.idle_ns for name, time_ns in told.items()}
    parts_ns[IDLE] = max(0.0, idle_ns - sum(parts_ns.values()))
    return parts_ns


def _with_rest(parts_ns: dict[str, float], whole_ns: float) -> dict[str, float]:
    """The parts with what they leave of the whole; where they are more than it, they overlap."""
    rest_ns = whole_ns - sum(parts_ns.values())
    name = UNEXPLAINED if rest_ns > 0 else OVERLAP
    return {**parts_ns, name: parts_ns.get(name, 0.0) + rest_ns}
