"""Candidates that a comparison of kernel profiles shows: kernels that became slower, more, new, or were replaced."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cyclewatch.config.causes import CausalGraph
from cyclewatch.detectors.attribution.candidates import Candidate
from cyclewatch.detectors.attribution.growth import Growth
from cyclewatch.detectors.kernels.comparison import KernelChange, ProfileComparison, Substitution, Unit, Verdict
from cyclewatch.detectors.kernels.families import Family

_KINDS = {
    Verdict.SLOWER: "kernel_slower",
    Verdict.MORE_CALLS: "kernel_more_calls",
    Verdict.NEW: "kernel_new",
}
_NAMED = 3
"""Kernels that are named for one kind; the rest are counted."""

_MICRO = 1e3
_SECOND_US = 1e6


def kernel_candidates(comparison: ProfileComparison | None, growth: Growth, graph: CausalGraph) -> Iterator[Candidate]:
    """One candidate for each kind of change that kernels went through.

    Kernels of communication are none: they take as long as the slowest rank or link makes them. Nor are the operators
    of a CPU that are all slower alike: what made them so is in the readings of the host.
    """
    if comparison is None or not comparison.comparable or not comparison.phases:
        return
    scale = _cycles_us(comparison, growth)
    replaced = {name for one in comparison.substitutions for name in one.after}
    if comparison.uniform is not None and comparison.uniform.factor > 1:
        yield _all_slower(comparison, comparison.uniform.factor, scale, graph)
    changes = [one for one in comparison.kernels if one.family is not Family.COMMUNICATION and one.delta_ns > 0]
    for verdict, kind in _KINDS.items():
        slower = [
            one for one in changes if one.verdict is verdict and not (verdict is Verdict.NEW and one.short in replaced)
        ]
        base_us = sum(one.before.ns for one in slower if one.before is not None) * scale
        found = [(one.short, one.delta_ns * scale, _in_words(one)) for one in slower]
        yield from (replace(one, base_us=base_us) for one in _candidate(kind, found, graph))
    yield from _candidate("kernel_substituted", list(_substituted(comparison.substitutions, scale)), graph)
    waits_us = sum(one.delta_ns for one in comparison.families if one.family is Family.COMMUNICATION) * scale
    yield from _candidate("communication", [("", waits_us, "its kernels take longer")] if waits_us > 0 else [], graph)


def _cycles_us(comparison: ProfileComparison, growth: Growth) -> float:
    """Microseconds of a cycle that a nanosecond of the comparison's unit stands for."""
    match comparison.unit:
        case Unit.SECOND:
            return growth.after_us / _SECOND_US / _MICRO
        case Unit.PROFILE:
            whole_ns = comparison.phases[0].before_ns
            return growth.before_us / whole_ns if whole_ns > 0 else 0.0
        case Unit.STEP | Unit.REPLAY | Unit.CYCLE:
            return 1 / _MICRO


def _all_slower(comparison: ProfileComparison, factor: float, scale: float, graph: CausalGraph) -> Candidate:
    kernels_ns = sum(one.before_ns for one in comparison.families if one.family is not Family.COMMUNICATION)
    proof = f"nearly all kernels take {factor:.2f} times as long: no single one became slower"
    time_us = kernels_ns * (factor - 1) * scale
    kind, longer = graph.kinds["gpu_slower"], factor - 1
    return Candidate(kind, "", time_us, exact=True, weight=factor, proof=(proof,), longer=longer)


def _substituted(substitutions: Iterable[Substitution], scale: float) -> Iterator[tuple[str, float, str]]:
    for one in substitutions:
        if one.delta_ns > 0:
            words = (
                f"{', '.join(one.before)} became {', '.join(one.after)}: "
                f"{one.before_ns / _MICRO:.1f} us before, {one.after_ns / _MICRO:.1f} us after"
            )
            yield one.after[0] if one.after else "", one.delta_ns * scale, words


def _in_words(change: KernelChange) -> str:
    before, after = change.before, change.after
    if after is None:
        return f"{change.short} is gone"
    if before is None:
        return f"{change.short}: {after.ns / _MICRO:.1f} us in {after.calls:.4g} calls, none before"
    return (
        f"{change.short}: {before.mean_ns / _MICRO:.1f} us a call before, {after.mean_ns / _MICRO:.1f} us after; "
        f"{before.calls:.4g} calls before, {after.calls:.4g} after"
    )


def _candidate(kind: str, changes: list[tuple[str, float, str]], graph: CausalGraph) -> Iterator[Candidate]:
    """A candidate for changes of this kind: what is concerned, microseconds a cycle, and words for each."""
    if not changes:
        return
    changes.sort(key=lambda change: -change[1])
    time_us = sum(us for _, us, _ in changes)
    proof = tuple(words for _, _, words in changes[:_NAMED])
    if len(changes) > _NAMED:
        proof = (*proof, f"and {len(changes) - _NAMED} more")
    yield Candidate(graph.kinds[kind], changes[0][0], time_us, exact=True, weight=time_us, proof=proof)
