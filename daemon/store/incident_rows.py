"""Incidents as the store has them: from rows to what flows, and back."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Select, insert, select, update

from cyclewatch.daemon.alerts.message import FirstCause, Severity
from cyclewatch.daemon.incidents.incident import Act, Incident, IncidentState, Member, Note, Told
from cyclewatch.daemon.store.incident_models import IncidentMemberRow, IncidentNoteRow, IncidentRow

_OTHERWISE = {"number", "ci", "expectation", "members"}
_MEMBER_FIELDS = tuple(Member.__dataclass_fields__)


def read_incidents(
    connection: Connection, query: Select[Any], parameters: Mapping[str, Any] | None = None
) -> list[Incident]:
    """The incidents whose rows `query` selects, in its order, with their members by series."""
    rows = connection.execute(query, parameters).all()
    if not rows:
        return []
    members = defaultdict[int, list[Member]](list)
    table = IncidentMemberRow.__table__
    of_them = table.c.incident_id.in_([row.id for row in rows])
    series = (table.c.node, table.c.target, table.c.rank, table.c.phase, table.c.kind)
    for row in connection.execute(select(table).where(of_them).order_by(*series)):
        members[row.incident_id].append(Member(**{name: getattr(row, name) for name in _MEMBER_FIELDS}))
    return [_incident(row, tuple(members[row.id])) for row in rows]


def write_incident(connection: Connection, incident: Incident) -> int:
    """Store an incident as it is now, with its members; gives its number."""
    number = incident.number
    if number is None:
        added = connection.execute(insert(IncidentRow).values(_row(incident)).returning(IncidentRow.id))
        number = int(added.scalar_one())
        before: dict[tuple[str, ...], Member] = {}
    else:
        connection.execute(update(IncidentRow).where(IncidentRow.id == number).values(_row(incident)))
        (stored,) = read_incidents(connection, select(IncidentRow.__table__).where(IncidentRow.id == number))
        before = {member.series: member for member in stored.members}
    _write_members(connection, number, before, incident.members)
    return number


def write_notes(connection: Connection, number: int, notes: Sequence[Note]) -> None:
    """Add lines to the book of an incident."""
    if notes:
        connection.execute(insert(IncidentNoteRow), [{"incident_id": number, **asdict(note)} for note in notes])


def last_by(connection: Connection, number: int, act: Act) -> Note | None:
    """Who did that to an incident last, when, and why."""
    row = IncidentNoteRow
    query = (
        select(row.at_ns, row.what, row.who, row.why)
        .where(row.incident_id == number, row.what == act.value)
        .order_by(row.id.desc())
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    return None if found is None else Note(*found)


def _write_members(
    connection: Connection, number: int, before: dict[tuple[str, ...], Member], members: Sequence[Member]
) -> None:
    """Write what is new or altered; a member never goes."""
    added = [{"incident_id": number, **asdict(member)} for member in members if member.series not in before]
    if added:
        connection.execute(insert(IncidentMemberRow), added)
    table = IncidentMemberRow.__table__
    for member in members:
        if member.series in before and before[member.series] != member:
            node, target, rank, phase, kind = member.series
            connection.execute(
                update(IncidentMemberRow)
                .where(
                    table.c.incident_id == number,
                    table.c.node == node,
                    table.c.target == target,
                    table.c.rank == rank,
                    table.c.phase == phase,
                    table.c.kind == kind,
                )
                .values(asdict(member))
            )


def _row(incident: Incident) -> dict[str, Any]:
    plain = {name: getattr(incident, name) for name in Incident.__dataclass_fields__ if name not in _OTHERWISE}
    return {
        **plain,
        "state": incident.state.value,
        "severity": incident.severity.value,
        "ci_low": incident.ci[0],
        "ci_high": incident.ci[1],
        "expectation_id": incident.expectation,
        "cause": {} if incident.cause is None else asdict(incident.cause),
        "told": {} if incident.told is None else asdict(incident.told),
    }


def _incident(row: Any, members: tuple[Member, ...]) -> Incident:  # noqa: ANN401 (a row of the incidents table)
    plain = {name: getattr(row, name) for name in Incident.__dataclass_fields__ if name in row._fields}
    cause, told = row.cause, row.told
    return Incident(
        **{
            **plain,
            "number": row.id,
            "state": IncidentState(row.state),
            "severity": Severity(row.severity),
            "ci": (row.ci_low, row.ci_high),
            "expectation": row.expectation_id,
            "cause": FirstCause(cause["kind"], cause["subject"], tuple(cause["evidence"])) if cause else None,
            "told": Told(**{**told, "state": IncidentState(told["state"]), "severity": Severity(told["severity"])})
            if told
            else None,
            "members": members,
        }
    )
