"""What the shares of a suspicion report's functions tell: whether its cycles can be compared, and how a step changed.

A share says nothing by itself: it falls when the function gets faster, and when everything else gets slower. But the
kernels of a step do the same work in both runs, which gives two tests:

- The time of the kernels in one cycle must be about equal in both runs, or grow with their clock. Where it is not, the
  reports' "cycles" hold different amounts of work, and their lengths say nothing.
- Kernels that became slower by themselves do not all lose share by the same factor. Where all do, each call took as
  long as before, and the step around them grew by that factor.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.suspicion_records import SuspicionReport, SuspicionRow
from cyclewatch.detectors.kernels import Family, classify
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.split_part import SplitPart

REST = "outside the kernels"

_SAME_WORK = (0.67, 4.0)
"""Time of the kernels in a cycle, after over before, beyond which cycles are of different work: a GPU at a third of
its clock needs three times as long, and nothing makes the same kernels so much faster."""

_UNIFORM_FACTOR = 1.25
"""How far from the middle a kernel's share may have changed, to have changed like the others."""

_UNIFORM_PART = 0.9
"""Part of the kernels' time that must have changed alike."""

_GREW, _SHRANK = 1.05, 1 / 1.05
_WHOLE = 100.0
"""Percent."""

_PRECISE_PERCENT = 0.1
"""Smallest share whose ratio is worth a look: reports round to 0.01."""


@dataclass(frozen=True, slots=True)
class KernelShare:
    """The share of one kernel's time on one device, percent of the cycle time."""

    name: str
    short: str
    family: Family
    device: str
    before: float
    after: float
    p_value: float


@dataclass(frozen=True, slots=True)
class SharesReading:
    """What the shares tell.

    `factor` is how many times as large the kernels' shares were before, `low` and `high` the range over all rows whose
    shares are large enough to tell; `uniform` that they changed together. `work_ratio` is the time of the kernels in a
    cycle, after over before; `same_unit` whether cycles of both runs are of like work. What cannot be told is None.
    `slower` is how many times as long a step became, and `slower_by` what that is taken from.
    """

    kernels: tuple[KernelShare, ...]
    factor: float | None
    low: float | None
    high: float | None
    uniform: bool
    work_ratio: float | None
    same_unit: bool | None
    slower: float | None
    slower_by: str
    parts: tuple[SplitPart, ...]
    """The time of a cycle of the run before, and of as much work in the run after."""


def is_gpu(device: str) -> bool:
    """Whether a row's device is a GPU."""
    return device.strip().lower().startswith(("gpu", "cuda", "device", "hip"))


def read_shares(report: SuspicionReport) -> SharesReading:
    """What the shares of the report's kernels tell of its two runs."""
    kernels = kernel_shares(report.rows)
    factor, uniform = _factor(kernels)
    low, high = _range(report.rows, factor)
    times = report.before.mean_cycle_us, report.after.mean_cycle_us
    cycles_ratio = times[1] / times[0] if times[0] and times[1] else None
    work_ratio = cycles_ratio / factor if cycles_ratio and factor else None
    same_unit = None if work_ratio is None else _SAME_WORK[0] <= work_ratio <= _SAME_WORK[1]
    slower, by = _slower(kernels, factor, cycles_ratio, same_unit=same_unit)
    parts = _parts(kernels, times[0] or 1e6, slower)
    return SharesReading(kernels, factor, low, high, uniform, work_ratio, same_unit, slower, by, parts)


def kernel_shares(rows: Iterable[SuspicionRow]) -> tuple[KernelShare, ...]:
    """The share of each kernel on each GPU, the largest first.

    A kernel has a row for each metric, and each row has the cycles in which that metric was read: the one that is told
    most surely counts.
    """
    surest: dict[tuple[str, str], SuspicionRow] = {}
    for row in rows:
        if not is_gpu(row.device) or not (math.isfinite(row.beta.before) and math.isfinite(row.beta.after)):
            continue
        key = row.function, row.device
        if key not in surest or _sureness(row) > _sureness(surest[key]):
            surest[key] = row
    found = []
    for row in surest.values():
        identity = classify(row.function)
        found.append(
            KernelShare(
                row.function, identity.short, identity.family, row.device,
                row.beta.before, row.beta.after, row.beta.p_value,
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: -max(one.before, one.after)))


def _sureness(row: SuspicionRow) -> tuple[float, float]:
    """Low p-values first, and of equal ones the larger distance."""
    p_value = row.beta.p_value if math.isfinite(row.beta.p_value) else 1.0
    distance = abs(row.beta.z) if math.isfinite(row.beta.z) else 0.0
    return -p_value, distance


def _factor(kernels: Sequence[KernelShare]) -> tuple[float | None, bool]:
    """The factor by which shares shrank, and whether it is one for all."""
    seen = [one for one in kernels if one.before > 0 and one.after > 0]
    if not seen:
        return None, False
    ratios = np.array([one.before / one.after for one in seen])
    weights = np.array([max(one.before, one.after) for one in seen])
    factor = _weighted_median(ratios, weights)
    alike = np.abs(np.log(ratios / factor)) <= math.log(_UNIFORM_FACTOR)
    return factor, bool(weights[alike].sum() >= _UNIFORM_PART * weights.sum())


def _range(rows: Iterable[SuspicionRow], factor: float | None) -> tuple[float | None, float | None]:
    """The smallest and the largest factor that a row of a kernel tells."""
    ratios = [
        row.beta.before / row.beta.after
        for row in rows
        if is_gpu(row.device) and min(row.beta.before, row.beta.after) >= _PRECISE_PERCENT
    ]
    return min(ratios, default=factor), max(ratios, default=factor)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])


def _slower(
    kernels: Sequence[KernelShare], factor: float | None, cycles_ratio: float | None, *, same_unit: bool | None
) -> tuple[float | None, str]:
    """How many times as long a step became, and what tells it."""
    if cycles_ratio is not None and same_unit is not False:
        return cycles_ratio, "the mean cycle time"
    if factor is None:
        return None, ""
    if factor >= _GREW:
        return factor, "the shares of the kernels, which shrink as the step around them grows"
    busiest = _busiest(kernels)
    old, new = sum(one.before for one in busiest), sum(one.after for one in busiest)
    # Where kernels have most of the step already, their shares can hardly grow, but what is left to others shrinks.
    if max(old, new) < _WHOLE and (
        factor <= _SHRANK or (old > _WHOLE / 2 and (_WHOLE - old) / (_WHOLE - new) >= _GREW)
    ):
        return (_WHOLE - old) / (_WHOLE - new), "the shares of the kernels, which grow against all that is beside them"
    return None, ""


def _parts(kernels: Sequence[KernelShare], cycle_us: float, slower: float | None) -> tuple[SplitPart, ...]:
    """The kernels' families and what is beside them; empty where kernels or the growth are not known."""
    if not kernels or slower is None:
        return ()
    sums: dict[Family, tuple[float, float]] = {}
    for one in _busiest(kernels):
        before, after = sums.get(one.family, (0.0, 0.0))
        sums[one.family] = before + one.before, after + one.after
    parts = [
        SplitPart(family.value, before / 100 * cycle_us, after / 100 * cycle_us * slower)
        for family, (before, after) in sums.items()
    ]
    rest = SplitPart(
        REST,
        max(cycle_us - sum(part.before_us for part in parts), 0.0),
        max(cycle_us * slower - sum(part.after_us for part in parts), 0.0),
    )
    return (*sorted(parts, key=lambda part: -max(part.before_us, part.after_us)), rest)


def _busiest(kernels: Sequence[KernelShare]) -> list[KernelShare]:
    """The kernels of the GPU with the largest shares: GPUs work at the same time, so theirs do not add up."""
    sums: dict[str, float] = {}
    for one in kernels:
        sums[one.device] = sums.get(one.device, 0.0) + one.before + one.after
    busiest = max(sums, key=lambda device: sums[device])
    return [one for one in kernels if one.device == busiest]
