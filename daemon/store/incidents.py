"""Incidents, silences and announced changes for those who look at them and act on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Select, and_, exists, insert, select, update

from cyclewatch.daemon.alerts.message import Felt
from cyclewatch.daemon.incidents.acting import ActError, NotThereError, acted
from cyclewatch.daemon.incidents.incident import ENDED, Act, Expectation, Incident, Note, Silence
from cyclewatch.daemon.store import row_number
from cyclewatch.daemon.store.felt import felt
from cyclewatch.daemon.store.incident_models import (
    ExpectationRow,
    IncidentMemberRow,
    IncidentNoteRow,
    IncidentRow,
    SilenceRow,
)
from cyclewatch.daemon.store.incident_rows import read_incidents, write_incident, write_notes
from cyclewatch.daemon.store.lease import lock
from cyclewatch.daemon.store.models import RegressionRow

"""What a BIGINT holds: numbers and instants may come from anywhere."""

_NAME_MAX = 128
_CAUSE_MAX = 64
_WHY_MAX = 2000


@dataclass(frozen=True)
class IncidentView:
    """One incident as it is shown: with its book, the oldest note first, and what users feel.

    `numbers` are those of its regressions, by key, as far as they are kept; `announced` is the change that it came of.
    """

    number: int
    incident: Incident
    notes: Sequence[Note]
    numbers: Mapping[str, int]
    felt: Sequence[Felt]
    announced: Expectation | None


class IncidentStore:
    """Reads from the database, and applies what people do in transactions of their own.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def incidents(self, *, ended: bool = False, limit: int = 200, before: int | None = None) -> list[Incident]:
        """The newest incidents of those with numbers below `before`, newest first; with `ended`, also what is over."""
        query = _page(select(IncidentRow.__table__), IncidentRow, limit, before)
        if not ended:
            query = query.where(IncidentRow.state.not_in(ENDED))
        with self._engine.connect() as connection:
            return read_incidents(connection, query)

    def incident(self, number: int) -> Incident | None:
        """The incident with this number."""
        with self._engine.connect() as connection:
            return _incident(connection, number)

    def notes(self, number: int) -> list[Note]:
        """The book of an incident, oldest first."""
        if not row_number.may_be(number):
            return []
        with self._engine.connect() as connection:
            return _notes(connection, number)

    def view(self, number: int, now_ns: int) -> IncidentView | None:
        """The incident with this number, and what is known around it."""
        with self._engine.connect() as connection:
            incident = _incident(connection, number)
            if incident is None:
                return None
            over_ns = now_ns if incident.ended_at_ns is None else incident.ended_at_ns
            return IncidentView(
                number,
                incident,
                _notes(connection, number),
                _regression_numbers(connection, number),
                felt(connection, incident.node, incident.target, incident.started_at_ns, over_ns),
                _expectation(connection, incident.expectation),
            )

    def act(self, number: int, act: Act, who: str, why: str, now_ns: int) -> Incident:
        """Do something about an incident, and note who did and why; gives the incident as it is then.

        Raises:
            ActError: there is no such incident, or it cannot be done as it stands.
        """
        note = Note(now_ns, act.value, _who(who), _text("why", why, _WHY_MAX))
        with self._engine.begin() as connection:
            lock(connection)
            incident = _incident(connection, number)
            if incident is None:
                raise NotThereError(f"there is no incident {number}: `cyclewatch incidents list --ended` shows all")
            after = acted(incident, act, now_ns)
            if act is Act.REOPEN:
                _refuse_if_elsewhere(connection, incident)
            write_incident(connection, after)
            write_notes(connection, number, [note])
        return after

    def silences(
        self, now_ns: int, *, over: bool = False, limit: int = 200, before: int | None = None
    ) -> list[Silence]:
        """Silences that hold or will, newest first; with `over`, those too that are past."""
        return [Silence(**one) for one in self._periods(SilenceRow, now_ns, over, limit, before)]

    def silence(self, target: str, cause: str, from_ns: int, until_ns: int, who: str, why: str, now_ns: int) -> Silence:
        """Be silent about incidents whose targets and cause all match these patterns, for a time.

        Raises:
            ActError: a pattern is empty or too long, or the time is over before it begins, or before now.
        """
        values: dict[str, Any] = {
            "target": _pattern("target", target, _NAME_MAX),
            "cause": _pattern("cause", cause, _CAUSE_MAX),
            **_period(from_ns, until_ns, now_ns),
            "who": _who(who),
            "why": _text("why", why, _WHY_MAX),
        }
        return Silence(self._added(SilenceRow, values, now_ns), **values)

    def end_silence(self, number: int, who: str, now_ns: int) -> Silence:
        """End a silence now; that `who` did is added to its reason.

        Raises:
            ActError: there is no such silence, or it is over.
        """
        return Silence(**self._end(SilenceRow, "silence", number, who, now_ns))

    def expectations(
        self, now_ns: int, *, over: bool = False, limit: int = 200, before: int | None = None
    ) -> list[Expectation]:
        """Announced changes whose time has not passed, newest first; with `over`, all."""
        return [Expectation(**one) for one in self._periods(ExpectationRow, now_ns, over, limit, before)]

    def expect(self, target: str, from_ns: int, until_ns: int, who: str, why: str, now_ns: int) -> Expectation:
        """Announce a change: what begins on matching targets within that time is its effect, not an alarm.

        Raises:
            ActError: the pattern is empty or too long, or the time is over before it begins, or before now.
        """
        values: dict[str, Any] = {
            "target": _pattern("target", target, _NAME_MAX),
            **_period(from_ns, until_ns, now_ns),
            "who": _who(who),
            "why": _text("why", why, _WHY_MAX),
        }
        return Expectation(self._added(ExpectationRow, values, now_ns), **values)

    def end_expectation(self, number: int, who: str, now_ns: int) -> Expectation:
        """End an announced change now; that `who` did is added to its reason.

        Raises:
            ActError: there is no such announcement, or its time is over.
        """
        return Expectation(**self._end(ExpectationRow, "expectation", number, who, now_ns))

    def _periods(
        self,
        row: type[SilenceRow] | type[ExpectationRow],
        now_ns: int,
        over: bool,  # noqa: FBT001 (handed on)
        limit: int,
        before: int | None,
    ) -> list[dict[str, Any]]:
        query = _page(select(row.__table__), row, limit, before)
        if not over:
            query = query.where(row.until_ns > now_ns)
        with self._engine.connect() as connection:
            return [period_of(one) for one in connection.execute(query)]

    def _added(self, row: type[SilenceRow] | type[ExpectationRow], values: dict[str, Any], now_ns: int) -> int:
        with self._engine.begin() as connection:
            added = insert(row).values(**values, created_at_ns=now_ns).returning(row.id)
            return int(connection.execute(added).scalar_one())

    def _end(
        self, row: type[SilenceRow] | type[ExpectationRow], name: str, number: int, who: str, now_ns: int
    ) -> dict[str, Any]:
        who = _who(who)
        if not row_number.may_be(number):
            raise NotThereError(f"there is no {name} {number}: `cyclewatch {name}s list` shows those that are")
        with self._engine.begin() as connection:
            lock(connection)
            stored = connection.execute(select(row.__table__).where(row.id == number)).one_or_none()
            if stored is None:
                raise NotThereError(f"there is no {name} {number}: `cyclewatch {name}s list` shows those that are")
            if stored.until_ns <= now_ns:
                raise ActError(f"{name} {number} is over already")
            why = f"{stored.why} (ended by {who})".lstrip()
            ended = update(row).where(row.id == number).values(until_ns=now_ns, why=why)
            connection.execute(ended)
        return {**period_of(stored), "until_ns": now_ns, "why": why}


def period_of(row: Any) -> dict[str, Any]:  # noqa: ANN401 (a row of silences or expectations)
    """The fields of a `Silence` or an `Expectation`."""
    names = ("target", "cause", "from_ns", "until_ns", "who", "why")
    return {"number": row.id, **{name: getattr(row, name) for name in names if name in row._fields}}


def _page(
    query: Select[Any], row: type[IncidentRow] | type[SilenceRow] | type[ExpectationRow], limit: int, before: int | None
) -> Select[Any]:
    """The newest rows, newest first, of those with numbers `before` one."""
    if before is not None:
        query = query.where(row.id < before)
    return query.order_by(row.id.desc()).limit(limit)


def _incident(connection: Connection, number: int) -> Incident | None:
    if not row_number.may_be(number):
        return None
    found = read_incidents(connection, select(IncidentRow.__table__).where(IncidentRow.id == number))
    return found[0] if found else None


def _notes(connection: Connection, number: int) -> list[Note]:
    row = IncidentNoteRow
    query = select(row.at_ns, row.what, row.who, row.why).where(row.incident_id == number).order_by(row.id)
    return [Note(*one) for one in connection.execute(query)]


def _expectation(connection: Connection, number: int | None) -> Expectation | None:
    query = select(ExpectationRow.__table__).where(ExpectationRow.id == number)
    row = connection.execute(query).one_or_none()
    return None if row is None else Expectation(**period_of(row))


def _regression_numbers(connection: Connection, number: int) -> dict[str, int]:
    query = (
        select(RegressionRow.key, RegressionRow.id)
        .join(IncidentMemberRow, IncidentMemberRow.regression == RegressionRow.key)
        .where(IncidentMemberRow.incident_id == number)
    )
    return {row.key: row.id for row in connection.execute(query)}


def _refuse_if_elsewhere(connection: Connection, incident: Incident) -> None:
    """What is slow counts in one incident: one that has it now is not robbed of it."""
    own, other = IncidentMemberRow, IncidentMemberRow.__table__.alias("other")
    series = ("node", "target", "rank", "phase", "kind")
    same = and_(*(other.c[name] == getattr(own, name) for name in series))
    query = (
        select(IncidentRow.id)
        .where(
            IncidentRow.state.not_in(ENDED),
            IncidentRow.id != incident.number,
            exists().where(own.incident_id == incident.number, other.c.incident_id == IncidentRow.id, same),
        )
        .order_by(IncidentRow.id)
        .limit(1)
    )
    holder = connection.execute(query).scalar_one_or_none()
    if holder is not None:
        raise ActError(f"incident {holder} tells of the same now: act on that one")


def _who(who: str) -> str:
    who = _text("who", who, _NAME_MAX)
    if not who:
        raise ActError("who is empty: say who does it")
    return who


def _pattern(name: str, text: str, most: int) -> str:
    text = _text(name, text, most)
    if not text:
        raise ActError(f"{name} is empty: * stands for any")
    return text


def _text(name: str, text: str, most: int) -> str:
    """`text` without what a terminal or a database would choke on."""
    text = "".join(one if one.isprintable() else " " for one in text).strip()
    if len(text) > most:
        raise ActError(f"{name} is longer than {most} characters: shorten it")
    return text


def _period(from_ns: int, until_ns: int, now_ns: int) -> dict[str, int]:
    if not 0 <= from_ns < until_ns <= row_number.LARGEST:
        raise ActError("the time must end after it begins, and before the year 2262")
    if until_ns <= now_ns:
        raise ActError("the time is over already: let it end later than now")
    return {"from_ns": from_ns, "until_ns": until_ns}
