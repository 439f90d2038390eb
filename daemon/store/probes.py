"""The probe's own history."""

import numpy as np
from sqlalchemy import Engine, select

from cyclewatch.collectors.probe.quantities import QUANTITIES
from cyclewatch.daemon.store.models import SampleRow, SeriesRow
from cyclewatch.detectors.attribution import Trace

KEPT_NS = 7 * 86_400 * 10**9
"""How far a probe looks back: what was usual before is not what the machine is now."""


class ProbeHistory:
    """Reads from the database.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def before(self, at_ns: int) -> list[Trace]:
        """Times of the last week before an instant (UTC), of every work with its labels."""
        query = (
            select(SeriesRow.name, SeriesRow.labels, SampleRow.at_ns, SampleRow.value)
            .join(SampleRow, SampleRow.series_id == SeriesRow.id)
            .where(
                SeriesRow.name.in_([quantity.name for quantity in QUANTITIES]),
                SampleRow.at_ns >= at_ns - KEPT_NS,
                SampleRow.at_ns < at_ns,
            )
            .order_by(SeriesRow.id, SampleRow.at_ns)
        )
        found: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[int, float]]] = {}
        with self._engine.connect() as connection:
            for name, labels, taken_ns, seconds in connection.execute(query):
                found.setdefault((name, tuple(labels.items())), []).append((taken_ns, seconds))
        return [
            Trace(
                name,
                dict(labels),
                np.array([taken_ns for taken_ns, _ in points], np.int64),
                np.array([seconds for _, seconds in points], np.float64),
            )
            for (name, labels), points in found.items()
        ]
