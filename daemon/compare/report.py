"""A suspicion report, read again: what its table shows, and what is behind it."""

import math
from collections.abc import Iterable

import numpy as np

from cyclewatch.collectors.suspicion_records import Side, SuspicionReport, SuspicionRow
from cyclewatch.daemon.compare.comparison import Comparison, CyclePair, Cycles, Subject
from cyclewatch.daemon.compare.sentences import cause_sentences, duration
from cyclewatch.daemon.compare.sources import ReportSource
from cyclewatch.daemon.printable import printable
from cyclewatch.detectors.attribution import Cause, Evidence, causes
from cyclewatch.detectors.suspicion.evidence import changed, evidence_of_report, parts_of_report
from cyclewatch.detectors.suspicion.shares import SharesReading, is_gpu, read_shares

_MOVED = 1.05
"""Smallest factor of a metric that is worth a sentence."""

_SLOWER = 1.02
"""Smallest growth of a step that is worth a cause: reports tell no noise of their means."""

_METRICS_TOLD = 5


def compare_report(source: ReportSource) -> Comparison:
    """The two runs of a report; its table is evidence, its conclusions are not taken over."""
    report = source.report
    shares = read_shares(report)
    evidence = evidence_of_report(report, shares)
    found = _causes(evidence, shares)
    alike = shares.same_unit is not False
    pair = CyclePair("as the report counts them", _cycles(report.before), _cycles(report.after), alike)
    return Comparison(
        before=_subject(source, report.before),
        after=_subject(source, report.after),
        comparable=True,
        warnings=(*_unit_warning(report, shares), *report.warnings),
        findings=(
            *_growth(shares),
            *cause_sentences(found),
            *_kernels(shares),
            *_metrics(report.rows),
        ),
        slower=shares.slower,
        cycles=(pair,) if pair.before or pair.after else (),
        split_of="the work of one cycle of the first run" if not alike else "the mean cycle",
        split=shares.parts,
        kernels=evidence.kernels,
        suspicions=tuple(sorted(report.rows, key=lambda row: -_or_zero(row.score))),
        causes=found,
    )


def _causes(evidence: Evidence, shares: SharesReading) -> tuple[Cause, ...]:
    """Without the stages of a cycle, which a report does not tell: what it has for them is in the split."""
    if shares.slower is not None and shares.slower < _SLOWER:
        return ()
    found = causes(evidence, parts_of_report(shares))
    return tuple(cause for cause in found if not cause.kind.startswith("stage_"))


def _subject(source: ReportSource, side: Side) -> Subject:
    facts = {"report": source.report.title, "file": source.label}
    return Subject(printable(side.name, 200), "report", {name: printable(text, 200) for name, text in facts.items()})


def _cycles(side: Side) -> Cycles | None:
    """The report's cycles; where it lists fewer than it counts, its count and mean hold."""
    times = np.array(side.cycle_times_us) if side.cycle_times_us else None
    count = side.cycles or len(side.cycle_times_us)
    return Cycles(count, side.mean_cycle_us, times) if count and side.mean_cycle_us else None


def _unit_warning(report: SuspicionReport, shares: SharesReading) -> tuple[str, ...]:
    """Says that cycles of the two runs hold different work, where they do."""
    if shares.same_unit is not False or shares.work_ratio is None:
        return ()
    sides = (report.before, report.after)
    counts = " against ".join(
        (f"{side.cycles:,} x " if side.cycles else "") + duration(side.mean_cycle_us or 0.0) for side in sides
    )
    lengths = [side.cycles * side.mean_cycle_us / 1e6 for side in sides if side.cycles and side.mean_cycle_us]
    over = f" over {lengths[0]:.3g} and {lengths[1]:.3g} s" if len(lengths) > 1 else ""
    work = (
        f"{1 / shares.work_ratio:,.0f} times less" if shares.work_ratio < 1 else f"{shares.work_ratio:,.0f} times more"
    )
    what = f"{counts}{over}, and the kernels of a later cycle take {work} time"
    return (f"cycles of the two runs are not the same unit: {what}; their lengths are not compared",)


def _growth(shares: SharesReading) -> tuple[str, ...]:
    if shares.slower is None:
        return ("by how much a step became longer cannot be told from this report",)
    if 1 / _SLOWER < shares.slower < _SLOWER:
        return (f"a step takes about as long as before ({shares.slower - 1:+.1%}), by {shares.slower_by}",)
    return (f"a step takes {shares.slower:.2f} times as long as before, by {shares.slower_by}",)


def _kernels(shares: SharesReading) -> tuple[str, ...]:
    """What the shares of the kernels say of the kernels."""
    if shares.factor is None or shares.low is None or shares.high is None:
        return ()
    span = f"({shares.low:.1f} to {shares.high:.1f})"
    if not shares.uniform:
        return ("the kernels' shares did not change together: single kernels became slower or faster",)
    if shares.factor >= _MOVED:
        shrank = f"every larger kernel's share shrank by the same factor {span}"
        return (f"{shrank}: the kernels did not slow, the step around them grew by that factor",)
    if shares.work_ratio and shares.same_unit and shares.work_ratio >= _MOVED:
        grew = f"all kernels take {shares.work_ratio:.2f} times as long in a cycle"
        return (f"{grew}: a clock, the memory or a neighbour on the GPU does that, not one kernel",)
    if shares.factor <= 1 / _MOVED:
        span = f"({1 / shares.high:.1f} to {1 / shares.low:.1f})"
        grew = f"every larger kernel's share grew by the same factor {span}"
        return (f"{grew}: the kernels became slower together, what is beside them did not",)
    return ("the kernels keep their shares: nothing beside them grew",)


def _metrics(rows: Iterable[SuspicionRow]) -> tuple[str, ...]:
    """The metrics that moved most, as the report's own tests see it."""
    by_metric: dict[tuple[str, str], SuspicionRow] = {}
    for row in sorted(rows, key=lambda row: -_or_zero(row.beta.before)):
        by_metric.setdefault((row.metric, row.device), row)
    moved = [row for row in by_metric.values() if changed(row.mu) and _factor(row) >= _MOVED]
    moved.sort(key=lambda row: (is_gpu(row.device), -_factor(row)))
    return tuple(_metric(row) for row in moved[:_METRICS_TOLD])


def _metric(row: SuspicionRow) -> str:
    verb = "fell" if row.mu.after < row.mu.before else "rose"
    factor = _factor(row)
    by = f", a factor of {factor:.2f}" if math.isfinite(factor) else ""
    name = f"{printable(row.metric, 60)} on {printable(row.device, 40)}"
    return f"{name} {verb} from {row.mu.before:,.6g} to {row.mu.after:,.6g}{by}"


def _factor(row: SuspicionRow) -> float:
    """How many times the one is of the other, at least 1."""
    small, large = sorted((abs(row.mu.before), abs(row.mu.after)))
    return large / small if small > 0 else (math.inf if large > 0 else 1.0)


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
