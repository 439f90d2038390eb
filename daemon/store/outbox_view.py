"""The outbox as people see it, and what they can do about it."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Engine, and_, select, update
from sqlalchemy.orm import aliased

from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.message_json import message_of
from cyclewatch.daemon.alerts.outbox import DIGESTS, Standing
from cyclewatch.daemon.store import row_number
from cyclewatch.daemon.store.incident_models import OutboxRow

_WAITS = (Standing.PENDING.value, Standing.HELD.value)


class ResendError(Exception):
    """It cannot be sent again; one sentence that says why."""


@dataclass(frozen=True)
class StoredEntry:
    """An entry of the outbox. `message` is None where this release cannot read it; instants are UTC nanoseconds."""

    number: int
    key: str
    sink: str
    standing: Standing
    message: Message | None
    created_at_ns: int
    not_before_ns: int
    attempts: int
    last_attempt_ns: int | None
    done_at_ns: int | None
    reason: str


class OutboxView:
    """Reads the outbox, and lets what is dead be sent again.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def entries(self, *, dead: bool = False, done: bool = False, limit: int = 200) -> list[StoredEntry]:
        """The newest entries that wait or are dead, newest first; only the dead ones, or with those that are done."""
        query = select(OutboxRow.__table__).order_by(OutboxRow.id.desc()).limit(limit)
        if dead:
            query = query.where(OutboxRow.state == Standing.DEAD.value)
        elif not done:
            query = query.where(OutboxRow.state.in_((*_WAITS, Standing.DEAD.value)))
        with self._engine.connect() as connection:
            return [
                StoredEntry(
                    row.id,
                    row.key,
                    row.sink,
                    Standing(row.state),
                    _readable(row.message),
                    row.created_at_ns,
                    row.not_before_ns,
                    row.attempts,
                    row.last_attempt_ns,
                    row.done_at_ns,
                    row.reason,
                )
                for row in connection.execute(query)
            ]

    def resend(self, number: int, now_ns: int) -> None:
        """Let a dead or waiting message be sent as soon as its sink's rate allows.

        Raises:
            ResendError: it was told already, or its incident has gone on.
        """
        if not row_number.may_be(number):
            raise ResendError(f"no message {number} is in the outbox")
        with self._engine.begin() as connection:
            if _send_anew(connection, OutboxRow.id == number, now_ns):
                return
            standing = connection.execute(select(OutboxRow.state).where(OutboxRow.id == number)).scalar()
        if standing is None:
            raise ResendError(f"no message {number} is in the outbox")
        if standing == Standing.DEAD.value:
            raise ResendError(f"message {number}: what came after it in its incident has been delivered")
        raise ResendError(f"message {number} has been told: {standing}")

    def resend_dead(self, now_ns: int) -> int:
        """Let all dead messages be sent whose incidents have not gone on; how many."""
        with self._engine.begin() as connection:
            return _send_anew(connection, OutboxRow.state == Standing.DEAD.value, now_ns)


def _send_anew(connection: Connection, which: ColumnElement[bool], now_ns: int) -> int:
    later = aliased(OutboxRow)
    gone_on = select(later.id).where(
        later.thread == OutboxRow.thread,
        later.thread != DIGESTS,
        later.sink == OutboxRow.sink,
        later.id > OutboxRow.id,
        later.state == Standing.DELIVERED.value,
    )
    may = and_(which, OutboxRow.state.in_((*_WAITS, Standing.DEAD.value)), ~gone_on.exists())
    values = {
        "state": Standing.PENDING.value,
        "created_at_ns": now_ns,
        "not_before_ns": now_ns,
        "attempts": 0,
        "last_attempt_ns": None,
        "done_at_ns": None,
        "reason": "",
    }
    return connection.execute(update(OutboxRow).where(may).values(values)).rowcount


def _readable(document: dict[str, object]) -> Message | None:
    try:
        return message_of(document)
    except ValueError:
        return None
