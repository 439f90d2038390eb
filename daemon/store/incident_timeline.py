"""What the cycle time was around the beginning of an incident."""

from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, select

from cyclewatch.daemon.store.incident_models import IncidentMemberRow, IncidentRow
from cyclewatch.daemon.store.models import RegressionRow
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.timeline import CyclePoint, cycles_over

_POINTS_MAX = 160
_LEAST_BEFORE_NS = 15 * 60 * 10**9
_BEFORE = 3
"""So much before the beginning is shown: this many times what it took to be sure."""


@dataclass(frozen=True)
class IncidentTimeline:
    """The cycles of the worst series of an incident, of the server and phase that the incident is named after.

    Instants are UTC nanoseconds: it became slower at `started_at_ns`, and as fast as before at `ended_at_ns`, None as
    long as it is slower. `kind` is that of the regression. There are at most 160 points.
    """

    target: str
    phase: str
    kind: str
    from_ns: int
    to_ns: int
    started_at_ns: int
    ended_at_ns: int | None
    points: tuple[CyclePoint, ...]


def incident_timeline(connection: Connection, key: str, now_ns: int) -> IncidentTimeline | None:
    """The timeline of the incident with this key; None where there is none.

    It begins three times as long before the incident as it took to be sure of it, at least 15 minutes, or with the
    first cycles after that; and it goes on until now, or until as long after the incident is over.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    incident, member = IncidentRow, IncidentMemberRow
    worst = (
        select(
            member.node,
            member.target,
            member.rank,
            member.phase,
            member.kind,
            member.started_at_ns,
            member.ended_at_ns,
            func.coalesce(RegressionRow.detected_at_ns, member.started_at_ns).label("detected_at_ns"),
        )
        .join(
            incident,
            and_(
                incident.id == member.incident_id,
                incident.node == member.node,
                incident.target == member.target,
                incident.phase == member.phase,
            ),
        )
        .outerjoin(RegressionRow, RegressionRow.key == member.regression)
        .where(incident.key == key)
        .order_by(member.effect.desc(), member.rank, member.kind)
        .limit(1)
    )
    row = connection.execute(worst).one_or_none()
    if row is None:
        return None
    before_ns = max(_BEFORE * (row.detected_at_ns - row.started_at_ns), _LEAST_BEFORE_NS)
    until_ns = now_ns if row.ended_at_ns is None else min(now_ns, row.ended_at_ns + before_ns)
    stretch = Stretch(row.target, row.started_at_ns - before_ns, max(until_ns, row.started_at_ns), node=row.node)
    points = tuple(cycles_over(connection, stretch, row.rank, row.phase, _POINTS_MAX))
    first_ns = min(points[0].start_ns, row.started_at_ns) if points else stretch.from_ns
    return IncidentTimeline(
        target=row.target,
        phase=row.phase,
        kind=row.kind,
        from_ns=max(first_ns, stretch.from_ns),
        to_ns=stretch.to_ns,
        started_at_ns=row.started_at_ns,
        ended_at_ns=row.ended_at_ns,
        points=points,
    )
