"""The times of the probe: few, and looked at over a week."""

from collections import defaultdict

import numpy as np
from sqlalchemy import Connection, Engine, select

from cyclewatch.collectors.probe.quantities import QUANTITIES
from cyclewatch.daemon.store.models import SampleRow, SeriesRow
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.detectors.attribution import Trace

KEPT_NS = 7 * 86_400 * 10**9
"""How far a probe looks back: what was usual before is not what the machine is now."""

_NAMES = [quantity.name for quantity in QUANTITIES]
_Series = tuple[str, tuple[tuple[str, str], ...]]
_Points = dict[_Series, list[tuple[int, float]]]


class ProbeHistory:
    """Reads the probes of `node`, or of all nodes where that is None.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine, node: str | None = None) -> None:
        self._engine = engine
        self._node = node

    def before(self, at_ns: int) -> list[Trace]:
        """Times of the last week before an instant (UTC), of every work with its labels."""
        with self._engine.connect() as connection:
            return _traces(_points(connection, self._node, at_ns - KEPT_NS, at_ns))


def probes_around(connection: Connection, before: Stretch, after: Stretch) -> list[Trace]:
    """The probes of two stretches of time, and of the week before the first: in quiet times there is one an hour.

    What came before is moved in time so that it ends where the other stretch begins.
    """
    in_order = before.to_ns <= after.from_ns
    points = _points(connection, before.node, before.to_ns - KEPT_NS if in_order else before.from_ns, before.to_ns)
    moved_ns = after.from_ns - before.to_ns
    moved = defaultdict(list, {key: [(at_ns + moved_ns, s) for at_ns, s in one] for key, one in points.items()})
    for key, later in _points(connection, after.node, after.from_ns, after.to_ns).items():
        moved[key] += later
    return _traces(moved)


def _points(connection: Connection, node: str | None, from_ns: int, to_ns: int) -> _Points:
    known = select(SeriesRow.id, SeriesRow.name, SeriesRow.labels).where(SeriesRow.name.in_(_NAMES))
    if node is not None:
        known = known.where(SeriesRow.node == node)
    series = {number: (name, tuple(labels.items())) for number, name, labels in connection.execute(known)}
    # By their numbers, not joined: a database that went by time would walk through a week of all readings.
    query = (
        select(SampleRow.series_id, SampleRow.at_ns, SampleRow.value)
        .where(SampleRow.series_id.in_(series), SampleRow.at_ns >= from_ns, SampleRow.at_ns < to_ns)
        .order_by(SampleRow.series_id, SampleRow.at_ns)
    )
    found: _Points = defaultdict(list)
    for number, at_ns, seconds in connection.execute(query):
        found[series[number]].append((at_ns, seconds))
    return found


def _traces(found: _Points) -> list[Trace]:
    return [
        Trace(
            name,
            dict(labels),
            np.array([at_ns for at_ns, _ in points], np.int64),
            np.array([seconds for _, seconds in points], np.float64),
        )
        for (name, labels), points in found.items()
    ]
