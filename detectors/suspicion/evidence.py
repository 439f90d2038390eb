"""A suspicion report as evidence for attribution: its metrics and shares of time as readings of ours."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from cyclewatch.collectors.suspicion_records import Change, SuspicionReport, SuspicionRow
from cyclewatch.config.catalogues import ReportName, report_functions, report_metrics
from cyclewatch.detectors.attribution import Evidence, Trace
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.split_part import SplitPart
from cyclewatch.detectors.statistics.normal import normal_quantile
from cyclewatch.detectors.suspicion.kernels import kernels_of_report
from cyclewatch.detectors.suspicion.shares import REST, SharesReading, is_gpu

STARTED_AT_NS = 10**18
"""Where the run after begins: a report tells no time."""

HOST = "rest"
"""The stage of the cycle as which attribution takes what is beside the kernels."""

_SECOND = 10**9
_SAMPLES = 25
_P_VALUE_MAX = 0.05
_Z_MIN = 3.0


def evidence_of_report(report: SuspicionReport, shares: SharesReading) -> Evidence:
    """What a report tells, as if its samples were at hand.

    A report has means, spreads and p-values. For each quantity, samples of that mean and spread stand on either side;
    where the report's own tests see no difference, the means are alike.
    """
    return Evidence(
        started_at_ns=STARTED_AT_NS,
        rank="",
        before=(),
        after=(),
        synchronous=not shares.kernels,
        traces=tuple(_traces(report.rows)),
        kernels=kernels_of_report(shares),
        slower=shares.slower,
    )


def parts_of_report(shares: SharesReading) -> tuple[SplitPart, ...]:
    """The split of a report for attribution: what is beside the kernels is the host's; empty where it is not known."""
    return tuple(replace(part, part=HOST) if part.part == REST else part for part in shares.parts)


def changed(change: Change) -> bool:
    """Whether the report's tests see a difference."""
    if math.isfinite(change.p_value):
        return change.p_value < _P_VALUE_MAX
    return math.isfinite(change.z) and abs(change.z) >= _Z_MIN


def quantity_of(name: str, device: str, names: Iterable[ReportName]) -> ReportName | None:
    """What a name of the report is here; None where nothing fits."""
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    place = "gpu" if is_gpu(device) else "host"
    return next((one for one in names if one.on in {"", place} and re.fullmatch(one.pattern, word)), None)


def _traces(rows: Iterable[SuspicionRow]) -> Iterator[Trace]:
    """A metric stands beside many functions: it counts as seen by the one that took most of the time."""
    seen: set[tuple[str, str, str]] = set()
    for row in sorted(rows, key=lambda row: -_finite(row.beta.before)):
        metric = quantity_of(row.metric, row.device, report_metrics())
        function = None if is_gpu(row.device) else quantity_of(row.function, row.device, report_functions())
        for known, change, scale in ((metric, row.mu, 1.0), (function, row.beta, 0.01)):
            if known is None or not (math.isfinite(change.before) and math.isfinite(change.after)):
                continue
            labels = {**known.labels, **_device_label(row.device)}
            key = known.quantity, str(labels), row.device
            if key not in seen:
                seen.add(key)
                yield _trace(known.quantity, labels, change, known.scale * scale)


def _trace(name: str, labels: dict[str, str], change: Change, scale: float) -> Trace:
    spread = abs(change.delta / change.z) if math.isfinite(change.z) and change.z else 0.0
    after = change.after if changed(change) else change.before
    values = np.concatenate((_samples(change.before, spread), _samples(after, spread * _ratio(after, change.before))))
    at_ns = STARTED_AT_NS + np.arange(-_SAMPLES, _SAMPLES, dtype=np.int64) * _SECOND
    return Trace(name, labels, at_ns, values * scale)


def _samples(mean: float, spread: float) -> Floats:
    """Values of this mean and standard deviation, shape (_SAMPLES,), in no order that could be taken for a trend."""
    scores = normal_quantile((np.arange(_SAMPLES) + 0.5) / _SAMPLES)
    # From the middle on in steps of 7, which has no divisor in common with 25.
    mixed = scores[(_SAMPLES // 2 + 7 * np.arange(_SAMPLES)) % _SAMPLES]
    samples: Floats = mean + spread * mixed / scores.std(ddof=1)
    return samples


def _ratio(after: float, before: float) -> float:
    """How much smaller the spread is around a smaller mean."""
    return min(abs(after / before), 1.0) if before else 1.0


def _device_label(device: str) -> dict[str, str]:
    number = re.search(r"\d+", device)
    return {"gpu": number.group() if number else "0"} if is_gpu(device) else {}


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
