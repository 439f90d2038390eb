"""A profile from a file as programs and people read it: its kernels and what they are, by family, operator, step."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from cyclewatch.collectors.profiles.records import Graph, KernelUse, Profile, Step
from cyclewatch.config.catalogues import operators
from cyclewatch.detectors.kernels import Family, classify
from cyclewatch.detectors.kernels.operators import operator_shares


@dataclass(frozen=True, slots=True)
class FamilyShare:
    """What one family of kernels took; `share` is of the time of everything in the profile, 0 to 1."""

    family: Family
    kernels: int
    """Different names."""
    calls: int
    total_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Steps of one phase and batch size, or of one kind of name; times are medians."""

    name: str
    batch_size: int | None
    steps: int
    kernel_ns: float
    busy_ns: float
    span_ns: float


def kernels_document(profile: Profile) -> dict[str, Any]:
    """The machine-readable form, kept stable. Times in nanoseconds, shares of the time of everything, 0 to 1.

    What the file does not tell is null; texts that are not known are empty.
    """
    whole_ns = whole_time_ns(profile)
    return {
        "format": profile.format.value,
        "device": profile.device,
        "rank": profile.rank,
        "world_size": profile.world_size,
        "kernels": [_kernel(use, whole_ns) for use in profile.kernels],
        "totals": asdict(profile.totals),
        "families": [asdict(family) for family in families(profile)],
        "operators": [asdict(share) for share in operator_shares(profile.kernels)],
        "steps": [asdict(step) for step in profile.steps],
        "graphs": [_graph(graph) for graph in profile.graphs],
        "warnings": list(profile.warnings),
    }


def whole_time_ns(profile: Profile) -> int:
    """What shares are of: kernels and copies, or, where nothing ran on a GPU, the operators of the CPU."""
    return sum(use.total_ns for use in profile.kernels)


def families(profile: Profile) -> list[FamilyShare]:
    """What each family took, the largest first."""
    by_family: dict[Family, list[KernelUse]] = {}
    for use in profile.kernels:
        by_family.setdefault(classify(use.name, use.kind.value).family, []).append(use)
    whole_ns = whole_time_ns(profile)
    shares = []
    for family, uses in by_family.items():
        total_ns = sum(use.total_ns for use in uses)
        names = len({use.name for use in uses})
        shares.append(FamilyShare(family, names, sum(use.calls for use in uses), total_ns, _share(total_ns, whole_ns)))
    return sorted(shares, key=lambda one: -one.total_ns)


def step_summaries(steps: Iterable[Step]) -> list[StepSummary]:
    """The steps by phase and batch size, those with most kernel time first; numbers in names are left out."""
    groups: dict[tuple[str, int | None], list[Step]] = {}
    for step in steps:
        groups.setdefault((step.phase or step.name.rstrip("0123456789#"), step.batch_size), []).append(step)
    summaries = [
        StepSummary(
            name=name,
            batch_size=batch_size,
            steps=len(same),
            kernel_ns=median(step.kernel_ns for step in same),
            busy_ns=median(step.busy_ns for step in same),
            span_ns=median(step.end_ns - step.start_ns for step in same),
        )
        for (name, batch_size), same in groups.items()
    ]
    return sorted(summaries, key=lambda one: -one.kernel_ns * one.steps)


def importances_sum() -> float:
    """What the importances of the catalogue's operators add up to: more than 1, since operators hold one another."""
    return sum(operator.importance for operator in operators().values())


def _kernel(use: KernelUse, whole_ns: int) -> dict[str, Any]:
    identity = classify(use.name, use.kind.value)
    return {
        "name": use.name,
        "short": identity.short,
        "family": identity.family.value,
        "operator": identity.operator,
        "library": identity.library,
        "source": use.source or identity.source,
        "group": identity.group,
        "calls": use.calls,
        "total_ns": use.total_ns,
        "mean_ns": use.total_ns / use.calls if use.calls else None,
        "min_ns": use.min_ns,
        "max_ns": use.max_ns,
        "median_ns": use.median_ns,
        "std_ns": use.std_ns,
        "share": _share(use.total_ns, whole_ns),
        "phase": use.phase,
        "device": use.device,
        "kind": use.kind.value,
        "truncated": use.truncated or identity.truncated,
    }


def _graph(graph: Graph) -> dict[str, Any]:
    """A graph with its kernels by place; `mean_ns` is over its replays."""
    return {
        "phase": graph.phase,
        "replays": graph.replays,
        "kernels": [
            {"name": kernel.name, "kind": kernel.kind.value, "mean_ns": kernel.total_ns / graph.replays}
            for kernel in graph.kernels
        ],
    }


def _share(part_ns: int, whole_ns: int) -> float:
    return part_ns / whole_ns if whole_ns else 0.0
