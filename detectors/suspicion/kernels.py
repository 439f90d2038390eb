"""The kernels of a suspicion report as a comparison of profiles: their shares as times of a cycle of the run before.

A report does not tell how often a kernel was called: all calls of a cycle count as one.
"""

import math
from collections.abc import Iterable

from cyclewatch.detectors.kernels import classify
from cyclewatch.detectors.kernels.changes import (
    FamilyChange,
    KernelChange,
    PhaseSplit,
    ProfileComparison,
    Uniform,
    Unit,
    Use,
    Verdict,
)
from cyclewatch.detectors.suspicion.shares import REST, KernelShare, SharesReading

_LEAST_FACTOR = 1.1
_LEAST_PERCENT = 0.1
"""Reports round to 0.01."""

_P_VALUE_MAX = 0.01
_UNIFORM_FROM = 1.05


def kernels_of_report(shares: SharesReading) -> ProfileComparison | None:
    """What became of each kernel; None where it is not known how much longer a step became."""
    if not shares.parts or shares.slower is None:
        return None
    cycle_ns = 1e3 * sum(part.before_us for part in shares.parts)
    grown_ns = cycle_ns * shares.slower
    together = shares.slower / shares.factor if shares.uniform and shares.factor else None
    changes = [_change(one, cycle_ns, grown_ns, alike=together is not None) for one in shares.kernels]
    return ProfileComparison(
        comparable=True,
        reasons=(),
        warnings=(),
        unit=Unit.CYCLE,
        kernels=tuple(sorted(changes, key=lambda one: -abs(one.delta_ns))),
        families=tuple(_families(shares, cycle_ns, grown_ns)),
        substitutions=(),
        phases=(PhaseSplit("", 1, 1, cycle_ns, grown_ns, shares.parts),),
        uniform=_uniform(shares, together),
    )


def _uniform(shares: SharesReading, factor: float | None) -> Uniform | None:
    """All kernels slower, or faster, together; `low` and `high` by the rows that are large enough to tell."""
    if factor is None or 1 / _UNIFORM_FROM < factor < _UNIFORM_FROM or not shares.low or not shares.high:
        return None
    slower = shares.slower or 1.0
    return Uniform(factor, slower / shares.high, slower / shares.low, len(shares.kernels))


def _change(one: KernelShare, cycle_ns: float, grown_ns: float, *, alike: bool) -> KernelChange:
    identity = classify(one.name)
    before, after = _use(one.before, cycle_ns), _use(one.after, grown_ns)
    ratio = after.ns / before.ns if before.ns > 0 else math.inf if after.ns > 0 else 1.0
    is_told = max(one.before, one.after) >= _LEAST_PERCENT and one.p_value < _P_VALUE_MAX
    verdict = _verdict(ratio) if is_told and not alike else Verdict.SAME
    return KernelChange(
        key=identity.key,
        short=one.short,
        name=one.name,
        family=one.family,
        phase="",
        verdict=verdict,
        before=before if one.before > 0 else None,
        after=after if one.after > 0 else None,
        delta_ns=after.ns - before.ns,
        effect=ratio - 1 if math.isfinite(ratio) else None,
        p_value=one.p_value if math.isfinite(one.p_value) else None,
        operator=identity.operator,
        library=identity.library,
        group=identity.group,
    )


def _verdict(ratio: float) -> Verdict:
    if ratio == 0 or math.isinf(ratio):
        return Verdict.GONE if ratio == 0 else Verdict.NEW
    if ratio >= _LEAST_FACTOR:
        return Verdict.SLOWER
    return Verdict.FASTER if ratio <= 1 / _LEAST_FACTOR else Verdict.SAME


def _use(percent: float, cycle_ns: float) -> Use:
    time_ns = percent / 100 * cycle_ns
    return Use(calls=1.0, ns=time_ns, mean_ns=time_ns, median_ns=None, std_ns=None, share=percent / 100)


def _families(shares: SharesReading, cycle_ns: float, grown_ns: float) -> Iterable[FamilyChange]:
    by_name = {one.family.value: one.family for one in shares.kernels}
    for part in shares.parts:
        if part.part == REST:
            continue
        before_ns, after_ns = 1e3 * part.before_us, 1e3 * part.after_us
        count = float(sum(one.family.value == part.part for one in shares.kernels))
        yield FamilyChange(
            by_name[part.part], before_ns, after_ns, count, count, before_ns / cycle_ns, after_ns / grown_ns
        )
