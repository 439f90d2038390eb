"""What of a shift is left when the model of the load may be wrong.

Expectations come from a reference of some minutes, so that each cost of the load is known up to an error. Where the
load differs before and after a shift, a part of it may be such an error, and what the series did under other loads
tells how large. A window's `doubt` is how far its level moves for one standard deviation of each independent error:
errors are standard normal before the series is seen, and estimated along with the levels (a mixed model, Henderson,
Biometrics 31, 1975).
"""

import math
from dataclasses import replace

import numpy as np

from cyclewatch.detectors.change_points.shift import Shift
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.autoregression import whiten
from cyclewatch.detectors.statistics.normal import normal_tail
from cyclewatch.detectors.statistics.robust import clip_outliers, robust_sigma

_LEVELS = 2


def beside_doubt(shift: Shift, values: Floats, doubts: Floats, phi: Floats) -> Shift:
    """The shift of `values`, shape (n,), beside the errors that `doubts`, shape (n, k), allow.

    `phi` is the autoregression of the noise. The new level and the errors of both change with the estimate, and the
    p-value as the tail of a normal score does. The place stays.
    """
    after = np.arange(len(values)) >= shift.position
    level = np.where(after, shift.after, shift.before)
    residuals = clip_outliers(values - level, 0.0, robust_sigma(values - level))
    target = whiten(level + residuals, phi)
    steps = np.column_stack([np.ones(len(values)), after])
    errors = whiten(residuals, phi)
    sigma = math.sqrt(float(errors @ errors) / max(len(errors) - _LEVELS, 1))
    alone, alone_error = _step(whiten(steps, phi), target, sigma, np.zeros(_LEVELS))
    columns = whiten(np.column_stack([steps, doubts]), phi)
    size, error = _step(columns, target, sigma, np.concatenate([np.zeros(_LEVELS), np.ones(doubts.shape[1])]))
    surer = _tail(size, error) / max(_tail(alone, alone_error), np.finfo(np.float64).tiny)
    return replace(
        shift,
        after=shift.before + size,
        error=shift.error * error / alone_error,
        p_value=min(1.0, shift.p_value * max(surer, 1.0)),
    )


def _step(columns: Floats, target: Floats, sigma: float, precision: Floats) -> tuple[float, float]:
    """Size of the second column and its standard error, noise being `sigma` and weights 0 with this precision."""
    inverse = np.linalg.inv(columns.T @ columns + np.diag(precision * sigma**2 + np.finfo(np.float64).tiny))
    weights = inverse @ (columns.T @ target)
    return float(weights[1]), sigma * math.sqrt(float(inverse[1, 1]))


def _tail(size: float, error: float) -> float:
    return 2 * normal_tail(abs(size) / error)
