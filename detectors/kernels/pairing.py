"""Which kernel of one profile is which of another, whatever tool spelled their names."""

import bisect
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cyclewatch.collectors.profiles.records import KernelKind, KernelUse
from cyclewatch.detectors.kernels.families import KernelIdentity, classify

_COPY = re.compile(r"([HDP])(?:ost|evice|eer)?-?to-?([HDP])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Calls:
    """All calls of one kernel in one phase of one profile, over devices and spellings; None is not told."""

    identity: KernelIdentity
    kind: KernelKind
    phase: str
    calls: int
    total_ns: int
    min_ns: int | None
    max_ns: int | None
    median_ns: int | None
    std_ns: float | None

    @property
    def mean_ns(self) -> float:
        """Of a call."""
        return self.total_ns / self.calls


@dataclass(frozen=True, slots=True)
class Pair:
    """One kernel in both profiles, or in one of them; `inferred` tells that a cut name stands in it."""

    key: str
    before: Calls | None
    after: Calls | None
    inferred: bool = False

    @property
    def known(self) -> Calls:
        """The side that has it, the one after first."""
        known = self.after or self.before
        assert known is not None
        return known


_Place = tuple[str, str]
"""Key and phase."""


def pairs(
    before: Sequence[KernelUse], after: Sequence[KernelUse], *, by_phase: bool, same_tool: bool
) -> tuple[Pair, ...]:
    """The kernels of both profiles by identity and phase; those without calls are left out.

    A cut name stands for all kernels of the other profile that begin so and have no partner of their own.

    Args:
        before: the uses in one profile.
        after: the uses in the other.
        by_phase: otherwise all phases count as one, "".
        same_tool: otherwise copies are known by their direction alone, because tools tell them apart less or more.
    """
    different = {(use.name, use.kind) for use in (*before, *after)}
    identities = {(name, kind): classify(name, kind.value) for name, kind in different}
    old = _gathered(before, identities, by_phase=by_phase, same_tool=same_tool)
    new = _gathered(after, identities, by_phase=by_phase, same_tool=same_tool)
    paired = [
        Pair(place[0], calls, new[place], inferred=calls.identity.truncated)
        for place, calls in old.items()
        if place in new
    ]
    for place in old.keys() & new.keys():
        del old[place], new[place]
    for cut, whole, cut_is_before in ((old, new, True), (new, old, False)):
        for place, others in _begin_alike(cut, whole).items():
            one, other = cut.pop(place), _joined([whole.pop(at) for at in others])
            both = (one, other) if cut_is_before else (other, one)
            paired.append(Pair(place[0], *both, inferred=True))
    alone = [Pair(key, calls, None) for (key, _), calls in old.items()]
    alone += [Pair(key, None, calls) for (key, _), calls in new.items()]
    return (*paired, *alone)


def _gathered(
    uses: Iterable[KernelUse],
    identities: Mapping[tuple[str, KernelKind], KernelIdentity],
    *,
    by_phase: bool,
    same_tool: bool,
) -> dict[_Place, Calls]:
    gathered: dict[_Place, list[Calls]] = defaultdict(list)
    for use in uses:
        if use.calls <= 0:
            continue
        identity = identities[use.name, use.kind]
        key = identity.key if same_tool else _copy_key(identity.key, use.kind)
        phase = use.phase if by_phase else ""
        spread = (use.min_ns, use.max_ns, use.median_ns, use.std_ns if use.calls > 1 else None)
        gathered[key, phase].append(Calls(identity, use.kind, phase, use.calls, use.total_ns, *spread))
    return {place: _joined(calls) for place, calls in gathered.items()}


def _copy_key(key: str, kind: KernelKind) -> str:
    if kind is KernelKind.MEMCPY and (direction := _COPY.search(key)):
        return f"memcpy {direction[1]}to{direction[2]}".lower()
    return "memset" if kind is KernelKind.MEMSET else key


def _begin_alike(cut: Mapping[_Place, Calls], whole: Mapping[_Place, Calls]) -> dict[_Place, list[_Place]]:
    """For each cut name the kernels in `whole` of its phase that begin so; the longest cut name chooses first."""
    by_phase: dict[str, list[str]] = defaultdict(list)
    for key, phase in whole:
        by_phase[phase].append(key)
    for keys in by_phase.values():
        keys.sort()
    taken: set[_Place] = set()
    found = {}
    for place in sorted(
        (place for place, calls in cut.items() if calls.identity.truncated), key=lambda at: -len(at[0])
    ):
        key, phase = place
        keys = by_phase[phase]
        alike = []
        for other in keys[bisect.bisect_left(keys, key) :]:
            if not other.startswith(key):
                break
            if (other, phase) not in taken:
                alike.append((other, phase))
        if alike and key:
            found[place] = alike
            taken.update(alike)
    return found


def _joined(calls: Sequence[Calls]) -> Calls:
    """Several kernels as one; its identity is that of the one with most time. A median cannot be joined."""
    if len(calls) == 1:
        return calls[0]
    largest = max(calls, key=lambda one: one.total_ns)
    count, total_ns = sum(one.calls for one in calls), sum(one.total_ns for one in calls)
    shortest = [one.min_ns for one in calls if one.min_ns is not None]
    longest = [one.max_ns for one in calls if one.max_ns is not None]
    return Calls(
        identity=largest.identity,
        kind=largest.kind,
        phase=largest.phase,
        calls=count,
        total_ns=total_ns,
        min_ns=min(shortest) if len(shortest) == len(calls) else None,
        max_ns=max(longest) if len(longest) == len(calls) else None,
        median_ns=None,
        std_ns=_joined_std(calls, total_ns / count, count),
    )


def _joined_std(calls: Sequence[Calls], mean_ns: float, count: int) -> float | None:
    """Sample standard deviation of all calls together, from those of the parts (sums of squares add up)."""
    squares = 0.0
    for one in calls:
        if one.std_ns is None and one.calls > 1:
            return None
        squares += (one.calls - 1) * (one.std_ns or 0.0) ** 2 + one.calls * (one.mean_ns - mean_ns) ** 2
    return math.sqrt(squares / (count - 1))
