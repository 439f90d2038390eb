"""What a pass over the incidents reads, and what it writes."""

from typing import Any

from sqlalchemy import Connection, and_, bindparam, exists, select, union

from cyclewatch.daemon.alerts.message import FirstCause
from cyclewatch.daemon.incidents.change import BEFORE_NS, CHANGE_KINDS, Change
from cyclewatch.daemon.incidents.incident import ENDED, Expectation, Finding, Incident, Silence
from cyclewatch.daemon.incidents.reconcile import View
from cyclewatch.daemon.store.incident_models import ExpectationRow, IncidentMemberRow, IncidentRow, SilenceRow
from cyclewatch.daemon.store.incident_rows import read_incidents
from cyclewatch.daemon.store.incidents import period_of
from cyclewatch.daemon.store.models import ChangeEventRow, RegressionRow, RunRow

_HOUR_NS = 3600 * 10**9
KEPT_NS = 24 * _HOUR_NS
"""So long an incident is looked at after its end, and an announced change after its time."""

MISSED_NS = _HOUR_NS
"""A regression that ended longer ago before anybody looked is history, and told to nobody."""


def read_view(connection: Connection, now_ns: int) -> View:
    """What is known that may still matter at `now_ns`.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    times = {"now_ns": now_ns, "kept_ns": now_ns - KEPT_NS, "missed_ns": now_ns - MISSED_NS}
    incidents = read_incidents(connection, _INCIDENTS, times)
    findings = [_finding(row) for row in connection.execute(_FINDINGS, times)]
    return View(
        tuple(incidents),
        tuple(findings),
        tuple(Silence(**period_of(row)) for row in connection.execute(_SILENCES, times)),
        tuple(Expectation(**period_of(row)) for row in connection.execute(_EXPECTATIONS, times)),
        _changes(connection, incidents, findings, now_ns),
    )


def _incidents() -> Any:  # noqa: ANN401 (a query)
    row = IncidentRow
    of_open = select(IncidentMemberRow.incident_id).where(IncidentMemberRow.ended_at_ns.is_(None))
    wanted = union(
        select(row.id).where(row.ended_at_ns.is_(None)),
        select(row.id).where(row.ended_at_ns > bindparam("kept_ns")),
        of_open,
    )
    return select(row.__table__).where(row.id.in_(wanted)).order_by(row.id)


def _findings() -> Any:  # noqa: ANN401 (a query)
    """Each part of the union by an index of its own: a hundred thousand old regressions are not looked at."""
    row, member = RegressionRow, IncidentMemberRow
    of_open = select(member.regression).where(member.ended_at_ns.is_(None))
    missed = and_(
        row.started_at_ns > bindparam("kept_ns"),
        row.ended_at_ns > bindparam("missed_ns"),
        ~exists().where(member.regression == row.key),
    )
    wanted = union(
        select(row.id).where(row.state == "open"),
        select(row.id).where(row.key.in_(of_open)),
        select(row.id).where(missed),
    )
    columns = (row.id, row.key, row.target, row.rank, row.phase, row.kind, row.started_at_ns, row.ended_at_ns)
    sizes = (row.effect, row.ci_low, row.ci_high, row.causes[0].label("cause"))
    return (
        select(*columns, *sizes, RunRow.node, RunRow.model)
        .join_from(row, RunRow, row.run_id == RunRow.id)
        .where(row.id.in_(wanted), row.direction == "slower")
    )


_INCIDENTS = _incidents()
_FINDINGS = _findings()
_SILENCES = select(SilenceRow.__table__).where(SilenceRow.until_ns > bindparam("now_ns")).order_by(SilenceRow.id)
_EXPECTATIONS = (
    select(ExpectationRow.__table__)
    .where(ExpectationRow.until_ns > bindparam("kept_ns"))
    .order_by(ExpectationRow.id.desc())
)
"""Made once: made anew for every pass, a pass with nothing to do took eight times as long."""


def _finding(row: Any) -> Finding:  # noqa: ANN401 (a row of `_findings`)
    return Finding(
        key=row.key,
        number=row.id,
        node=row.node,
        target=row.target,
        model=row.model,
        rank=row.rank,
        phase=row.phase,
        kind=row.kind,
        started_at_ns=row.started_at_ns,
        ended_at_ns=row.ended_at_ns,
        effect=row.effect,
        ci=(row.ci_low, row.ci_high),
        cause=_first_cause(row.cause),
    )


def _first_cause(cause: dict[str, Any] | None) -> FirstCause | None:
    """The first cause of a regression, with the device that it is of."""
    if not cause:
        return None
    subject, device = str(cause.get("subject", "")), str(cause.get("device", ""))
    if device and device not in subject:
        subject = f"{subject} ({device})"
    return FirstCause(str(cause.get("kind", "")), subject, tuple(map(str, cause.get("evidence") or ())))


def _changes(
    connection: Connection, incidents: list[Incident], findings: list[Finding], now_ns: int
) -> tuple[Change, ...]:
    """What was changed around the beginning of regressions that no open incident has."""
    placed = {member.regression for one in incidents if one.state not in ENDED for member in one.members}
    known = {member.regression for one in incidents for member in one.members}
    if all(finding.key in placed for finding in findings):
        return ()
    began_ns = min([now_ns, *(finding.started_at_ns for finding in findings if finding.key not in known)])
    row = ChangeEventRow
    query = (
        select(row.node, row.target, row.at_ns, row.kind, row.subject, row.before, row.after)
        .where(row.at_ns > began_ns - BEFORE_NS, row.kind.in_(CHANGE_KINDS))
        .order_by(row.id)
    )
    return tuple(Change(*one) for one in connection.execute(query))
