"""Which kernels that went were replaced by which that came: the same work, as often, by other code."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cyclewatch.detectors.kernels.changes import KernelChange, Substitution, Verdict
from cyclewatch.detectors.kernels.families import Family

_AS_OFTEN = math.log(1.25)
_JUST_AS_OFTEN = math.log(1.02)
_MANY_THINGS = frozenset(
    {
        Family.CPU_OP,
        Family.OTHER,
        Family.ELEMENTWISE,
        Family.REDUCTION,
        Family.INDEX,
        Family.SCAN,
        Family.MEMCPY,
        Family.MEMSET,
    }
)
"""Families whose kernels do all kinds of work: there, only a single pair that is called just as often is one work."""

_WORKS_MAX = 100
"""Of one family, those with most time; each that went is held against each that came."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Calls that went or came, of kernels that one call starts together; a unit."""

    changes: tuple[KernelChange, ...]
    calls: float
    ns: float

    @property
    def main(self) -> KernelChange:
        """The kernel with most time."""
        return max(self.changes, key=lambda one: (_ns(one), one.key))


def substitutions(changes: Iterable[KernelChange]) -> tuple[Substitution, ...]:
    """Kernels that went with those that do their work, the largest difference first.

    Both are of one phase, family and operator, and what came is called about as often as what went. Of a kernel that
    is still there but called less often, the calls that it lost count.
    """
    places: dict[tuple[str, Family], tuple[list[KernelChange], list[KernelChange]]] = defaultdict(lambda: ([], []))
    for change in changes:
        if change.verdict in {Verdict.GONE, Verdict.FEWER_CALLS}:
            places[change.phase, change.family][0].append(change)
        elif change.verdict in {Verdict.NEW, Verdict.MORE_CALLS}:
            places[change.phase, change.family][1].append(change)
    found = [
        substitution
        for (_, family), (went, came) in places.items()
        if went and came
        for substitution in _within(family, _works(went), _works(came))
    ]
    return tuple(sorted(found, key=lambda one: (-abs(one.delta_ns), one.before)))


def _within(family: Family, went: list[_Work], came: list[_Work]) -> Iterable[Substitution]:
    """Pairs first, those most alike; then what is left as one, if that is as often called."""
    as_often = _JUST_AS_OFTEN if family in _MANY_THINGS else _AS_OFTEN
    if family in _MANY_THINGS and (len(went) > 1 or len(came) > 1):
        return
    likeness = sorted(
        (abs(_log(new.calls, old.calls)), abs(_log(new.ns, old.ns)), at, to)
        for at, old in enumerate(went)
        for to, new in enumerate(came)
        if _one_operator([old, new]) and abs(_log(new.calls, old.calls)) <= as_often
    )
    done: tuple[set[int], set[int]] = (set(), set())
    for _, _, at, to in likeness:
        if at not in done[0] and to not in done[1]:
            done[0].add(at)
            done[1].add(to)
            yield _substitution([went[at]], [came[to]])
    old = [work for at, work in enumerate(went) if at not in done[0]]
    new = [work for to, work in enumerate(came) if to not in done[1]]
    if old and new and _one_operator([*old, *new]):
        calls = [sum(work.calls for work in works) for works in (old, new)]
        if abs(_log(*calls)) <= as_often:
            yield _substitution(old, new)


def _works(changes: Iterable[KernelChange]) -> list[_Work]:
    """By launch group; what belongs to none is alone. A group is called as often as its most called kernel."""
    groups: dict[str, list[KernelChange]] = defaultdict(list)
    for change in changes:
        groups[change.group or f"\0{change.key}"].append(change)
    works = [
        _Work(tuple(group), max(_calls(one) for one in group), sum(_ns(one) for one in group))
        for _, group in sorted(groups.items())
    ]
    return sorted(works, key=lambda work: -work.ns)[:_WORKS_MAX]


def _substitution(went: Sequence[_Work], came: Sequence[_Work]) -> Substitution:
    old, new = (max(works, key=lambda work: work.ns).main for works in (went, came))
    return Substitution(
        family=new.family,
        operator=new.operator or old.operator,
        phase=new.phase,
        before=_names(went),
        after=_names(came),
        before_ns=sum(work.ns for work in went),
        after_ns=sum(work.ns for work in came),
        before_library=old.library,
        after_library=new.library,
    )


def _names(works: Iterable[_Work]) -> tuple[str, ...]:
    kernels = [change for work in works for change in work.changes]
    return tuple(dict.fromkeys(change.short for change in sorted(kernels, key=lambda one: (-_ns(one), one.key))))


def _one_operator(works: Iterable[_Work]) -> bool:
    return len({work.main.operator for work in works} - {""}) <= 1


def _calls(change: KernelChange) -> float:
    """How many calls a unit went or came."""
    return abs((change.after.calls if change.after else 0.0) - (change.before.calls if change.before else 0.0))


def _ns(change: KernelChange) -> float:
    """The time a unit of those calls."""
    use = change.after if change.verdict in {Verdict.NEW, Verdict.MORE_CALLS} else change.before
    return _calls(change) * use.mean_ns if use else 0.0


def _log(one: float, other: float) -> float:
    return math.log(max(one, 1e-9) / max(other, 1e-9))
