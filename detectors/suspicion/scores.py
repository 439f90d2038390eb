"""The suspicion table: which function, on which device, changed together with which metric.

A view of the samples, not a verdict: it ranks what changed, symptoms and causes alike. Its formulas are those of the
reports that `collectors/suspicion_report.py` reads, checked against the rows of one.
"""

import math

import numpy as np

from cyclewatch.collectors.suspicion_records import Change, SuspicionRow
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.two_samples import mann_whitney_p_value, welch_p_value


def suspicion_row(
    function: str, metric: str, device: str, beta: tuple[Floats, Floats], mu: tuple[Floats, Floats]
) -> SuspicionRow:
    """The row for samples before and after: `beta` in percent of the cycle time, `mu` in the metric's unit.

    The samples have any shape (n,), n at least 1; those that are NaN are left out. What cannot be told is NaN.
    """
    shares = change_of(*beta)
    logs = (_logarithms(mu[0]), _logarithms(mu[1]))
    log_z = change_of(*logs).z
    return SuspicionRow(function, metric, device, score(shares.delta, shares.z, log_z), shares, change_of(*mu), log_z)


def change_of(before: Floats, after: Floats) -> Change:
    """Means before and after, their difference in standard deviations of the samples before, and its p-values."""
    old, new = before[np.isfinite(before)], after[np.isfinite(after)]
    if not len(old) or not len(new):
        return Change(_mean(old), _mean(new), math.nan, math.nan, math.nan, math.nan)
    delta = float(new.mean() - old.mean())
    spread = float(old.std(ddof=1)) if len(old) > 1 else math.nan
    z = delta / spread if spread > 0 else (0.0 if delta == 0 else math.nan)
    return Change(_mean(old), _mean(new), delta, z, welch_p_value(old, new), mann_whitney_p_value(old, new))


def score(beta_delta: float, beta_z: float, log_mu_z: float) -> float:
    """The suspicion score: |delta of beta, in points| * (|z of beta| + |z of log(1 + mu)|)."""
    return abs(beta_delta) * (abs(beta_z) + abs(log_mu_z))


def recomputed_score(row: SuspicionRow) -> float:
    """The score by the columns of a row, for rows that others printed."""
    return score(row.beta.delta, row.beta.z, row.log_z)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _logarithms(values: Floats) -> Floats:
    """log(1 + mu), of what is above -1."""
    logs: Floats = np.log1p(np.where(values > -1, values, np.nan))
    return logs
