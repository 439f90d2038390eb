"""Comparing two kernel profiles: by kernel and family, for each phase, and what a step's time is made of."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cyclewatch.collectors.profiles.records import KernelKind, Profile
from cyclewatch.detectors.kernels.changes import (
    FamilyChange,
    KernelChange,
    PhaseSplit,
    ProfileComparison,
    Substitution,
    Uniform,
    Unit,
    Use,
    Verdict,
)
from cyclewatch.detectors.kernels.comparability import other_loads, reasons_against
from cyclewatch.detectors.kernels.families import Family
from cyclewatch.detectors.kernels.pace import Pace, pace
from cyclewatch.detectors.kernels.pairing import Calls, Pair, pairs
from cyclewatch.detectors.kernels.significance import MIN_EFFECT, Shift, shifts
from cyclewatch.detectors.kernels.step_split import Recorded, phase_splits
from cyclewatch.detectors.kernels.substitution import substitutions
from cyclewatch.detectors.kernels.uniform import uniform_change

__all__ = [
    "FamilyChange",
    "KernelChange",
    "PhaseSplit",
    "ProfileComparison",
    "Substitution",
    "Uniform",
    "Unit",
    "Use",
    "Verdict",
    "compare_profiles",
]


_COPIES = frozenset({KernelKind.MEMCPY, KernelKind.MEMSET})
_SAME_WORK = math.log(1.02)
"""Up to this change of its calls a kernel is taken to do the same work."""

_MIX_TOLD = math.log(1.25)


def compare_profiles(before: Profile, after: Profile) -> ProfileComparison:
    """What became of the kernels of one profile in another one.

    Swapping the two mirrors what is said. What a profile does not tell is left out, with a warning.
    """
    named = [{use.phase for use in profile.kernels} - {""} for profile in (before, after)]
    shared, loads = named[0] & named[1], other_loads(before, after)
    alike = shared - loads.keys() or shared
    by_phase = bool(shared) or not (named[0] or named[1])
    all_pairs = pairs(before.kernels, after.kernels, by_phase=by_phase, same_tool=before.format is after.format)
    told = _told_by_both(all_pairs, before, after)
    common = [pair for pair in told if pair.known.phase in {"", *alike}]
    steps = pace(before, after, common)
    certain = [pair for pair in common if not _may_be_of_another_phase(pair, steps)]
    kernels = _kernel_changes(certain, steps)
    reasons = reasons_against(before, after, common, steps)
    if alike <= loads.keys():
        reasons += tuple(loads.values())
    left_out = [
        *(f"{side}: {text}" for side, one in (("before", before), ("after", after)) for text in one.warnings),
        *(["copies and fills are left out: one of the profiles does not tell them"] if told is not all_pairs else []),
        *(f"{phase} is left out: one of the profiles has none" for phase in sorted(named[0] ^ named[1]) if shared),
        *(f"{text}, and left out" for phase, text in loads.items() if phase in shared - alike),
    ]
    if len(certain) < len(common):
        left_out.append("kernels of one profile alone are left out: only one held some phase, and they may be of that")
    return ProfileComparison(
        comparable=not reasons,
        reasons=reasons,
        warnings=(*left_out, *_of_pace(steps), *_of_names(kernels)),
        unit=steps.unit,
        kernels=kernels,
        families=_family_changes(common, steps),
        substitutions=() if reasons else substitutions(kernels),
        phases=phase_splits(
            Recorded(before, [pair.before for pair in told if pair.before]),
            Recorded(after, [pair.after for pair in told if pair.after]),
            steps,
            by_phase=by_phase,
        ),
        uniform=None if reasons else uniform_change(kernels, sure_ones=steps.moved > 0),
    )


def _may_be_of_another_phase(pair: Pair, steps: Pace) -> bool:
    """Whether a kernel may be in one profile alone because only that one held cycles of its phase."""
    return steps.one_sided and not pair.known.phase and not (pair.before and pair.after)


def _told_by_both(paired: Sequence[Pair], before: Profile, after: Profile) -> Sequence[Pair]:
    """Without copies where they are of different tools and one of them tells of none."""
    tell_copies = [any(use.kind in _COPIES for use in profile.kernels) for profile in (before, after)]
    if before.format is after.format or tell_copies[0] == tell_copies[1]:
        return paired
    return [pair for pair in paired if pair.known.kind not in _COPIES]


def _of_pace(steps: Pace) -> Iterator[str]:
    if steps.unit is Unit.PROFILE and steps.whole[0] == steps.whole[1]:
        yield "neither steps nor cycles are known of both: what is compared are the whole profiles"
    elif steps.unit is Unit.PROFILE:
        ratio = steps.whole[1] / steps.whole[0]
        yield f"neither steps nor cycles are known of both: the one after did {ratio:.3g} times the work, by most calls"
    elif steps.unit is Unit.SECOND:
        yield "neither steps nor cycles are known of both, and calls have no ratio in common: all is by second"
    elif steps.unit is Unit.CYCLE and max(-steps.mix[0], steps.mix[1]) > _MIX_TOLD:
        yield "the cycles are of other phases than before, which changes calls and times of a cycle"


def _of_names(kernels: Sequence[KernelChange]) -> Iterator[str]:
    if inferred := sum(change.inferred for change in kernels):
        yield f"{inferred} names were cut: what they are is inferred from how they begin"


def _kernel_changes(paired: Sequence[Pair], steps: Pace) -> tuple[KernelChange, ...]:
    """The kernels, those whose time a unit changed most first."""
    both = [(pair.before, pair.after) for pair in paired if pair.before and pair.after]
    calls_ratios = [steps.calls_ratio(old, new) for old, new in both]
    same_work = np.array([abs(ratio) <= _SAME_WORK for ratio in calls_ratios], bool)
    shifted = shifts([old for old, _ in both], [new for _, new in both], same_work)
    found = iter(zip(shifted, calls_ratios, strict=True))
    times_ns: tuple[dict[str, int], dict[str, int]] = (defaultdict(int), defaultdict(int))
    for pair in paired:
        for calls, by_phase in zip((pair.before, pair.after), times_ns, strict=True):
            if calls:
                by_phase[calls.phase] += calls.total_ns
    changes = []
    for pair in paired:
        old, new = (
            None if calls is None else _use(calls, counts[calls.phase], by_phase[calls.phase])
            for calls, counts, by_phase in zip(
                (pair.before, pair.after), (steps.before, steps.after), times_ns, strict=True
            )
        )
        shift, calls_ratio = next(found) if old and new else (None, 0.0)
        if shift and steps.moved and not pair.known.phase and not _median_moved(old, new, shift):
            shift = replace(shift, sure=False)
        changes.append(_change(pair, old, new, shift, calls_ratio))
    return tuple(sorted(changes, key=lambda one: (-abs(one.delta_ns), one.phase, one.key)))


def _median_moved(old: Use | None, new: Use | None, shift: Shift) -> bool:
    """Whether the median call moved too: the mean alone moves with how many cycles are of which phase."""
    if not old or not new or not old.median_ns or not new.median_ns:
        return False
    return math.copysign(1.0, shift.log_ratio) * math.log(new.median_ns / old.median_ns) >= MIN_EFFECT


def _change(pair: Pair, old: Use | None, new: Use | None, shift: Shift | None, calls_ratio: float) -> KernelChange:
    identity = pair.known.identity
    return KernelChange(
        key=pair.key,
        short=identity.short,
        name=identity.name,
        family=identity.family,
        phase=pair.known.phase,
        verdict=_verdict(old, shift, calls_ratio),
        before=old,
        after=new,
        delta_ns=(new.ns if new else 0.0) - (old.ns if old else 0.0),
        effect=math.expm1(shift.log_ratio) if shift else None,
        p_value=shift.p_value if shift else None,
        operator=identity.operator,
        library=identity.library,
        group=identity.group,
        inferred=pair.inferred,
    )


def _verdict(old: Use | None, shift: Shift | None, calls_ratio: float) -> Verdict:
    """Of a kernel that is in both: the larger one of the changes of its calls' time and of their number."""
    if shift is None:
        return Verdict.GONE if old else Verdict.NEW
    if shift.sure and abs(shift.log_ratio) >= abs(calls_ratio):
        return Verdict.SLOWER if shift.log_ratio > 0 else Verdict.FASTER
    if calls_ratio:
        return Verdict.MORE_CALLS if calls_ratio > 0 else Verdict.FEWER_CALLS
    return Verdict.SAME


def _use(calls: Calls, count: float, phase_ns: int) -> Use:
    return Use(
        calls=calls.calls / count,
        ns=calls.total_ns / count,
        mean_ns=calls.mean_ns,
        median_ns=calls.median_ns,
        std_ns=calls.std_ns,
        share=calls.total_ns / phase_ns if phase_ns else 0.0,
    )


def _family_changes(paired: Sequence[Pair], steps: Pace) -> tuple[FamilyChange, ...]:
    """The families, those whose time a unit changed most first."""
    sides = [
        _by_family(pair.before for pair in paired if pair.before),
        _by_family(pair.after for pair in paired if pair.after),
    ]
    whole_ns = [sum(time_ns for time_ns, _ in side.values()) or 1 for side in sides]
    changes = []
    for family in sides[0].keys() | sides[1].keys():
        (old_ns, old_calls), (new_ns, new_calls) = (side.get(family, (0, 0)) for side in sides)
        changes.append(
            FamilyChange(
                family=family,
                before_ns=old_ns / steps.whole[0],
                after_ns=new_ns / steps.whole[1],
                before_calls=old_calls / steps.whole[0],
                after_calls=new_calls / steps.whole[1],
                before_share=old_ns / whole_ns[0],
                after_share=new_ns / whole_ns[1],
            )
        )
    return tuple(sorted(changes, key=lambda one: (-abs(one.delta_ns), one.family)))


def _by_family(kernels: Iterable[Calls]) -> dict[Family, tuple[int, int]]:
    """Time and calls."""
    sums: dict[Family, tuple[int, int]] = {}
    for one in kernels:
        time_ns, calls = sums.get(one.identity.family, (0, 0))
        sums[one.identity.family] = (time_ns + one.total_ns, calls + one.calls)
    return sums
