"""The one writer: units go to the database from a thread of their own, off the sampling path."""

import math
import threading
import time
from collections import deque

import structlog
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InvalidRequestError, SQLAlchemyError, StatementError

from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.sqlite import is_full
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import Unit, merged
from cyclewatch.daemon.store.unit_bytes import head_of
from cyclewatch.daemon.store.waiting import WaitingState

log = structlog.get_logger(__name__)

_RETRY_FIRST_S = 0.2
_RETRY_LONGEST_S = 10.0
_UPKEEP_FAILED_S = 60.0
_MAKE_ROOM_S = 1.0
_UNIT_NS = 3600 * 10**9
"""No unit holds anything that is older."""


class StoreWriter:
    """Writes units in order, each in one transaction, and tries again until the database takes them.

    What the database does not take goes to disk at once (`spool`), and from there before anything newer; how things are
    by it is in `waiting_state`. Where the disk does not take it either, at most `max_pending` units wait in memory;
    beyond that the oldest give up their measurements (counted in `dropped`), never their regressions or events. A unit
    that the database refuses for what is in it gives up its measurements first, then all of it, so that it does not
    stand in the way for ever.

    While nothing waits, the thread does the `upkeep`, a little at a time. Whatever fails there is tried again later.
    """

    def __init__(self, transactions: Transactions, spool: Spool, max_pending: int, upkeep: Upkeep) -> None:
        self._transactions = transactions
        self._spool = spool
        self._max_pending = max_pending
        self._upkeep = upkeep
        self._upkeep_s = 0.0
        self._pending: deque[Unit] = deque()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._give_up_s = math.inf
        self._disk_fails = False
        self._dropped = 0
        self.waiting_state = WaitingState()
        self.written = 0
        self.failures = 0

    @property
    def pending(self) -> int:
        """Units waiting in memory."""
        return len(self._pending)

    @property
    def waiting(self) -> int:
        """Units that the database does not have yet, in memory or on disk."""
        return self.pending + self._spool.units

    @property
    def spooled_bytes(self) -> int:
        """What waits on disk."""
        return self._spool.size_bytes

    @property
    def dropped(self) -> int:
        """Measurements given up."""
        return self._dropped + self._spool.dropped

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def remember(self) -> None:
        """Learn what a daemon before this one left on disk; to be called before the store is asked what was last.

        Raises:
            OSError: it cannot be read.
        """
        for head in self._spool.heads():
            self.waiting_state.note(head)
        if not self._spool.empty:
            log.info("what the database did not take before goes there now", bytes=self.spooled_bytes)

    def submit(self, unit: Unit) -> None:
        """Hand over a unit; never waits for the database."""
        with self._changed:
            self._pending.append(unit)
            excess = len(self._pending) - self._max_pending
            if excess > 0:
                self._dropped += self._pending[excess - 1].shed()
                if excess > self._max_pending:  # memory stays bounded however long the database is away
                    self._pending.appendleft(merged(self._pending.popleft(), self._pending.popleft()))
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Write what is waiting, to disk at least, and end; False where neither took it.

        A database that hangs holds the thread beyond `timeout_s`; then, or where the thread has come to grief, what
        waits goes to disk from here.
        """
        self._give_up_s = time.monotonic() + timeout_s
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._pending or self._leave_on_disk()

    def _run(self) -> None:
        wait_s = _RETRY_FIRST_S
        while self._wait_for_work():
            try:
                self._write_next()
            except Exception as error:  # noqa: BLE001 (whatever is in one unit must not stop those behind it)
                self.failures += 1
                log.warning(
                    "the database did not take a batch; trying again", reason=reason_of(error), waiting=self.pending
                )
                if is_full(error):
                    self._make_room()
                self._to_disk()
                if self._stopping.is_set() and (not self._pending or time.monotonic() >= self._give_up_s):
                    break
                self._rest(wait_s)
                wait_s = min(wait_s * 2, _RETRY_LONGEST_S)
            else:
                wait_s = _RETRY_FIRST_S
        self._spool.close()

    def _wait_for_work(self) -> bool:
        """Wait until there is something to write, and do the upkeep meanwhile; False when all is done and to end."""
        while True:
            with self._changed:
                if self._pending or not (self._spool.empty or self._stopping.is_set()):
                    return True
                if self._stopping.is_set():
                    return False
                left_s = self._upkeep_s - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
            try:
                self._upkeep_s = time.monotonic() + self._upkeep.step()
            except Exception as error:  # (nothing of it may end the writing)
                log.warning(
                    "the database could not be kept small; trying again",
                    reason=reason_of(error),
                    exc_info=_unexpected(error),
                )
                self._upkeep_s = time.monotonic() + _UPKEEP_FAILED_S

    def _write_next(self) -> None:
        """Write the oldest: a segment from the disk, and what came meanwhile goes behind it; or a unit from memory."""
        if not self._spool.empty:
            self._to_disk()
            self._replay()
            return
        unit = self._pending[0]
        self._write(unit)
        self._done(unit)

    def _replay(self) -> None:
        first_ns = None
        for unit in self._spool.oldest():
            self._write(unit)
            first_ns = unit.at_ns if first_ns is None else min(first_ns, unit.at_ns)
        if first_ns is not None:
            self._transactions.reopen(first_ns - _UNIT_NS)
        self._spool.done()
        if self._spool.empty:
            self.waiting_state.clear()

    def _write(self, unit: Unit) -> None:
        """Write as much of a unit as the database takes.

        Raises:
            SQLAlchemyError: it takes nothing at present.
        """
        while True:
            try:
                self._transactions.write(unit)
            except Exception as error:  # (whatever a hostile ring put there)
                if _may_pass(error):
                    raise
                self.failures += 1
                if not self._shed(unit, error):
                    return
            else:
                self.written += 1
                return

    def _shed(self, unit: Unit, error: Exception) -> bool:
        """Neither database nor disk will ever take this unit as it is; False where nothing is left to give up."""
        dropped = unit.shed()
        self._dropped += dropped
        log.error("the database refuses a batch", reason=reason_of(error), measurements_dropped=dropped, exc_info=error)
        return dropped > 0

    def _to_disk(self) -> None:
        """Put what waits in memory on disk; it stays in memory where that fails."""
        while self._pending:
            unit = self._pending[0]
            try:
                self._put(self._spool, unit)
            except OSError as error:
                if not self._disk_fails:
                    log.error("batches cannot be put on disk either; they wait in memory", reason=str(error))  # noqa: TRY400
                self._disk_fails = True
                return
            self._disk_fails = False
            self._done(unit)

    def _leave_on_disk(self) -> bool:
        """Put all that waits on disk while the thread hangs or is gone; what it has in its hands is among that.

        Taken from it at once: should it come back, it finds nothing to write that is newer than what lies on disk.
        """
        with self._changed:
            waiting = list(self._pending)
            self._pending.clear()
        spool = self._spool.beside()
        try:
            for unit in waiting:
                self._put(spool, unit)
        except OSError as error:
            log.error("neither database nor disk took what was left", reason=str(error), batches=len(waiting))  # noqa: TRY400
            return False
        finally:
            spool.close()
        return True

    def _put(self, spool: Spool, unit: Unit) -> None:
        """Put as much of a unit on disk as can be.

        Raises:
            OSError: the disk takes nothing at present.
        """
        while True:
            try:
                spool.append(unit)
            except (TypeError, ValueError, OverflowError) as error:
                if not self._shed(unit, error):
                    return
            else:
                self.waiting_state.note(head_of(unit))
                return

    def _rest(self, seconds: float) -> None:
        """Leave the database alone for a while; what comes in meanwhile goes to disk."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.is_set() or self._disk_fails:
                time.sleep(min(left_s, _RETRY_FIRST_S))
                return
            with self._changed:
                if not self._pending:
                    self._changed.wait(left_s)
            self._to_disk()

    def _make_room(self) -> None:
        """Where the database may not grow, its oldest measurements go."""
        until_s = time.monotonic() + _MAKE_ROOM_S
        try:
            while self._upkeep.thin() and time.monotonic() < until_s:
                pass
        except Exception as error:  # (nothing of it may end the writing)
            log.error(  # noqa: TRY400 (one sentence, where it is the database's)
                "the database is full, and nothing in it can be given up",
                reason=reason_of(error),
                exc_info=_unexpected(error),
            )

    def _done(self, unit: Unit) -> None:
        with self._changed:
            if self._pending and self._pending[0] is unit:
                self._pending.popleft()


def _unexpected(error: Exception) -> Exception | None:
    """The error, for its traceback; None for one of the database, whose sentence says all."""
    return None if isinstance(error, SQLAlchemyError) else error


def _may_pass(error: Exception) -> bool:
    """Whether the database may take the same unit later: it was locked, full, away, or not yet migrated."""
    if isinstance(error, StatementError) and not isinstance(error, DBAPIError):
        return False  # a value that cannot be sent at all
    return isinstance(error, SQLAlchemyError) and not isinstance(
        error, (DataError, IntegrityError, InvalidRequestError)
    )
