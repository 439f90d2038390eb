"""Which daemon, of all that share the database, forms incidents and tells of them; and the lock that goes with it."""

from sqlalchemy import Connection, or_, update

from cyclewatch.daemon.store.incident_models import LeaseRow

_NAME = "incidents"


def lock(connection: Connection) -> None:
    """Wait until nobody else changes incidents, and keep everybody out until the end of the transaction.

    It is the transaction's first statement: SQLite lets one writer in at a time, and one that has read before it writes
    may be turned away; PostgreSQL keeps others from the row, and shows what they have written to what is read after it.
    """
    connection.execute(update(LeaseRow).where(LeaseRow.name == _NAME).values(until_ns=LeaseRow.until_ns))


def hold(connection: Connection, holder: str, now_ns: int, length_ns: int) -> bool:
    """Take or renew the lease for `length_ns` from now, and `lock`; False where another holds it."""
    free = or_(LeaseRow.holder == holder, LeaseRow.until_ns <= now_ns)
    taken = update(LeaseRow).where(LeaseRow.name == _NAME, free).values(holder=holder, until_ns=now_ns + length_ns)
    return connection.execute(taken).rowcount == 1


def release(connection: Connection, holder: str) -> None:
    """Let another take the lease at once."""
    connection.execute(
        update(LeaseRow).where(LeaseRow.name == _NAME, LeaseRow.holder == holder).values(holder="", until_ns=0)
    )
