"""Detection where the load of each value is known: what the load explains is taken out first.

In each phase a value is close to a sum: a fixed part, and parts for each request, new token and cached token, none
negative (see `load/workload.py`). A change is looked for in the logarithm of value over expected value. A change inside
the series would bend that fit, so fit and search for shifts take turns, and the levels found are taken out of the next
fit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cyclewatch.detectors.change_points.offline import Detection, Settings, detect, detect_in_logs
from cyclewatch.detectors.change_points.shift import most_likely_shift
from cyclewatch.detectors.load.workload import fit_coefficients
from cyclewatch.detectors.phases import Bools, Floats, Integers
from cyclewatch.detectors.statistics.robust import clip_outliers, robust_sigma

FEATURES = ("batch_size", "new_tokens", "kv_tokens")

_ROUNDS = 3
_SHIFTS_MAX = 12
"""Shifts that are kept out of the fit; more are still found in the end."""

_SLOPE_MIN = 1e-6
_FIT_ROWS_MAX = 20_000
"""More rows make the fit slower, and hardly better."""

_LOG_TYPICAL = math.log(1e9)
"""Where logs are moved to for the fit, which expects times in nanoseconds; units of a file may be any."""

_LOG_REACH = 20.0
"""Values farther from the median than this, as a log, are pulled in for the fit."""


@dataclass(frozen=True)
class Covariates:
    """What is known of each of n values.

    `phase`, shape (n,), is an index into `names`; `load` has for some of `FEATURES` requests or tokens, shape (n,).
    """

    phase: Integers
    names: tuple[str, ...]
    load: dict[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class PhaseDetection:
    """What was found in the values of one phase; indices are of the whole series.

    Levels are values at a typical load: one of which the expected value is the median. `costs` are what the load
    costs before the first change, in units of the value: `fixed`, and for each request or token; empty where no load
    is known.
    """

    phase: str
    detection: Detection
    costs: dict[str, float]


def usable_values(values: Floats, covariates: Covariates) -> Bools:
    """Which values can be compared with what their load lets expect, shape (n,): load known, and value above 0."""
    usable: Bools = np.isfinite(values)
    for load in covariates.load.values():
        usable &= np.isfinite(load) & (load >= 0)
    return usable & (values > 0) if covariates.load else usable


def detect_under_load(
    values: Floats, covariates: Covariates, settings: Settings | None = None
) -> tuple[PhaseDetection, ...]:
    """Changes of `values`, shape (n,), in each phase, in order of the names; the load of each value is taken out.

    The probability of a false alarm is shared out evenly between the phases. Values of which the load is not known, or
    that have no logarithm, are left out, but keep their index.
    """
    settings = settings or Settings()
    usable = usable_values(values, covariates)
    rows_of = [np.flatnonzero(usable & (covariates.phase == number)) for number in range(len(covariates.names))]
    share = replace(settings, false_alarm=settings.false_alarm / max(sum(len(rows) > 0 for rows in rows_of), 1))
    found = []
    for name, rows in zip(covariates.names, rows_of, strict=True):
        if len(rows) == 0:
            detection, costs = Detection(0, (), (), share), dict[str, float]()
        elif covariates.load:
            load = {feature: values_of[rows] for feature, values_of in covariates.load.items()}
            detection, costs = _detect_ratio(values[rows], load, share)
        else:
            detection, costs = detect(values[rows], share), {}
        found.append(PhaseDetection(name, _at(detection, rows), costs))
    return tuple(found)


def _at(detection: Detection, rows: Integers) -> Detection:
    """The same with indices of the whole series, of which `rows` were looked at."""
    return replace(
        detection,
        change_points=tuple(replace(one, index=int(rows[one.index])) for one in detection.change_points),
        suspicions=tuple(replace(one, index=int(rows[one.index])) for one in detection.suspicions),
    )


def _detect_ratio(values: Floats, load: dict[str, Floats], settings: Settings) -> tuple[Detection, dict[str, float]]:
    """Changes of values above 0, shape (n,), against what their load lets expect, and the costs behind that."""
    features = list(load)
    largest = [float(load[feature].max()) or 1.0 for feature in features]
    parts = [load[feature] / most for feature, most in zip(features, largest, strict=True)]
    design = np.column_stack([np.ones(len(values)), *parts])
    logs = np.log(values)
    middle = float(np.median(logs)) - _LOG_TYPICAL
    logs = logs - middle
    ratio, coefficients = _log_ratio(design, logs, settings)
    if not np.isfinite(ratio).any():
        return Detection(len(values), (), (), settings), {}
    typical = float(np.nanmedian(logs - ratio)) + middle

    found = detect_in_logs(ratio, settings)
    points = tuple(
        replace(point, before=_exp(point.before + typical), after=_exp(point.after + typical))
        for point in found.change_points
    )
    scales = [1.0, *largest]
    costs = {
        name: _exp(math.log(cost) - math.log(scale) + middle) if cost > 0 else 0.0
        for name, cost, scale in zip(("fixed", *features), coefficients, scales, strict=True)
    }
    return replace(found, change_points=points), costs


def _log_ratio(design: Floats, logs: Floats, settings: Settings) -> tuple[Floats, Sequence[float]]:
    """Log of value over expected value, shape (n,), and the coefficients of `design`, shape (n, p).

    NaN where nothing is expected: a load of 0, and no fixed part.
    """
    some = slice(None, None, -(-len(logs) // _FIT_ROWS_MAX))
    tame = np.clip(logs[some], _LOG_TYPICAL - _LOG_REACH, _LOG_TYPICAL + _LOG_REACH)
    coefficients = _fit_beside_shifts(design[some], tame, settings)
    expected = design @ coefficients
    ratio: Floats = np.where(expected > 1.0, logs - np.log(np.maximum(expected, 1.0)), np.nan)
    return ratio, [float(one) for one in coefficients]


def _fit_beside_shifts(design: Floats, logs: Floats, settings: Settings) -> Floats:
    """Coefficients of `design`, shape (n, p), for `logs`, shape (n,), that shifts within do not bend.

    One shift after another is looked for beside small changes of the coefficients, so that neither is taken for the
    other; then all levels are taken out, and the coefficients fitted anew.
    """
    levels, positions = np.zeros(len(logs)), list[int]()
    while True:
        coefficients, left = fit_coefficients(design, logs - levels, np.ones(len(logs)))
        slopes = _slopes(design, design @ coefficients)
        shift = most_likely_shift(left, settings.min_length, slopes)
        known = shift is None or shift.p_value > settings.false_alarm or shift.position in positions
        if shift is None or known or len(positions) == _SHIFTS_MAX:
            return coefficients
        positions.append(shift.position)
        for _ in range(_ROUNDS):
            levels = _levels_beside(left + levels, slopes, sorted(positions))
            _, left = fit_coefficients(design, logs - levels, np.ones(len(logs)))


def _slopes(design: Floats, expected: Floats) -> Floats:
    """What small changes of the coefficients do to the log of `expected`, shape (n,): k directions, shape (n, k).

    Independent of one another and of a change of all coefficients alike, which is a level.
    """
    slopes = design / np.maximum(expected, 1.0)[:, None]
    slopes = slopes / slopes.max(axis=0, initial=1e-300)
    directions, sizes, _ = np.linalg.svd(slopes - slopes.mean(axis=0), full_matrices=False)
    independent: Floats = directions[:, sizes > _SLOPE_MIN * math.sqrt(len(design))]
    return independent


def _levels_beside(ratio: Floats, slopes: Floats, positions: list[int]) -> Floats:
    """Levels of `ratio`, shape (n,), that begin at `positions`, the first one 0, fitted together with `slopes`."""
    rows = np.arange(len(ratio))
    steps = np.stack([rows >= position for position in positions], axis=1).astype(np.float64)
    columns = np.column_stack([steps, slopes, np.ones(len(ratio))])
    weights = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        left = ratio - columns @ weights
        centre, sigma = float(np.median(left)), robust_sigma(left)
        tame = clip_outliers(left, centre, sigma) if weights.any() else left
        weights = weights + np.linalg.lstsq(columns, tame, rcond=None)[0]
    levels: Floats = steps @ weights[: len(positions)]
    return levels


def _exp(log: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(log))
