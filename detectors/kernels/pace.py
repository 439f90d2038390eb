"""How often two profiles did their work: what times and numbers of calls are divided by."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.profiles.records import Profile
from cyclewatch.detectors.kernels.changes import Unit
from cyclewatch.detectors.kernels.pairing import Calls, Pair
from cyclewatch.detectors.phases import Floats

_IN_STEPS_MIN = 0.9
"""Share of the kernel time that must lie in steps for them to be the unit, where steps and the rest share a phase."""

_IN_GRAPH_MIN = 0.5
_ALIKE = math.log(1.02)
_ALIKE_MIN = 0.5
"""Share of the time of kernels whose calls must have one ratio for it to be that of the work."""

_IRREGULAR_EFFECT = math.log(1.05)
_IRREGULAR_SIGMAS = 3.0
_EVERY_CYCLE = 0.9


@dataclass(frozen=True, slots=True)
class Pace:
    """How many units each profile has, by phase and as a whole (before, after).

    In the phases that are `exact`, calls a unit are not blurred by chance or edges. Of cycles, `mix` bounds the log
    ratio of calls that other shares of the server's phases can make, `moved` is the share that is of another phase
    than before, and `one_sided` tells that only one of the profiles has some phase.
    """

    unit: Unit
    before: Mapping[str, float]
    after: Mapping[str, float]
    whole: tuple[float, float]
    exact: frozenset[str] = frozenset()
    mix: tuple[float, float] = (0.0, 0.0)
    moved: float = 0.0
    one_sided: bool = False

    def calls_ratio(self, before: Calls, after: Calls) -> float:
        """Log of the calls a unit, after over before; 0 where the difference may be chance or an edge."""
        count_before, count_after = self.before[before.phase], self.after[after.phase]
        ratio = math.log(after.calls / count_after) - math.log(before.calls / count_before)
        if before.phase in self.exact and self.unit is Unit.PROFILE:
            return ratio if abs(ratio) > _ALIKE / 2 else 0.0
        if before.phase in self.exact and before.calls % count_before == after.calls % count_after == 0:
            return ratio
        tolerance = _IRREGULAR_EFFECT
        every_cycle = min(before.calls / count_before, after.calls / count_after) >= _EVERY_CYCLE
        if self.unit is Unit.CYCLE and every_cycle:
            tolerance += 1 / count_before + 1 / count_after
        else:
            tolerance += _IRREGULAR_SIGMAS * math.sqrt(1 / before.calls + 1 / after.calls)
        low, high = self.mix
        return 0.0 if low - tolerance <= ratio <= high + tolerance else ratio


def pace(before: Profile, after: Profile, pairs: Sequence[Pair]) -> Pace:
    """The best unit that both profiles tell: steps, replays of one graph, cycles, equal work, seconds, the whole.

    Args:
        before: a profile.
        after: another one.
        pairs: their kernels, of the phases that are compared.
    """
    phases = {pair.known.phase for pair in pairs}
    old, new = _steps(before, phases), _steps(after, phases)
    if old and new:
        counts = (_whole(before, phases), _whole(after, phases))
        stepwise = {step.phase for step in before.steps} & {step.phase for step in after.steps}
        return Pace(Unit.STEP, old, new, counts, frozenset(stepwise))
    if replays := _replays(before, after):
        return _alike(Unit.REPLAY, phases, *replays, exact=True)
    if sum(before.cycles.values()) > 0 and sum(after.cycles.values()) > 0:
        return _cycles(before.cycles, after.cycles, phases)
    if work := _work(pairs):
        ratio, exact = work
        return _alike(Unit.PROFILE, phases, 1.0, ratio, exact=exact)
    if before.totals.span_ns and after.totals.span_ns:
        return _alike(Unit.SECOND, phases, before.totals.span_ns / 1e9, after.totals.span_ns / 1e9)
    return _alike(Unit.PROFILE, phases, 1.0, 1.0)


def _alike(unit: Unit, phases: set[str], before: float, after: float, *, exact: bool = False) -> Pace:
    exactly = frozenset(phases if exact else ())
    return Pace(unit, dict.fromkeys(phases, before), dict.fromkeys(phases, after), (before, after), exactly)


def _whole(profile: Profile, phases: set[str]) -> float:
    """All steps of these phases."""
    return float(sum(step.phase in phases for step in profile.steps)) or float(len(profile.steps))


def _steps(profile: Profile, phases: set[str]) -> dict[str, float]:
    """Steps by phase; of "", which holds what lies in no step, all of them. Empty where steps are not the unit."""
    counts = {phase: float(sum(step.phase == phase for step in profile.steps)) for phase in phases}
    if "" in phases:
        if not counts[""]:
            counts[""] = float(len(profile.steps))
        elif sum(step.kernel_ns for step in profile.steps) < _IN_STEPS_MIN * profile.totals.kernel_ns:
            return {}
    return counts if all(counts.values()) else {}


def _replays(before: Profile, after: Profile) -> tuple[float, float] | None:
    """How often both replayed the largest graph that they have in common, None where none is most of their time."""
    found = []
    for profile in (before, after):
        graphs: dict[tuple[str, ...], tuple[float, int]] = {}
        for graph in profile.graphs:
            order = tuple(kernel.name for kernel in graph.kernels)
            count, time_ns = graphs.get(order, (0.0, 0))
            graphs[order] = count + graph.replays, time_ns + sum(kernel.total_ns for kernel in graph.kernels)
        found.append(graphs)
    old, new = found
    common = max(old.keys() & new.keys(), key=lambda order: (min(old[order][1], new[order][1]), order), default=None)
    if common is None:
        return None
    shares = (old[common][1] / max(before.totals.kernel_ns, 1), new[common][1] / max(after.totals.kernel_ns, 1))
    return (old[common][0], new[common][0]) if min(shares) >= _IN_GRAPH_MIN else None


def _cycles(before: Mapping[str, int], after: Mapping[str, int], phases: set[str]) -> Pace:
    """Cycles of the same phase where kernels tell theirs, and all of them where they do not."""
    whole_before, whole_after = sum(before.values()), sum(after.values())
    both = {phase for phase in phases if before.get(phase) and after.get(phase)}
    old = {phase: float(before[phase] if phase in both else whole_before) for phase in phases}
    new = {phase: float(after[phase] if phase in both else whole_after) for phase in phases}
    names = sorted({*before, *after})
    mix = [
        math.log((after.get(phase, 0) + 1) / whole_after) - math.log((before.get(phase, 0) + 1) / whole_before)
        for phase in names
        if len(names) > 1
    ]
    moved = sum(abs(after.get(phase, 0) / whole_after - before.get(phase, 0) / whole_before) for phase in names) / 2
    return Pace(
        Unit.CYCLE,
        old,
        new,
        (float(whole_before), float(whole_after)),
        mix=(min([0.0, *mix]), max([0.0, *mix])),
        moved=moved,
        one_sided=any(bool(before.get(phase)) != bool(after.get(phase)) for phase in names),
    )


def _work(pairs: Sequence[Pair]) -> tuple[float, bool] | None:
    """The ratio of calls that most kernels have, by time, and whether exactly; None where they have none in common."""
    both = [(pair.before, pair.after) for pair in pairs if pair.before and pair.after]
    if not both:
        return None
    ratios = np.array([math.log(after.calls / before.calls) for before, after in both])
    weights = np.array([math.sqrt(before.total_ns * after.total_ns) + 1.0 for before, after in both])
    weights /= weights.sum()
    common = middle(ratios, weights)
    slack = np.array([1 / before.calls + 1 / after.calls for before, after in both])
    if weights[np.abs(ratios - common) <= _ALIKE + slack].sum() < _ALIKE_MIN:
        return None
    return math.exp(common), bool(weights[np.abs(ratios - common) < 1e-9].sum() >= _ALIKE_MIN)  # noqa: PLR2004 (rounding)


def middle(values: Floats, weights: Floats) -> float:
    """The weighted median; between two values that share the middle, their mean, so that it mirrors."""
    return (quantile(values, weights, 0.5) - quantile(-values, weights, 0.5)) / 2


def quantile(values: Floats, weights: Floats, part: float) -> float:
    """The smallest of `values`, shape (n,), below or at which a `part` of the weights lies; weights add up to 1."""
    order = np.argsort(values)
    at = int(np.searchsorted(np.cumsum(weights[order]), part - 1e-12))
    return float(values[order][min(at, len(values) - 1)])
