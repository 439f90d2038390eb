"""What another version or other arguments made of the pace: the new baseline, held against the model of the old one.

A configuration has a baseline of its own, against which it is never slower than itself. So once that stands, the cycles
that it was made of are held against what the configuration before would have taken for the same load.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.change_points.doubt import beside_doubt
from cyclewatch.detectors.change_points.shift import shift_at
from cyclewatch.detectors.load.load_rows import Row
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics import autoregression
from cyclewatch.detectors.watching.decision import Parameters, decide
from cyclewatch.detectors.watching.shift_watch import Change, Kind

Reference = Sequence[tuple[int, Sequence[Row]]]
"""The windows that a baseline was made of, in order: start (UTC nanoseconds) and rows."""


@dataclass(frozen=True)
class Pace:
    """A series at one level, as one model of the load sees it: logs of measured over expected, shape (n,).

    `doubts`, shape (n, k), are what each may be wrong by: see `change_points/doubt.py`.
    """

    values: Floats
    doubts: Floats


def deployment_change(
    before: Pace, after: Pace, parameters: Parameters, *, started_at_ns: int, detected_at_ns: int
) -> Change | None:
    """The change from one configuration to the next, both as the model of the first sees them; None where none is sure.

    Levels of the change are those of the new baseline, of which 0 is the normal one. Two starts of the same server are
    not quite alike, which the noise within each does not show: that is for the minimum effect to allow for.
    """
    values, doubts = np.concatenate([before.values, after.values]), np.concatenate([before.doubts, after.doubts])
    position = len(before.values)
    if not position or not len(after.values):
        return None
    level = np.where(np.arange(len(values)) < position, np.median(before.values), np.median(after.values))
    phi = autoregression.fit_best(values - level)
    shift = shift_at(values, position, phi)
    if doubts.size:
        shift = beside_doubt(shift, values, doubts, phi[: max(min(position, len(after.values)) - 1, 0)])
    wanted = replace(parameters, min_effect=max(parameters.min_effect, parameters.min_deployment_effect))
    # A faster one need not last longer than a slower one: that it comes with the deployment is no chance.
    if not decide(shift, wanted, slowed=True).accepted:
        return None
    return Change.between(
        -shift.difference,
        0.0,
        shift.error,
        started_at_ns=started_at_ns,
        detected_at_ns=detected_at_ns,
        probability=1.0 - shift.p_value,
        windows_after=shift.values_after,
        kind=Kind.DEPLOYMENT,
    )
