"""Costs of load where all times of a window share its noise: the linear mixed model behind the workload model.

The log of row i, of window w and load bucket b, is

    y_i = log(x_i · cost) + u_w + v_b + e_i / sqrt(cycles_i)

with costs of at least 0, a first-order autoregression u (what a window does to all of its cycles, whatever their
load), offsets v (steps that a sum of costs cannot follow, as CUDA graphs make) and cycle noise e. Slow noise that
happens to go with the load is not taken for a cost: rows of one window differ by load and cycle noise alone, and
windows are compared with one another only as far as their noise lets them. Henderson's mixed model equations
(Biometrics 31, 1975) on the log, linearised (Gauss-Newton); variances by MacKay's fixed point (Neural Computation 4,
1992); Huber weights.
"""

import math
from dataclasses import dataclass

import numpy as np

from cyclewatch.detectors.phases import Floats, Integers
from cyclewatch.detectors.statistics.robust import (
    autocorrelation,
    clip_outliers,
    nonnegative_least_squares,
    robust_sigma,
)

_ROUNDS = 12
_HUBER = 1.5
_CYCLES_MAX = 100
"""Cycles that a row counts for at most: beyond, it is not noise that keeps it from its expectation."""

_FIXED_PRIOR, _COST_PRIOR = 3.0, 1.0
"""Standard deviation about 0 of the part that the fixed cost may have in a cycle, and any other: too wide to matter
where the load tells costs apart; where nothing does, most of the time is taken to be fixed."""

_OFFSET_PRIOR, _OFFSET_PRIOR_BUCKETS = 0.005, 2.0
"""How large offsets are thought to be before any was seen, and how many buckets that counts for."""

_SIGMA_START, _SIGMA_MIN = 0.02, 1e-4
_PART_MIN = 1e-3
"""Part of the measured time that is expected at least, so that it has a logarithm."""

_TINY = 1e-100


@dataclass(frozen=True)
class Costs:
    """What `fit_costs` found; p features, w windows, b buckets.

    `cost`, shape (p,), is the time that one of each feature takes, and `covariance`, shape (p, p), how sure that is: 0
    for features never seen. The others are logs: `window`, shape (w,), `offset`, shape (b,), and standard deviations of
    window noise (`correlation` from one to the next), of offsets, and of one cycle.
    """

    cost: Floats
    covariance: Floats
    window: Floats
    offset: Floats
    window_sigma: float
    correlation: float
    offset_sigma: float
    cycle_sigma: float


@dataclass(frozen=True)
class _Solution:
    """Effects in a linear model, and the inverses of the mixed model equations for each kind of them."""

    part: Floats
    offset: Floats
    window: Floats
    inverse: Floats
    inverse_windows: Floats


def fit_costs(design: Floats, log_times: Floats, window: Integers, bucket: Integers, cycles: Floats) -> Costs:
    """Costs of the features `design`, shape (n, p), first the fixed part, from rows of so many `cycles` each.

    `window` numbers windows in order of time, `bucket` load buckets, both from 0 without gaps; all of shape (n,). The
    mean of the prior is 0, and not the physical bound: no recording of a GPU has shown yet that the bound helps.
    """
    n, p = design.shape
    weight = np.minimum(cycles, _CYCLES_MAX)
    in_bucket = (bucket[:, None] == np.arange(bucket.max() + 1)).astype(np.float64)
    buckets = in_bucket.shape[1]
    prior = np.array([_FIXED_PRIOR, *[_COST_PRIOR] * (p - 1)])
    cost, trust = _start(design, log_times), np.ones(n)
    sigma, window_sigma, offset_sigma, correlation = _SIGMA_START, _SIGMA_START, _OFFSET_PRIOR, 0.0
    for _ in range(_ROUNDS):
        # About the costs c of the last round, log(x · cost) is log(x · c) - 1 + x · cost / (x · c).
        log_expected = _log_expected(design, cost, log_times)
        share = design / np.exp(log_expected)[:, None]
        largest = np.maximum(share.max(axis=0), _TINY)
        target = log_times - log_expected + share @ cost
        chain = _precision(int(window.max()) + 1, correlation) * (sigma / window_sigma) ** 2
        ridge = np.concatenate([(sigma / prior) ** 2, np.full(buckets, (sigma / offset_sigma) ** 2)])
        found = _solve(share / largest, in_bucket, target, weight * trust, window, chain, ridge)
        cost = found.part / largest
        left = log_times - _log_expected(design, cost, log_times) - found.window[window] - found.offset[bucket]
        # How many windows and offsets the rows tell apart, and what variance that makes of their effects.
        windows_told = len(chain) - float((chain * found.inverse_windows).sum())
        offsets_told = max(buckets - float(ridge[p:] @ np.diag(found.inverse)[p:]), 0.0)
        tame = clip_outliers(found.window, 0.0, robust_sigma(found.window))
        energy = float(tame @ chain @ tame) * (window_sigma / sigma) ** 2
        window_sigma = max(math.sqrt(max(energy, 0.0) / max(windows_told, 1.0)), _SIGMA_MIN)
        correlation = autocorrelation(tame)
        energy = float(found.offset @ found.offset) + _OFFSET_PRIOR_BUCKETS * _OFFSET_PRIOR**2
        offset_sigma = math.sqrt(energy / (offsets_told + _OFFSET_PRIOR_BUCKETS))
        left *= np.sqrt(weight)
        freedom = max(n - p - windows_told - offsets_told, 1.0)
        sigma = max(robust_sigma(left) * math.sqrt(n / freedom), _SIGMA_MIN)
        trust = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(left), _TINY))
    scale = design.any(axis=0) / largest
    covariance = sigma**2 * found.inverse[:p, :p] * np.outer(scale, scale)
    return Costs(cost, covariance, found.window, found.offset, window_sigma, correlation, offset_sigma, sigma)


def _solve(
    shares: Floats, in_bucket: Floats, target: Floats, weight: Floats, window: Integers, chain: Floats, ridge: Floats
) -> _Solution:
    """Effects of costs, shape (n, p), offsets, shape (n, b), and windows.

    The penalties are `ridge`, shape (p + b,), and `chain`, shape (w, w). Windows are eliminated first, then offsets: p
    equations are left, of costs alone, none of them negative.
    """
    costs, offsets = slice(None, shares.shape[1]), slice(shares.shape[1], None)
    columns = np.column_stack([shares, in_bucket])
    weighted = columns * weight[:, None]
    inverse_windows = np.linalg.inv(np.diag(np.bincount(window, weight, len(chain))) + chain)
    across = np.stack([np.bincount(window, column, len(chain)) for column in weighted.T], axis=1)
    sums = np.bincount(window, weight * target, len(chain))
    solved = inverse_windows @ across
    system = columns.T @ weighted + np.diag(ridge) - across.T @ solved
    right = weighted.T @ target - solved.T @ sums
    inverse_offsets = np.linalg.inv(system[offsets, offsets])
    pull = system[costs, offsets] @ inverse_offsets
    factor = np.linalg.cholesky(system[costs, costs] - pull @ system[offsets, costs])
    reduced = np.linalg.solve(factor, right[costs] - pull @ right[offsets])
    part = nonnegative_least_squares(np.asarray(factor.T, np.float64), np.asarray(reduced, np.float64))
    offset = inverse_offsets @ (right[offsets] - system[offsets, costs] @ part)
    effects = np.concatenate([part, offset])
    inverse = np.asarray(np.linalg.inv(system), np.float64)
    return _Solution(
        part=part,
        offset=offset,
        window=inverse_windows @ (sums - across @ effects),
        inverse=inverse,
        inverse_windows=inverse_windows + solved @ inverse @ solved.T,
    )


def _log_expected(design: Floats, cost: Floats, log_times: Floats) -> Floats:
    logs: Floats = np.log(np.maximum(design @ cost, _PART_MIN * np.exp(log_times)))
    return logs


def _start(design: Floats, log_times: Floats) -> Floats:
    """Costs by least squares on relative errors, to linearise about."""
    relative = design / np.exp(log_times)[:, None]
    largest = np.maximum(relative.max(axis=0), _TINY)
    start: Floats = nonnegative_least_squares(relative / largest, np.ones(len(log_times))) / largest
    return start


def _precision(windows: int, correlation: float) -> Floats:
    """Inverse of the correlation matrix of a first-order autoregression, shape (windows, windows): tridiagonal."""
    if windows == 1:
        return np.ones((1, 1))
    own = np.full(windows, 1 + correlation**2)
    own[[0, -1]] = 1.0
    beside = np.full(windows - 1, -correlation)
    matrix: Floats = (np.diag(own) + np.diag(beside, 1) + np.diag(beside, -1)) / (1 - correlation**2)
    return matrix
