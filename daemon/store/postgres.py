"""PostgreSQL: how it is connected to, so that whoever asks gets an answer or an error in time."""

import threading
import time
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from cyclewatch.daemon.store.json_text import json_text

_CONNECT_S = 5
_LOCK_MS = 10_000
_STATEMENT_MS = 15_000
_ANSWER_S = 20.0
"""With the time to connect again less than the watchdog has: the loop that feeds it asks the database too."""

_REST_S = 2.0


def postgres_engine(address: URL, *, patient: bool) -> Engine:
    """An engine for a server; nothing is connected yet. `patient` waits as long as an upgrade of the schema may take.

    The server gives up a statement after 15 s, and waiting for a lock after 10 s. One that does not even say so,
    because it hangs or the network swallows its answer, is given up after 20 s.
    """
    engine = create_engine(
        address, pool_pre_ping=True, connect_args={"connect_timeout": _CONNECT_S}, json_serializer=json_text
    )
    event.listen(engine, "do_connect", _Door(psycopg.Connection if patient else _BoundedConnection))
    if not patient:
        event.listen(engine, "connect", _set_limits)
    return engine


class _BoundedConnection(psycopg.Connection[Any]):
    """A connection that does not wait for ever."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for the server; the connection is of no use after a timeout, since an answer may still come."""
        began_s = time.monotonic()
        limit_s = _ANSWER_S if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.OperationalError:
            if time.monotonic() - began_s < limit_s:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not answer within {limit_s:.0f} s") from None


class _Door:
    """Connects; after a failure it refuses for a while, so that many who ask do not wait 5 s each."""

    def __init__(self, connection: type[psycopg.Connection[Any]]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._closed_until_s = 0.0
        self._reason = ""

    def __call__(self, _dialect: object, _record: object, words: list[Any], options: dict[str, Any]) -> Any:  # noqa: ANN401 (SQLAlchemy's hook)
        with self._lock:
            if time.monotonic() < self._closed_until_s:
                raise psycopg.OperationalError(self._reason)
        try:
            return self._connection.connect(*words, **options)
        except psycopg.OperationalError as error:
            with self._lock:
                self._closed_until_s, self._reason = time.monotonic() + _REST_S, str(error)
            raise


def _set_limits(connection: Any, _record: ConnectionPoolEntry) -> None:  # noqa: ANN401 (of psycopg)
    # By a statement: poolers such as PgBouncer refuse them among the options of a connection.
    connection.execute(f"SET statement_timeout = {_STATEMENT_MS}")
    connection.execute(f"SET lock_timeout = {_LOCK_MS}")
    connection.commit()
