"""Naming what is behind a slowdown: the candidates with their shares, what the split shows, and what stays open.

Every claim has its evidence and its share of the slowdown; what nothing explains is said to be unexplained.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cyclewatch.config.causes import CausalGraph, Layer, causal_graph
from cyclewatch.detectors.attribution.candidates import Candidate, candidates
from cyclewatch.detectors.attribution.evidence import Cause, Evidence, Status
from cyclewatch.detectors.attribution.growth import WHOLE, Growth, growth_of
from cyclewatch.detectors.attribution.kernel_candidates import kernel_candidates
from cyclewatch.detectors.attribution.ranks import slow_rank
from cyclewatch.detectors.attribution.readings import Readings
from cyclewatch.detectors.attribution.shares import Explained, explain
from cyclewatch.detectors.attribution.stages import Symptom, stopped, symptoms
from cyclewatch.detectors.split_part import SplitPart

_LEAST_SHARE = 0.1
"""Smallest part of the slowdown that makes a cause worth a line."""

_LEAST_OPEN = 0.2
"""Smallest part of the slowdown that is worth saying to be unexplained."""

_FOLLOWS = 0.5
"""Part of a symptom from which on causes upstream explain it."""

_PROBES = {
    "probe.cpu_loop_seconds": "the CPU takes as long as before for the same fixed work: it is software or load",
    "probe.gpu_matmul_seconds": "the GPU takes as long as before for the same fixed work: it is software or load",
}
"""What it says of the rest that the probe of a part of the machine did not move."""

# Scores order the causes: their shares, times how much such a claim is worth beside another one.
_EXACT, _AT_MOST, _INFERRED, _LOCATED = 1.0, 0.97, 0.9, 0.85
_UNEXPLAINED, _SYMPTOM, _CONSEQUENCE, _NO_SHARE = 0.6, 0.5, 0.1, 0.02


def causes(evidence: Evidence, parts: Sequence[SplitPart]) -> tuple[Cause, ...]:
    """Candidates for a slowdown, most likely first; says so where nothing explains it.

    `parts` are the split of the step where no cycles are at hand, as of two profiles. Empty where nothing is longer.
    """
    graph = causal_graph()
    readings = Readings(evidence)
    growth = growth_of(evidence, parts, readings)
    if not growth.parts or not growth.total_us > 0:
        return ()
    explained = _explained(evidence, readings, growth, graph)
    roots = [one for one in explained if not one.behind and one.share and one.kind not in _symptoms(graph)]
    told = list(_causes_of(explained, graph))
    shown = list(symptoms(growth))
    located = [(one, _left(one, roots, graph)) for one in shown if one.located]
    told += [_of_symptom(one, roots, graph) for one in shown]
    open_share = 1.0 - sum(one.share or 0.0 for one in roots) - sum(left for _, left in located)
    if open_share >= _LEAST_OPEN:
        most = _LOCATED * max((left for _, left in located if left > 0), default=1.0)
        told.append(_unexplained(growth, min(open_share, 1.0), most, readings))
    return tuple(sorted(told, key=lambda cause: (-cause.score, cause.kind)))


def _explained(evidence: Evidence, readings: Readings, growth: Growth, graph: CausalGraph) -> tuple[Explained, ...]:
    """The candidates and their shares, seen from the rank that makes the others wait, if there is one."""
    slow = slow_rank(evidence, growth.total_us)
    if slow is not None and slow.cycles.rank != evidence.rank:
        seen = replace(evidence, rank=slow.cycles.rank, before=slow.cycles.before, after=slow.cycles.after)
        evidence, readings = seen, Readings(seen)
        growth = growth_of(evidence, (), readings)
    found = [*candidates(evidence, readings, growth, graph)]
    found += kernel_candidates(evidence.kernels, growth, graph)
    off = stopped(growth, readings, graph)
    found += [off] if off is not None else []
    found += [slow.candidate(graph)] if slow is not None else []
    if slow is not None:
        found = [one if one.device or one.subject else replace(one, device=slow.cycles.rank) for one in found]
    return explain(_one_of_each(found), growth, graph)


def _one_of_each(found: Sequence[Candidate]) -> list[Candidate]:
    """One candidate of each kind: readings and profiles may show the same, and then the surer one counts."""
    surest: dict[str, Candidate] = {}
    for one in sorted(found, key=lambda one: (one.exact, one.time_us or 0.0)):
        surest[one.kind.kind] = one
    return list(surest.values())


def _symptoms(graph: CausalGraph) -> frozenset[str]:
    return frozenset(kind.kind for kind in graph.kinds.values() if kind.layer is Layer.SYMPTOM)


def _causes_of(explained: Sequence[Explained], graph: CausalGraph) -> Iterator[Cause]:
    for one in explained:
        share, candidate = one.share, one.candidate
        if one.behind or one.kind in _symptoms(graph):
            last = (f"a consequence of {one.behind}",) if one.behind else ()
            worth = _CONSEQUENCE if one.behind else _SYMPTOM
            status = Status.MEASURED if share else Status.INFERRED
            yield _cause(one, worth * (share or _NO_SHARE), status, (*candidate.proof, *last))
        elif share is not None and share >= _LEAST_SHARE:
            worth = _EXACT if candidate.exact else _AT_MOST if one.is_sized else _INFERRED
            status = Status.MEASURED if one.is_sized else Status.INFERRED
            yield _cause(one, worth * share, status, (*candidate.proof, *_shown_by(one, explained)))
        elif share is None and not one.is_sized:
            yield _cause(one, _NO_SHARE, Status.INFERRED, candidate.proof)


def _shown_by(one: Explained, explained: Iterable[Explained]) -> Iterator[str]:
    """Evidence of what a cause acts through, where its own reading tells no time."""
    for other in explained:
        if other.behind == one.kind and other.kind in one.candidate.kind.through:
            yield from other.candidate.proof


def _cause(one: Explained, score: float, status: Status, proof: tuple[str, ...]) -> Cause:
    candidate = one.candidate
    subject = candidate.subject or candidate.kind.subject
    return Cause(one.kind, subject, score, one.share, status, proof, candidate.device)


def _left(symptom: Symptom, roots: Iterable[Explained], graph: CausalGraph) -> float:
    """The part of a symptom that no cause upstream explains."""
    upstream = sum(root.share or 0.0 for root in roots if graph.explains(root.kind, symptom.kind))
    return 0.0 if upstream >= _FOLLOWS * symptom.share else symptom.share - upstream


def _of_symptom(symptom: Symptom, roots: Sequence[Explained], graph: CausalGraph) -> Cause:
    left = _left(symptom, roots, graph)
    upstream = [root for root in roots if graph.explains(root.kind, symptom.kind)]
    worth = _LOCATED if symptom.located else _SYMPTOM
    score, share, proof = worth * left, symptom.share, symptom.proof
    if left == 0.0:
        first = max(upstream, key=lambda root: (root.share or 0.0, root.kind))
        score, proof = _CONSEQUENCE * symptom.share, (*proof, f"a consequence of {first.kind}")
    elif symptom.located:
        share = left  # a finding of its own, which adds up with the causes
    else:
        proof = (*proof, "where the time went, not why: its causes, and what is unexplained, are within it")
    return Cause(symptom.kind, symptom.subject, score, share, Status.MEASURED, proof)


def _unexplained(growth: Growth, share: float, most: float, readings: Readings) -> Cause:
    """What stays open; its score is at most `most`: where the thread was seen to stand is no guess, however small."""
    if WHOLE in growth.parts:
        proof = f"a step takes {growth.after_us / growth.before_us:.2f} times as long"
    else:
        proof = f"mean cycle {growth.before_us / 1e3:.3f} ms before, {growth.after_us / 1e3:.3f} ms after"
    machine = tuple(words for name, words in _PROBES.items() if readings.moved(name) is False)
    subject = "nothing that was read explains it"
    return Cause("unexplained", subject, min(_UNEXPLAINED * share, most), share, Status.NOT_SHOWN, (proof, *machine))
