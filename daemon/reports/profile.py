"""A kernel profile as people and programs read it."""

from collections.abc import Mapping
from typing import Any

from cyclewatch.daemon.store.profile_records import StoredKernel, StoredProfile
from cyclewatch.detectors.kernels import classify


def profile_document(profile: StoredProfile, number: int | None = None) -> dict[str, Any]:
    """The machine-readable form, kept stable; `kernels` only where they are known. Instants are UTC nanoseconds."""
    document: dict[str, Any] = {
        "id": number,
        "target": profile.target,
        "rank": profile.rank,
        "pid": profile.pid,
        "reason": profile.reason,
        "method": profile.method,
        "state": profile.state.value,
        "detail": profile.detail,
        "began_at_ns": profile.began_at_ns,
        "ended_at_ns": profile.ended_at_ns,
        "totals": dict(profile.totals),
        "cost": dict(profile.cost),
        "warnings": list(profile.warnings),
    }
    if profile.kernels is not None:
        whole_ns = sum(kernel.total_ns for kernel in profile.kernels)
        document["kernels"] = [_kernel(kernel, whole_ns) for kernel in profile.kernels]
    return document


def _kernel(kernel: StoredKernel, whole_ns: int) -> dict[str, Any]:
    """One kernel, with what its name tells; `share` is of the time of everything in the profile."""
    identity = classify(kernel.name, kernel.kind)
    return {
        "name": kernel.name,
        "short": identity.short,
        "family": kernel.family,
        "operator": identity.operator,
        "library": identity.library,
        "source": identity.source,
        "group": identity.group,
        "kind": kernel.kind,
        "device": kernel.device,
        "phase": kernel.phase,
        "calls": kernel.calls,
        "total_ns": kernel.total_ns,
        "mean_ns": kernel.total_ns / kernel.calls if kernel.calls else None,
        "min_ns": kernel.min_ns,
        "max_ns": kernel.max_ns,
        "median_ns": kernel.median_ns,
        "std_ns": kernel.std_ns,
        "share": kernel.total_ns / whole_ns if whole_ns else 0.0,
    }


def cost_sentence(cost: Mapping[str, Any]) -> str:
    """What a profile cost, in words."""
    if not cost:
        return "what it cost is not known yet, or cannot be: no cycles of it are read"
    parts = []
    if cost["stall_ns"] is not None:
        parts.append(
            f"longest cycle {cost['longest_during_ns'] / 1e6:.1f} ms during it, "
            f"{cost['longest_before_ns'] / 1e6:.1f} ms before: stall {cost['stall_ns'] / 1e6:.1f} ms"
        )
    if cost["during_ratio"] is not None:
        parts.append(f"median cycle {cost['during_ratio'] - 1:+.1%} during it")
    if cost["after_ratio"] is not None:
        parts.append(f"{cost['after_ratio'] - 1:+.1%} after it")
    return "; ".join(parts) or "too few cycles to tell what it cost"
