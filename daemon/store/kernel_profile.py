"""A stored profile in the form in which profiles from files come, so that both can be compared."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cyclewatch.collectors.profiles.records import (
    Flaw,
    FlawKind,
    KernelKind,
    KernelUse,
    Profile,
    ProfileFormat,
    Totals,
)
from cyclewatch.daemon.store.profile_records import StoredKernel, StoredProfile
from cyclewatch.detectors.phases import Phase


def kernel_profile(stored: StoredProfile) -> Profile:
    """What `compare_profiles` takes; without kernels where those were given up.

    Steps are not stored; the cycles that the server made meanwhile take their place.
    """
    totals = stored.totals
    known = {field.name: totals[field.name] for field in fields(Totals) if totals.get(field.name) is not None}
    return Profile(
        format=ProfileFormat.KINETO,
        kernels=tuple(_use(kernel) for kernel in stored.kernels or ()),
        totals=Totals(**{"kernel_ns": 0, "calls": 0, "distinct": 0, **known}),
        flaws=tuple(Flaw(FlawKind.INEXACT, text) for text in stored.warnings),
        device=totals.get("device") or "",
        rank=stored.rank,
        pids=(stored.pid,),
        started_at_ns=stored.began_at_ns,
        cycles=_cycles(totals.get("cycles") or {}),
    )


def _use(kernel: StoredKernel) -> KernelUse:
    return KernelUse(
        name=kernel.name,
        kind=KernelKind(kernel.kind),
        device=kernel.device,
        phase=kernel.phase,
        calls=kernel.calls,
        total_ns=kernel.total_ns,
        min_ns=kernel.min_ns,
        max_ns=kernel.max_ns,
        median_ns=kernel.median_ns,
        std_ns=kernel.std_ns,
        truncated=False,
    )


def _cycles(by_phase: Mapping[str, Any]) -> dict[str, int]:
    """Cycles by the phases that kernels can tell: those of a decode do not tell what was launched beside it."""
    cycles: Counter[str] = Counter()
    for phase, count in by_phase.items():
        cycles[Phase.DECODE.value if phase == Phase.DECODE_BESIDE_EXTEND else phase] += int(count)
    return dict(cycles)
