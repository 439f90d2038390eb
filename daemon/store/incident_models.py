"""Tables of incidents and of the messages about them. Times are UTC nanoseconds in BIGINT, ratios plain numbers."""

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from cyclewatch.daemon.store.models import Base, RowId


class IncidentRow(Base):
    """Regressions of one cause and time, as people are told of them; the figures are those of its worst member."""

    __tablename__ = "incidents"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    state: Mapped[str] = mapped_column(String(16), index=True)
    severity: Mapped[str] = mapped_column(String(16))
    node: Mapped[str] = mapped_column(String(253))
    target: Mapped[str] = mapped_column(String(64))
    model: Mapped[str] = mapped_column(Text)
    phase: Mapped[str] = mapped_column(String(32))
    cause: Mapped[dict[str, Any]] = mapped_column(JSON)
    change: Mapped[str] = mapped_column(Text)
    effect: Mapped[float] = mapped_column(Float)
    ci_low: Mapped[float] = mapped_column(Float)
    ci_high: Mapped[float] = mapped_column(Float)
    started_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    opened_at_ns: Mapped[int] = mapped_column(BigInteger)
    joined_at_ns: Mapped[int] = mapped_column(BigInteger)
    quiet_since_ns: Mapped[int | None] = mapped_column(BigInteger)
    ended_at_ns: Mapped[int | None] = mapped_column(BigInteger, index=True)
    returns: Mapped[int] = mapped_column(Integer)
    expectation_id: Mapped[int | None] = mapped_column(ForeignKey("expectations.id"))
    told: Mapped[dict[str, Any]] = mapped_column(JSON)
    merged_into: Mapped[int | None] = mapped_column(BigInteger)


class IncidentMemberRow(Base):
    """A series of an incident, with the latest of its regressions: one that comes and goes all day stays one row."""

    __tablename__ = "incident_members"

    incident_id: Mapped[int] = mapped_column(ForeignKey("incidents.id"), primary_key=True)
    node: Mapped[str] = mapped_column(String(253), primary_key=True)
    target: Mapped[str] = mapped_column(String(64), primary_key=True)
    rank: Mapped[str] = mapped_column(String(32), primary_key=True)
    phase: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    regression: Mapped[str] = mapped_column(String(64), index=True)
    started_at_ns: Mapped[int] = mapped_column(BigInteger)
    ended_at_ns: Mapped[int | None] = mapped_column(BigInteger, index=True)
    effect: Mapped[float] = mapped_column(Float)
    accepted_effect: Mapped[float | None] = mapped_column(Float)


class IncidentNoteRow(Base):
    """One line in the book of an incident: what became of it, when, by whom (empty for the daemon) and why."""

    __tablename__ = "incident_notes"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    incident_id: Mapped[int] = mapped_column(ForeignKey("incidents.id"), index=True)
    at_ns: Mapped[int] = mapped_column(BigInteger)
    what: Mapped[str] = mapped_column(String(16))
    who: Mapped[str] = mapped_column(String(128))
    why: Mapped[str] = mapped_column(Text)


class SilenceRow(Base):
    """No messages about incidents whose target and cause match, for a time. Patterns are those of a shell."""

    __tablename__ = "silences"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    target: Mapped[str] = mapped_column(String(128))
    cause: Mapped[str] = mapped_column(String(64))
    from_ns: Mapped[int] = mapped_column(BigInteger)
    until_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    created_at_ns: Mapped[int] = mapped_column(BigInteger)
    who: Mapped[str] = mapped_column(String(128))
    why: Mapped[str] = mapped_column(Text)


class ExpectationRow(Base):
    """A change that was announced: what begins on a matching target in this time is its effect, not an alarm."""

    __tablename__ = "expectations"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    target: Mapped[str] = mapped_column(String(128))
    from_ns: Mapped[int] = mapped_column(BigInteger)
    until_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    created_at_ns: Mapped[int] = mapped_column(BigInteger)
    who: Mapped[str] = mapped_column(String(128))
    why: Mapped[str] = mapped_column(Text)


class OutboxRow(Base):
    """A message to one sink, until it is delivered, and for a while after. It holds no secrets.

    Messages of one `thread` (an incident) go to a sink in the order of their ids; of several threads the one of the
    least `urgency` first. It is that of the thread's newest message.
    """

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(String(200), unique=True)
    thread: Mapped[str] = mapped_column(String(64))
    sink: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    message: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at_ns: Mapped[int] = mapped_column(BigInteger)
    not_before_ns: Mapped[int] = mapped_column(BigInteger)
    urgency: Mapped[int] = mapped_column(Integer)
    attempts: Mapped[int] = mapped_column(Integer)
    last_attempt_ns: Mapped[int | None] = mapped_column(BigInteger)
    done_at_ns: Mapped[int | None] = mapped_column(BigInteger, index=True)
    reason: Mapped[str] = mapped_column(Text)

    __table_args__ = (
        Index("ix_outbox_sink", "sink", "state", "urgency", "id"),
        # All three: SQLite would else look for what waits of an incident among all that waits for the sink.
        Index("ix_outbox_thread", "thread", "sink", "state"),
    )


class AttemptRow(Base):
    """One attempt at sending to a sink, noted before it is made: rate limits hold over restarts by it.

    It counts from its end, before which the message may have arrived at any moment. The monotonic clock is that of the
    boot of the machine named in `boot`, and of no other.
    """

    __tablename__ = "attempts"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    sink: Mapped[str] = mapped_column(String(64))
    at_ns: Mapped[int] = mapped_column(BigInteger)
    boot: Mapped[str] = mapped_column(String(64))
    monotonic_ns: Mapped[int] = mapped_column(BigInteger)
    ended: Mapped[bool] = mapped_column(Boolean)
    wait_ns: Mapped[int] = mapped_column(BigInteger)

    __table_args__ = (Index("ix_attempts_sink", "sink", "id"),)


class LeaseRow(Base):
    """Which daemon of all that share the database does what one alone may do; the migration makes the row."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(320))
    until_ns: Mapped[int] = mapped_column(BigInteger)
