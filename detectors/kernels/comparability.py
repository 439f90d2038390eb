"""Whether two profiles are of the same thing: the same hardware, model and load."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from cyclewatch.collectors.profiles.records import KernelKind, Profile
from cyclewatch.detectors.kernels.changes import Unit
from cyclewatch.detectors.kernels.families import Family
from cyclewatch.detectors.kernels.pace import Pace
from cyclewatch.detectors.kernels.pairing import Calls, Pair

_SAME_KERNELS_MIN = 0.5
_SAME_FAMILIES_MIN = 0.8
_SAME_LAYERS = math.log(1.05)
_SAME_FACTOR = math.log(1.01)
_SAME_FACTOR_MIN = 0.8
_SAME_LOAD = math.log(1.1)
_SAME_MIX = 0.1
_TOKENS = re.compile(r"\btoks=(\d{1,9})\b")


def reasons_against(before: Profile, after: Profile, pairs: Sequence[Pair], pace: Pace) -> tuple[str, ...]:
    """Why the profile before is no baseline of the one after, a sentence each; none where it is.

    Args:
        before: a profile.
        after: another one.
        pairs: all their kernels.
        pace: how often each did its work, for the phases that they have in common.
    """
    checks: tuple[Callable[[], Iterable[str]], ...] = (
        lambda: _hardware(before, after),
        lambda: _layout(before, after),
        lambda: _kernels(pairs),
        lambda: _layers(pairs, pace),
        lambda: _mixes(pace),
    )
    return tuple(reason for check in checks for reason in check())


def _hardware(before: Profile, after: Profile) -> Iterator[str]:
    kinds = [{use.kind for use in profile.kernels} for profile in (before, after)]
    on_cpu = [KernelKind.CPU_OP in kind and KernelKind.KERNEL not in kind for kind in kinds]
    if on_cpu[0] != on_cpu[1]:
        yield f"the profile {'before' if on_cpu[0] else 'after'} is of a CPU, the other one of a GPU"
    elif before.device and after.device and before.device != after.device:
        yield f"they are of different hardware: {before.device} before, {after.device} after"


def _layout(before: Profile, after: Profile) -> Iterator[str]:
    """How many ranks and devices there are, and what of the work."""
    if before.world_size and after.world_size and before.world_size != after.world_size:
        yield f"the job ran on {before.world_size} ranks before and on {after.world_size} after"
    devices = [len({use.device for use in one.kernels if use.kind is KernelKind.KERNEL}) for one in (before, after)]
    if all(devices) and devices[0] != devices[1]:
        yield f"the profiles hold {devices[0]} and {devices[1]} devices"
    phases = [{use.phase for use in profile.kernels} - {""} for profile in (before, after)]
    if all(phases) and not phases[0] & phases[1]:
        first, second = (", ".join(sorted(names)) for names in phases)
        yield f"they have no phase in common: {first} before, {second} after"


def _kernels(pairs: Sequence[Pair]) -> Iterator[str]:
    """Another model has other kernels, and other numbers of calls of each kind; other libraries have other kernels."""
    old, new = [pair.before for pair in pairs if pair.before], [pair.after for pair in pairs if pair.after]
    if not old or not new:
        return
    both = [(pair.before, pair.after) for pair in pairs if pair.before and pair.after]
    common = min(_share([one for one, _ in both], old), _share([one for _, one in both], new))
    one, other = _families(old), _families(new)
    alike = sum(min(one[family], other[family]) for family in Family)
    if common < _SAME_KERNELS_MIN and alike < _SAME_FAMILIES_MIN:
        yield f"{common:.0%} of their work is done by kernels that both have: another model, or other software"


def _layers(pairs: Sequence[Pair], pace: Pace) -> Iterator[str]:
    """Another number of layers shows in all kernels at once."""
    if pace.unit not in {Unit.STEP, Unit.REPLAY}:
        return
    both = [
        (pace.calls_ratio(pair.before, pair.after), pair.before.calls + pair.after.calls)
        for pair in pairs
        if pair.before and pair.after and pair.before.phase in pace.before
    ]
    if not both:
        return
    whole = sum(calls for _, calls in both)
    factor, _ = max(both, key=lambda one: one[1])
    alike = sum(calls for ratio, calls in both if abs(ratio - factor) <= _SAME_FACTOR)
    if abs(factor) > _SAME_LAYERS and alike >= _SAME_FACTOR_MIN * whole and len(both) > 1:
        yield (
            f"nearly every kernel is called {math.exp(factor):.3g} times as often a {pace.unit}: another number of "
            "layers, or steps that hold another amount of work"
        )


def _mixes(pace: Pace) -> Iterator[str]:
    """Where kernels do not tell their phase, a mean is over all of them."""
    if "" in pace.before and pace.moved > _SAME_MIX:
        yield f"{pace.moved:.0%} of the cycles are of other phases than before: another load"


def other_loads(before: Profile, after: Profile) -> dict[str, str]:
    """The phases whose steps held another number of tokens or requests, in the median, with a sentence that says so."""
    old, new = _loads(before), _loads(after)
    found = {}
    for phase in sorted(old.keys() & new.keys()):
        one, other = median(old[phase]), median(new[phase])
        if abs(math.log(other / one)) > _SAME_LOAD:
            found[phase] = (
                f"{f'{phase} steps' if phase else 'steps'} hold {one:g} tokens or requests before and {other:g} after: "
                "another load"
            )
    return found


def _loads(profile: Profile) -> dict[str, list[int]]:
    """By phase, the size of each step whose name tells it: new tokens, or else requests."""
    loads: dict[str, list[int]] = defaultdict(list)
    for step in profile.steps:
        tokens = _TOKENS.search(step.name)
        if size := int(tokens[1]) if tokens else step.batch_size:
            loads[step.phase].append(size)
    return loads


def _calls(kernels: Iterable[Calls]) -> int:
    return sum(one.calls for one in kernels)


def _share(some: Sequence[Calls], kernels: Sequence[Calls]) -> float:
    """Of the calls or of the time, whichever is less, 0 to 1."""
    whole_ns = sum(one.total_ns for one in kernels) or 1
    return min(_calls(some) / _calls(kernels), sum(one.total_ns for one in some) / whole_ns)


def _families(kernels: Sequence[Calls]) -> dict[Family, float]:
    """Shares of the calls by family, 0 to 1."""
    shares = dict.fromkeys(Family, 0.0)
    whole = _calls(kernels)
    for one in kernels:
        shares[one.identity.family] += one.calls / whole
    return shares
