"""Which of several ranks makes the others wait.

Ranks of one server go through a step together: each waits for the slowest. So the cycle becomes longer on all of them,
and its wait grows on all but the one that is slow, whose own stages grow instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cyclewatch.config.causes import CausalGraph
from cyclewatch.detectors.attribution.candidates import Candidate
from cyclewatch.detectors.attribution.evidence import Evidence, RankCycles
from cyclewatch.detectors.attribution.split import WAIT, split
from cyclewatch.detectors.split_part import SplitPart

_LEAST_GAP = 0.3
"""How much less the slow rank's wait must have grown than that of the others, as a part of the slowdown."""


@dataclass(frozen=True)
class SlowRank:
    """The rank that makes the others wait: its cycles, and how much less its wait grew."""

    cycles: RankCycles
    gap_us: float
    proof: tuple[str, ...]

    def candidate(self, graph: CausalGraph) -> Candidate:
        """As a candidate: it can have added what the others wait for it."""
        kind = graph.kinds["straggler"]
        return Candidate(kind, self.cycles.rank, self.gap_us, exact=False, weight=self.gap_us, proof=self.proof)


def slow_rank(evidence: Evidence, total_us: float) -> SlowRank | None:
    """The rank that makes the others wait for a good part of the slowdown; None where all wait alike."""
    own = RankCycles(evidence.rank, evidence.before, evidence.after)
    splits = [(one, split(one.before, one.after)) for one in (own, *evidence.ranks)]
    waits = [(one, wait) for one, parts in splits for wait in parts if wait.part == WAIT]
    if len(waits) < 2:  # noqa: PLR2004 (one that is slow, and one that waits)
        return None
    cycles, least = min(waits, key=lambda rank: rank[1].delta_us)
    others = [(one.rank, wait) for one, wait in waits if one is not cycles]
    gap_us = float(np.median([wait.delta_us for _, wait in others])) - least.delta_us
    if gap_us < _LEAST_GAP * total_us or max(wait.delta_us for _, wait in others) <= 0:
        return None
    return SlowRank(cycles, gap_us, (_waits((cycles.rank,), [least]), _of_others(others)))


def _of_others(others: Sequence[tuple[str, SplitPart]]) -> str:
    return _waits([rank for rank, _ in others], [wait for _, wait in others])


def _waits(ranks: Sequence[str], waits: Sequence[SplitPart]) -> str:
    before, after = (np.mean([getattr(wait, f"{side}_us") for wait in waits]) / 1e3 for side in ("before", "after"))
    verb = "waits" if len(ranks) == 1 else "wait"
    return f"{', '.join(ranks)} {verb} {before:.3f} ms a cycle before, {after:.3f} ms after"
