"""What a capture cost the server, from its cycle records alone.

Three stretches: before, during (cycles that the capture touched), after. Cycles are compared with those of the same
phase and load before, so that a change of the traffic is not taken for a cost.
"""

from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.records import CycleFlag, RecordKind, Records
from cyclewatch.detectors.phases import Bools, Floats, Integers, load_buckets, phase_by_number, phases_of

STRETCH_NS = 30 * 10**9
"""How long before and after a capture cycles are looked at."""

HEARD_NS = 2 * 10**9
"""A server's loop that turns is heard once a second; after so long it surely stands still."""

_BLOCK_NS = 5 * 10**9
_BLOCK_CYCLES_MIN = 10
_CYCLES_BEFORE_MIN = 50
_CYCLES_DURING_MIN = 5
_CYCLES_AFTER_MIN = 50
_CELL_CYCLES_MIN = 10
_UNUSABLE = CycleFlag.WARMUP | CycleFlag.PAUSED | CycleFlag.AFTER_BREAK


@dataclass(frozen=True)
class ProfileCost:
    """The cost of one capture to one rank. Nanoseconds; None where there were too few cycles to tell.

    `stall_ns` is how much longer the longest cycle during it was than any of its phase before. `during_ratio` and
    `after_ratio` are medians of cycle time over the median of the same phase and load before, 1 for no cost;
    `noise_ratio` is how far medians of 5 s before lie apart by themselves.
    """

    cycles_before: int
    cycles_during: int
    cycles_after: int
    longest_before_ns: int | None
    longest_during_ns: int | None
    stall_ns: int | None
    during_ratio: float | None
    after_ratio: float | None
    noise_ratio: float | None

    @property
    def after_effect(self) -> float | None:
        """By what ratio cycles are surely longer after than before, beyond the noise; 0 where they are not."""
        if self.after_ratio is None or self.noise_ratio is None:
            return None
        return max(0.0, self.after_ratio - 1 - self.noise_ratio)


def touched(records: Records, began_ns: int, ended_ns: int) -> Bools:
    """Which records a stretch of monotonic time has a part of, shape (n,)."""
    end = records["end_ns"].astype(np.int64)
    start = end - records["cycle_ns"].astype(np.int64)
    inside: Bools = (end > began_ns) & (start < ended_ns)
    return inside


def profile_cost(records: Records, began_ns: int, ended_ns: int, silent_ns: int = 0) -> ProfileCost:
    """The cost of a capture from `began_ns` to `ended_ns` (monotonic), from all records of one ring around it.

    `silent_ns` is for how long the server's loop stood still, as far as was seen, if it stopped in the capture. Where
    no cycle tells of that, since it goes on or what it ended with was no cycle, it is the stall itself.
    """
    records = records[
        (records["kind"] == RecordKind.CYCLE) & (records["flags"] & int(_UNUSABLE) == 0) & (records["cycle_ns"] > 0)
    ]
    end = records["end_ns"].astype(np.int64)
    cycle = records["cycle_ns"].astype(np.float64)
    phases = phases_of(records).astype(np.int64)
    during = touched(records, began_ns, ended_ns)
    usual = ~during & (records["flags"] & int(CycleFlag.PROFILED) == 0)  # another capture is nothing to compare with
    before = usual & (end <= began_ns) & (end > began_ns - STRETCH_NS)
    after = usual & (end > ended_ns) & (end <= ended_ns + STRETCH_NS)
    ratios = _against(before, _cells(records, phases), cycle)
    longest_during_ns = _longest(cycle[during])
    is_told_of = silent_ns <= (longest_during_ns or 0) + HEARD_NS
    return ProfileCost(
        cycles_before=int(before.sum()),
        cycles_during=int(during.sum()),
        cycles_after=int(after.sum()),
        longest_before_ns=_longest(cycle[before]),
        longest_during_ns=longest_during_ns,
        stall_ns=_stall(cycle, phases, before, during) if is_told_of else silent_ns,
        during_ratio=_median(ratios[during], _CYCLES_DURING_MIN),
        after_ratio=_median(ratios[after], _CYCLES_AFTER_MIN),
        noise_ratio=_noise(ratios[before], (began_ns - end[before]) // _BLOCK_NS),
    )


def cycles_by_phase(records: Records, began_ns: int, ended_ns: int) -> dict[str, int]:
    """How many cycles of each phase ended in a stretch of monotonic time: what a profile's totals are divided by."""
    inside = (
        (records["kind"] == RecordKind.CYCLE)
        & (records["end_ns"] > np.uint64(max(0, began_ns)))
        & (records["end_ns"] <= np.uint64(max(0, ended_ns)))
    )
    numbers, counts = np.unique(phases_of(records[inside]), return_counts=True)
    return {
        phase_by_number(number).value: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }


def _cells(records: Records, phases: Integers) -> Integers:
    """A number for the phase and load bucket of each record, shape (n,)."""
    cells = np.zeros(len(records), np.int64)
    for number in np.unique(phases):
        chosen = phases == number
        cells[chosen] = load_buckets(phase_by_number(int(number)), records[chosen]) * 256 + int(number)
    return cells


def _against(before: Bools, cells: Integers, cycle: Floats) -> Floats:
    """Cycle time over the median of its cell before, shape (n,); NaN where the cell had too few cycles."""
    ratios = np.full(len(cycle), np.nan)
    for cell in np.unique(cells[before]):
        chosen = cells == cell
        reference = cycle[chosen & before]
        if len(reference) >= _CELL_CYCLES_MIN:
            ratios[chosen] = cycle[chosen] / np.median(reference)
    return ratios


def _stall(cycle: Floats, phases: Integers, before: Bools, during: Bools) -> int | None:
    if before.sum() < _CYCLES_BEFORE_MIN or not during.any():
        return None
    longest = 0.0
    for number in np.unique(phases[during]):
        usual = cycle[before & (phases == number)]
        if len(usual) >= _CELL_CYCLES_MIN:
            longest = max(longest, float(cycle[during & (phases == number)].max() - usual.max()))
    return int(longest)


def _longest(cycle: Floats) -> int | None:
    return int(cycle.max()) if len(cycle) else None


def _median(ratios: Floats, fewest: int) -> float | None:
    known = ratios[np.isfinite(ratios)]
    return float(np.median(known)) if len(known) >= fewest else None


def _noise(ratios: Floats, blocks: Integers) -> float | None:
    """How far the medians of the blocks lie apart; None for fewer than three blocks."""
    finite = np.isfinite(ratios)
    medians = [
        float(np.median(chosen))
        for block in np.unique(blocks)
        if len(chosen := ratios[finite & (blocks == block)]) >= _BLOCK_CYCLES_MIN
    ]
    return max(medians) - min(medians) if len(medians) > 2 else None  # noqa: PLR2004 (two may agree by chance)
