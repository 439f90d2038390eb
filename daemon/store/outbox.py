"""The outbox in the database: messages that wait for their sinks, and what became of them."""

import importlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Connection, Engine, and_, case, delete, func, insert, or_, select, update
from sqlalchemy.orm import aliased

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.delivery.pace import wait_ns
from cyclewatch.daemon.alerts.message import ENDS, Message
from cyclewatch.daemon.alerts.message_json import message_document, message_of
from cyclewatch.daemon.alerts.outbox import DIGESTS, Attempt, Entry, Load, Settled, Slot, Standing, Waiting, urgency
from cyclewatch.daemon.alerts.senders.sender import Rate
from cyclewatch.daemon.alerts.together import together
from cyclewatch.daemon.store.incident_models import AttemptRow, IncidentRow, OutboxRow
from cyclewatch.daemon.store.lease import lock

log = structlog.get_logger(__name__)

_KEEP_ATTEMPTS = 500
"""For each sink; more than any rate counts. By number, not by age: the clock may have been wrong."""

_DONE = (Standing.DELIVERED.value, Standing.TOLD_TOGETHER.value)


def put(connection: Connection, entries: Iterable[Entry], now_ns: int) -> None:
    """Store `entries` in the caller's transaction; one whose key is there already is left out.

    An entry that is not held tells all of its incident, so what is held of it for the same sink is told with it. An end
    tells since when until when, so what still waits is told with it too: nobody is called for what is over. Else what
    waits becomes as urgent as the entry is.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    insert_new: Any = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(OutboxRow)
    for entry in entries:
        values = {
            "key": entry.key,
            "thread": entry.thread,
            "sink": entry.sink,
            "state": entry.standing.value,
            "message": message_document(entry.message),
            "created_at_ns": now_ns,
            "not_before_ns": entry.not_before_ns,
            "urgency": urgency(entry.message),
            "attempts": 0,
            "reason": "",
        }
        stored = connection.execute(insert_new.values(values).on_conflict_do_nothing(index_elements=["key"]))
        if stored.rowcount == 1 and entry.standing is Standing.PENDING:
            before = and_(OutboxRow.thread == entry.thread, OutboxRow.key != entry.key)
            _told_together(connection, and_(_held(entry.sink), before), now_ns)
            waiting = and_(_pending(entry.sink), before)
            if entry.message.state in ENDS:
                _told_together(connection, waiting, now_ns)
            else:
                connection.execute(update(OutboxRow).where(waiting).values(urgency=values["urgency"]))


def told(connection: Connection, thread: str) -> frozenset[str]:
    """The sinks that have been told of an incident, or are going to be.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    query = select(OutboxRow.sink).where(OutboxRow.thread == thread).distinct()
    return frozenset(connection.execute(query).scalars())


class Outbox:
    """What delivery asks of the outbox, and leaves in it; each method in a transaction of its own.

    Instants are compared with care: a time in the future of what was noted at a time in the future is not waited for,
    since the clock has been put back.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def next(self, sink: str, now_ns: int) -> Waiting | None:
        """The most urgent entry that may be sent, the oldest of those: nothing before it in its thread waits."""
        before = aliased(OutboxRow)
        earlier = select(before.id).where(
            before.thread == OutboxRow.thread,
            before.sink == sink,
            before.state == Standing.PENDING.value,
            before.id < OutboxRow.id,
        )
        query = (
            select(OutboxRow.__table__)
            .where(_pending(sink), _due(now_ns), ~earlier.exists())
            .order_by(OutboxRow.urgency, OutboxRow.id)
            .limit(1)
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        message = _readable(row.message)
        if message is None:
            log.error("a message in the outbox cannot be read", outbox=row.id)
            self._bury(OutboxRow.id == row.id, "cannot be read: was it written by another release?", now_ns)
            return None
        return Waiting(row.id, row.thread, message, row.attempts, row.created_at_ns)

    def begin(self, sink: str, rates: Sequence[Rate], now: Now, boot: str, waiting: Waiting | None = None) -> Slot:
        """Note that something is about to be sent to the sink, if its rates allow: an entry that waits, or a test.

        Asked and noted under the lock: a daemon and a command that tests the sink keep its rates together.
        """
        noted = insert(AttemptRow).values(
            sink=sink, at_ns=now.wall_ns, boot=boot, monotonic_ns=now.monotonic_ns, ended=False, wait_ns=0
        )
        with self._engine.begin() as connection:
            lock(connection)
            _count_anew(connection, sink, now, boot)
            wait = wait_ns(_attempts(connection, sink, rates), rates, now, boot)
            if wait:
                return Slot(wait_ns=wait)
            if waiting is not None and not _counted(connection, waiting, now):
                return Slot()
            number: int = connection.execute(noted.returning(AttemptRow.id)).scalar_one()
            return Slot(number)

    def end(self, attempt: int, now: Now, boot: str, rest_ns: int) -> None:
        """Note that an attempt which was no entry's is over, and for how long the sink is to be left alone."""
        with self._engine.begin() as connection:
            _end(connection, AttemptRow.id == attempt, now, boot, rest_ns)

    def settle(self, waiting: Waiting, attempt: int, settled: Settled, now: Now, boot: str) -> None:
        """Note what the attempt has come to. What did not arrive, and was told with another meanwhile, stays so."""
        done_at_ns = None if settled.standing is Standing.PENDING else now.wall_ns
        which = OutboxRow.id == waiting.number
        if settled.standing is not Standing.DELIVERED:
            which = and_(which, OutboxRow.state == Standing.PENDING.value)
        with self._engine.begin() as connection:
            connection.execute(
                update(OutboxRow)
                .where(which)
                .values(
                    state=settled.standing.value,
                    not_before_ns=settled.not_before_ns,
                    done_at_ns=done_at_ns,
                    reason=settled.reason,
                )
            )
            _end(connection, AttemptRow.id == attempt, now, boot, settled.wait_ns)

    def end_cut_off(self, sink: str, now: Now, boot: str) -> None:
        """Attempts without an end, whose daemon was killed: they may have arrived until now."""
        with self._engine.begin() as connection:
            _end(connection, and_(AttemptRow.sink == sink, ~AttemptRow.ended), now, boot, 0)

    def gather(self, sink: str, now_ns: int, *, pager: bool) -> None:
        """Make what was held, and is due, into messages: of one incident its last; of several, one for all of them.

        A pager is told each incident's last message, since it keeps them apart.
        """
        due = select(OutboxRow.thread).where(_held(sink), _due(now_ns)).distinct()
        with self._engine.connect() as connection:
            if connection.execute(due.limit(1)).first() is None:
                return
        with self._engine.begin() as connection:
            lock(connection)  # whoever puts something beside it waits, or has done so
            threads = connection.execute(due).scalars().all()
            query = select(OutboxRow.id, OutboxRow.thread, OutboxRow.message)
            rows = connection.execute(query.where(_held(sink), OutboxRow.thread.in_(threads)).order_by(OutboxRow.id))
            last = {row.thread: row for row in rows}
            messages = {thread: _readable(row.message) for thread, row in last.items()}
            known = [message for message in messages.values() if message is not None]
            over = [thread for thread, message in messages.items() if message is not None and message.state in ENDS]
            _told_together(connection, and_(_pending(sink), OutboxRow.thread.in_(over)), now_ns)
            if pager or len(last) == 1 or len(known) < len(last):
                released = OutboxRow.id.in_([row.id for row in last.values()])
                # It has waited for its sink since now only, whatever it is given up by.
                values = {"state": Standing.PENDING.value, "created_at_ns": now_ns, "not_before_ns": now_ns}
                connection.execute(update(OutboxRow).where(released).values(values))
            else:
                key = f"{DIGESTS}:{max(row.id for row in last.values())}:{sink}"
                message = replace(together(known, now_ns), key=key)
                put(connection, [Entry(key, DIGESTS, sink, message, Standing.PENDING, now_ns)], now_ns)
            _told_together(connection, and_(_held(sink), OutboxRow.thread.in_(threads)), now_ns)

    def last_told(self, sink: str, told_after_ns: int) -> list[tuple[str, Message]]:
        """Thread and last message of each incident that is open, or told to be over since then; most urgent first."""
        latest = (
            select(func.max(OutboxRow.id))
            .where(OutboxRow.sink == sink, OutboxRow.state == Standing.DELIVERED.value, OutboxRow.thread != DIGESTS)
            .group_by(OutboxRow.thread)
        )
        query = (
            select(OutboxRow.thread, OutboxRow.message, OutboxRow.done_at_ns, IncidentRow.ended_at_ns)
            .outerjoin(IncidentRow, IncidentRow.key == OutboxRow.thread)
            .where(OutboxRow.id.in_(latest))
            .order_by(OutboxRow.urgency, OutboxRow.id)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        found = [(row, _readable(row.message)) for row in rows]
        return [
            (row.thread, message)
            for row, message in found
            if message is not None
            and (row.done_at_ns > told_after_ns if message.state in ENDS else row.ended_at_ns is None)
        ]

    def loads(self) -> list[Load]:
        """What waits, and what is dead, for every sink that has any of it."""
        pending = OutboxRow.state == Standing.PENDING.value
        query = (
            select(
                OutboxRow.sink,
                func.count(case((pending, 1))),
                func.coalesce(func.min(case((pending, OutboxRow.created_at_ns))), 0),
                func.count(case((~pending, 1))),
            )
            .where(OutboxRow.state.in_((Standing.PENDING.value, Standing.DEAD.value)))
            .group_by(OutboxRow.sink)
            .order_by(OutboxRow.sink)
        )
        with self._engine.connect() as connection:
            return [Load(*row) for row in connection.execute(query)]

    def give_up(self, sink: str, before_ns: int, reason: str, now_ns: int) -> int:
        """What has waited since before `before_ns` is dead; how many."""
        return self._bury(and_(_pending(sink), OutboxRow.created_at_ns < before_ns), reason, now_ns)

    def give_up_others(self, sinks: Collection[str], now_ns: int) -> int:
        """What waits for sinks that are not among `sinks` is dead; how many."""
        waits = OutboxRow.state.in_((Standing.PENDING.value, Standing.HELD.value))
        reason = "no sink of this name is configured any more"
        return self._bury(and_(OutboxRow.sink.not_in(list(sinks)), waits), reason, now_ns)

    def prune(self, sinks: Sequence[str], delivered_before_ns: int, dead_before_ns: int) -> int:
        """Delete what was done before then, but for that of open incidents, and old attempts; how many messages."""
        still_open = select(IncidentRow.key).where(IncidentRow.ended_at_ns.is_(None))
        old = or_(
            and_(OutboxRow.state.in_(_DONE), OutboxRow.done_at_ns < delivered_before_ns),
            and_(OutboxRow.state == Standing.DEAD.value, OutboxRow.done_at_ns < dead_before_ns),
        )
        with self._engine.begin() as connection:
            gone = connection.execute(delete(OutboxRow).where(old, OutboxRow.thread.not_in(still_open))).rowcount
            for sink in sinks:
                newest = select(AttemptRow.id).where(AttemptRow.sink == sink).order_by(AttemptRow.id.desc())
                oldest_kept = connection.execute(newest.offset(_KEEP_ATTEMPTS).limit(1)).scalar()
                if oldest_kept is not None:
                    connection.execute(delete(AttemptRow).where(AttemptRow.sink == sink, AttemptRow.id <= oldest_kept))
        return gone

    def _bury(self, which: ColumnElement[bool], reason: str, now_ns: int) -> int:
        values = {"state": Standing.DEAD.value, "reason": reason, "done_at_ns": now_ns}
        with self._engine.begin() as connection:
            return connection.execute(update(OutboxRow).where(which).values(values)).rowcount


def _readable(document: dict[str, Any]) -> Message | None:
    """None for what another release has written in a way that this one does not know."""
    try:
        return message_of(document)
    except ValueError:
        return None


def _held(sink: str) -> ColumnElement[bool]:
    return and_(OutboxRow.sink == sink, OutboxRow.state == Standing.HELD.value)


def _pending(sink: str) -> ColumnElement[bool]:
    return and_(OutboxRow.sink == sink, OutboxRow.state == Standing.PENDING.value)


def _attempts(connection: Connection, sink: str, rates: Sequence[Rate]) -> list[Attempt]:
    """As many of the last attempts at the sink as its rates count, newest first."""
    row = AttemptRow
    query = select(row.at_ns, row.boot, row.monotonic_ns, row.wait_ns).where(row.sink == sink)
    most = max((rate.count for rate in rates), default=1)
    return [Attempt(*one) for one in connection.execute(query.order_by(row.id.desc()).limit(most))]


def _count_anew(connection: Connection, sink: str, now: Now, boot: str) -> None:
    """Take attempts from the future, of another boot or machine, for made just now, so that they age by this boot.

    Else they would stay new until the wall clock is there.
    """
    ahead = and_(AttemptRow.sink == sink, AttemptRow.boot != boot, AttemptRow.at_ns > now.wall_ns)
    values = {"at_ns": now.wall_ns, "boot": boot, "monotonic_ns": now.monotonic_ns}
    connection.execute(update(AttemptRow).where(ahead).values(values))


def _counted(connection: Connection, waiting: Waiting, now: Now) -> bool:
    """Count another attempt of an entry; False where it is not pending any more."""
    counted = (
        update(OutboxRow)
        .where(OutboxRow.id == waiting.number, OutboxRow.state == Standing.PENDING.value)
        .values(attempts=OutboxRow.attempts + 1, last_attempt_ns=now.wall_ns)
    )
    return connection.execute(counted).rowcount == 1


def _due(now_ns: int) -> ColumnElement[bool]:
    """Its time has come, or the clock has been put back since that time was set."""
    set_at_ns = func.coalesce(OutboxRow.last_attempt_ns, OutboxRow.created_at_ns)
    return or_(OutboxRow.not_before_ns <= now_ns, set_at_ns > now_ns)


def _told_together(connection: Connection, which: ColumnElement[bool], now_ns: int) -> None:
    values = {"state": Standing.TOLD_TOGETHER.value, "done_at_ns": now_ns}
    connection.execute(update(OutboxRow).where(which).values(values))


def _end(connection: Connection, which: ColumnElement[bool], now: Now, boot: str, wait_ns: int) -> None:
    values = {
        "at_ns": now.wall_ns,
        "boot": boot,
        "monotonic_ns": now.monotonic_ns,
        "ended": True,
        "wait_ns": wait_ns,
    }
    connection.execute(update(AttemptRow).where(which).values(values))
