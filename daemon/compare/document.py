"""A comparison as programs read it; kept stable. What is not known is null; times in microseconds, shares 0 to 1."""

import math
from collections.abc import Mapping
from typing import Any

from cyclewatch.collectors.suspicion_records import SuspicionRow
from cyclewatch.daemon.compare.comparison import Comparison, CyclePair, Cycles, Subject
from cyclewatch.daemon.findings import bound_document
from cyclewatch.detectors.attribution import Cause
from cyclewatch.detectors.kernels.comparison import KernelChange, ProfileComparison, Use

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The machine-readable form of a comparison."""
    kernels = comparison.kernels
    return {
        "comparable": comparison.comparable,
        "warnings": list(comparison.warnings),
        "findings": list(comparison.findings),
        "before": _subject(comparison.before),
        "after": _subject(comparison.after),
        "summary": _summary(comparison),
        "cycles": [_pair(pair) for pair in comparison.cycles],
        "split_of": comparison.split_of,
        "split": [
            {
                "part": part.part,
                "before_us": _number(part.before_us),
                "after_us": _number(part.after_us),
                "delta_us": _number(part.delta_us),
            }
            for part in comparison.split
        ],
        "physical_bound": bound_document(comparison.bound) if comparison.bound else None,
        "kernels": [_kernel(one) for one in kernels.kernels] if kernels else [],
        "families": _families(kernels) if kernels else [],
        "substitutions": _substitutions(kernels) if kernels else [],
        "unit": kernels.unit.value if kernels else None,
        "suspicions": [_suspicion(row) for row in comparison.suspicions],
        "causes": [cause_document(place, cause) for place, cause in enumerate(comparison.causes, start=1)],
    }


def cause_document(rank: int, cause: Cause) -> dict[str, Any]:
    """A cause, as in `cyclewatch regressions show --json`."""
    return {
        "rank": rank,
        "kind": cause.kind,
        "subject": cause.subject,
        "device": cause.device,
        "score": _number(cause.score),
        "share": _number(cause.share),
        "status": cause.status.value,
        "evidence": list(cause.evidence),
    }


def _subject(subject: Subject) -> dict[str, Any]:
    return {"label": subject.label, "kind": subject.kind, "facts": dict(subject.facts)}


def _summary(comparison: Comparison) -> dict[str, Any]:
    """The cycles of the main kind of work; `slower` is how many times as long a step became."""
    pair = comparison.cycles[0] if comparison.cycles else None
    before, after = (pair.before, pair.after) if pair else (None, None)
    means = (before.mean_us if before else None, after.mean_us if after else None)
    comparable = pair is not None and pair.alike and all(means)
    return {
        "of": pair.name if pair else None,
        "cycles": {"before": before.count if before else None, "after": after.count if after else None},
        "mean_cycle_us": {"before": _number(means[0]), "after": _number(means[1])},
        "mean_cycle_change": _number(means[1] / means[0] - 1) if comparable and means[0] and means[1] else None,
        "slower": _number(comparison.slower),
        "ci": None if comparison.ci is None else [_number(end) for end in comparison.ci],
    }


def _pair(pair: CyclePair) -> dict[str, Any]:
    return {"name": pair.name, "alike": pair.alike, "before": _cycles(pair.before), "after": _cycles(pair.after)}


def _cycles(cycles: Cycles | None) -> Mapping[str, Any] | None:
    if cycles is None:
        return None
    times = cycles.quantiles_us(QUANTILES.values())
    quantiles_us = {name: _number(float(time)) for name, time in zip(QUANTILES, times, strict=True)}
    return {"count": cycles.count, "mean_us": _number(cycles.mean_us), "quantiles_us": quantiles_us}


def _kernel(one: KernelChange) -> dict[str, Any]:
    return {
        "key": one.key,
        "short": one.short,
        "name": one.name,
        "family": one.family.value,
        "phase": one.phase,
        "operator": one.operator,
        "library": one.library,
        "group": one.group,
        "verdict": one.verdict.value,
        "before": _use(one.before),
        "after": _use(one.after),
        "delta_us": _number(one.delta_ns / 1e3),
        "effect": _number(one.effect),
        "p_value": _number(one.p_value),
        "inferred": one.inferred,
    }


def _use(use: Use | None) -> dict[str, Any] | None:
    if use is None:
        return None
    mean_us, median_us, std_us = (
        None if time_ns is None else _number(time_ns / 1e3) for time_ns in (use.mean_ns, use.median_ns, use.std_ns)
    )
    return {
        "calls": _number(use.calls),
        "time_us": _number(use.ns / 1e3),
        "mean_us": mean_us,
        "median_us": median_us,
        "std_us": std_us,
        "share": _number(use.share),
    }


def _families(kernels: ProfileComparison) -> list[dict[str, Any]]:
    return [
        {
            "family": one.family.value,
            "before_us": _number(one.before_ns / 1e3),
            "after_us": _number(one.after_ns / 1e3),
            "delta_us": _number(one.delta_ns / 1e3),
            "before_calls": _number(one.before_calls),
            "after_calls": _number(one.after_calls),
            "before_share": _number(one.before_share),
            "after_share": _number(one.after_share),
        }
        for one in kernels.families
    ]


def _substitutions(kernels: ProfileComparison) -> list[dict[str, Any]]:
    return [
        {
            "family": one.family.value,
            "operator": one.operator,
            "phase": one.phase,
            "before": list(one.before),
            "after": list(one.after),
            "before_us": _number(one.before_ns / 1e3),
            "after_us": _number(one.after_ns / 1e3),
            "delta_us": _number(one.delta_ns / 1e3),
            "before_library": one.before_library,
            "after_library": one.after_library,
        }
        for one in kernels.substitutions
    ]


def _suspicion(row: SuspicionRow) -> dict[str, Any]:
    """A row; beta in percent of the cycle time, mu in the metric's unit."""
    document: dict[str, Any] = {
        "function": row.function,
        "metric": row.metric,
        "device": row.device,
        "score": _number(row.score),
    }
    for name, change in (("beta", row.beta), ("mu", row.mu)):
        document[name] = {
            "before": _number(change.before),
            "after": _number(change.after),
            "delta": _number(change.delta),
            "z": _number(change.z),
            "p_value": _number(change.p_value),
            "u_p_value": _number(change.u_p_value),
        }
    return {**document, "log_mu_z": _number(row.log_z)}


def _number(value: float | None) -> float | None:
    """To six digits; JSON has no NaN and no infinity."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
