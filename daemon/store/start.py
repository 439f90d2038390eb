"""The store as a daemon opens it: up to date, with what an earlier one left on disk, and with its upkeep."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine, update
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.lock import only_daemon
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import StoreError, open_database, reason_of, shown_address
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.waiting import WaitingHistory
from cyclewatch.daemon.store.writer import StoreWriter

_OF_A_NODE = (
    models.RunRow,
    models.FactRow,
    models.RingRow,
    models.SeriesRow,
    models.ChangeEventRow,
    models.ProfileRow,
    models.DetectorStateRow,
    models.StatusRow,
)


@dataclass(frozen=True)
class OpenStore:
    """What the daemon reads from, and writes with."""

    engine: Engine
    history: WaitingHistory
    transactions: Transactions
    writer: StoreWriter


def open_store(settings: Settings, node: str, now_ns: Callable[[], int]) -> OpenStore:
    """The store of `node`, its writer not yet started; `now_ns` is UTC.

    Raises:
        StoreError: the database cannot be opened, or what waits on disk cannot be read.
        LockError: something waits on disk, and another daemon runs with the same state directory.
    """
    engine = open_database(settings.database_url, create=True, upgrade_apart=True)
    transactions = Transactions(engine, node)
    directory = settings.state_dir / "spool"
    try:
        if engine.dialect.name == "sqlite":
            _take_over(engine, node)
        spool = Spool(directory, settings.store.spool_bytes)
        upkeep = Upkeep(engine, node, settings.store, now_ns, transactions.forget)
        writer = StoreWriter(transactions, spool, settings.store.max_pending, upkeep)
        if not spool.empty:
            with only_daemon(settings.state_dir):
                writer.remember()
    except SQLAlchemyError as error:
        engine.dispose()
        raise StoreError(f"database {shown_address(engine.url)}: {reason_of(error)}") from None
    except OSError as error:
        engine.dispose()
        raise StoreError(f"{error.filename or directory}: {error.strerror}: free the disk or mend the owner") from None
    return OpenStore(engine, WaitingHistory(engine, node, writer.waiting_state), transactions, writer)


def open_history(settings: Settings) -> StoreHistory:
    """What is stored, for a command beside the daemon: all of a file, and of a database that others share this node's.

    Raises:
        StoreError: the database cannot be opened.
    """
    engine = open_database(settings.database_url, create=False)
    return StoreHistory(engine, None if engine.dialect.name == "sqlite" else node_name(settings))


def node_name(settings: Settings) -> str:
    """The name under which this node's rows stand."""
    return settings.node or socket.gethostname()


def _take_over(engine: Engine, node: str) -> None:
    """A file belongs to one node: what it has under another name is of the same one, which was renamed since."""
    with engine.begin() as connection:
        for model in _OF_A_NODE:
            connection.execute(update(model).where(model.node != node).values(node=node))
