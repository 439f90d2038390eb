"""An SQLite file that grows too large, or cannot grow: the oldest measurements go before anything fails."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from cyclewatch.config.store import Store
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.rollup import HOUR_NS, MINUTE_NS
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.sqlite import give_back, used_bytes
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredSample, Unit
from cyclewatch.daemon.store.writer import StoreWriter
from units import SECOND

START_NS = 1_790_000_000 * SECOND // HOUR_NS * HOUR_NS


@pytest.fixture(name="engine")
def _engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'a.db'}", create=True)
    yield engine
    engine.dispose()


def readings(at_ns: int) -> Unit:
    """An hour of a reading a second."""
    return Unit(
        at_ns, samples=[StoredSample("node", "x", (), at_ns + second * SECOND, second) for second in range(3600)]
    )


def used(engine: Engine) -> int:
    with engine.connect() as connection:
        return used_bytes(connection)


def times(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(select(models.SampleRow.at_ns).order_by(models.SampleRow.at_ns)).scalars())


def limited(engine: Engine, now_ns: int, max_bytes: int) -> Upkeep:
    """An upkeep with a budget below what may be configured."""
    settings = Store().model_copy(update={"max_bytes": max_bytes})
    return Upkeep(engine, "node", settings, lambda: now_ns, lambda: None)


def test_the_oldest_become_coarser_until_it_fits(engine: Engine) -> None:
    """No more of them than needed, and none of the last hours, which detection and evidence look at."""
    transactions = Transactions(engine, "node")
    for hour in range(24):
        transactions.write(readings(START_NS + hour * HOUR_NS))
    now_ns, budget = START_NS + 24 * HOUR_NS, int(used(engine) * 0.8)
    upkeep = limited(engine, now_ns, budget)
    upkeep.catch_up()
    assert budget * 0.9 < used(engine) <= budget
    kept = times(engine)
    oldest_fine_ns = next(at_ns for at_ns in kept if at_ns % MINUTE_NS)
    assert START_NS + HOUR_NS < oldest_fine_ns < now_ns - 6 * HOUR_NS
    assert sum(at_ns > oldest_fine_ns for at_ns in kept) == (now_ns - oldest_fine_ns) // SECOND - 1
    assert kept[0] == START_NS
    assert limited(engine, now_ns, 2**50).step() > 0


def test_a_file_that_is_mostly_free_becomes_smaller(engine: Engine, tmp_path: Path) -> None:
    for hour in range(12):
        Transactions(engine, "node").write(readings(START_NS + hour * HOUR_NS))
    with engine.connect() as connection:
        before = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    limited(engine, START_NS + 800 * 24 * HOUR_NS, 2**50).catch_up()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA page_count").scalar_one() < before / 2
    assert times(engine) == []


def test_a_file_that_is_locked_does_not_become_smaller_and_says_so(engine: Engine) -> None:
    """With an error of SQLAlchemy, as everything that a database refuses."""
    other = create_engine(engine.url)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=20"))
    engine.dispose()
    with other.connect() as writing, engine.connect() as connection:
        writing.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="database is locked"):
            give_back(connection)
    other.dispose()


def test_where_nothing_old_is_left_it_says_so_once(engine: Engine) -> None:
    """And keeps what is young."""
    Transactions(engine, "node").write(readings(START_NS))
    upkeep = limited(engine, START_NS + HOUR_NS, 1)
    with capture_logs() as logs:
        for _ in range(5):
            upkeep.step()
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert len(times(engine)) == 3600


def test_a_file_that_cannot_grow_makes_room_and_takes_what_waits(engine: Engine, tmp_path: Path) -> None:
    """A full disk, here as a limit of the file's pages: nothing that comes is lost, the oldest become coarser."""
    transactions = Transactions(engine, "node")
    for hour in range(12):
        transactions.write(readings(START_NS + hour * HOUR_NS))
    pages = used(engine) // 4096
    engine.dispose()
    event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA max_page_count={pages}"))
    now_ns = START_NS + 12 * HOUR_NS
    upkeep = Upkeep(engine, "node", Store(), lambda: now_ns, lambda: None)
    writer = StoreWriter(transactions, Spool(tmp_path / "spool", 2**24), 50, upkeep)
    writer.start()
    for hour in range(12, 14):
        writer.submit(readings(START_NS + hour * HOUR_NS))
    deadline = time.monotonic() + 60
    while writer.pending or writer.spooled_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert writer.stop(30)
    assert writer.failures > 0
    assert writer.dropped == 0
    kept = times(engine)
    assert sum(at_ns >= now_ns for at_ns in kept) == 2 * 3600
    assert kept[0] == START_NS
