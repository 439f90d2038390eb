"""A daemon begins before the database has what waits on disk: it is told how things are by that."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from cyclewatch.config.store import Store as StoreSettings
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import RingPosition, StoredFact, Unit
from cyclewatch.daemon.store.waiting import WaitingHistory
from cyclewatch.daemon.store.writer import StoreWriter
from units import RUN, SECOND, unit

KEY = "server|tp0|decode|f00d"
LATER = replace(RUN, started_at_ns=99, last_seen_ns=500, environment={"driver": "580.2"})
NEW = replace(RUN, key="node|server|boot|9-9-9", started_at_ns=700)


class Daemon:
    """The store of one start of a daemon, whose writer need not run."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        transactions = Transactions(engine, "node")
        self.spool = Spool(directory, 2**24)
        upkeep = Upkeep(engine, "node", StoreSettings(), lambda: 0, transactions.forget)
        self.writer = StoreWriter(transactions, self.spool, 10, upkeep)
        self.writer.remember()
        self.history = WaitingHistory(engine, "node", self.writer.waiting_state)

    def replay(self) -> None:
        """Let the database have all of it."""
        self.writer.start()
        deadline = time.monotonic() + 30
        while self.writer.waiting:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert self.writer.stop(30)

    def put(self, *units: Unit) -> None:
        """Leave units on disk, as while the database is away."""
        for one in units:
            self.writer._put(self.spool, one)
        self.spool.close()


@pytest.fixture(name="engine")
def _engine(tmp_path: Path) -> Iterator[Engine]:
    """A database that has what was before the outage."""
    engine = open_database(f"sqlite:///{tmp_path / 'a.db'}", create=True)
    Transactions(engine, "node").write(unit(1, facts=[StoredFact("node", "driver", "580.1", 1), fact("kernel", "6.1")]))
    yield engine
    engine.dispose()


def fact(subject: str, value: str) -> StoredFact:
    return StoredFact("node", subject, value, 7)


def outage() -> list[Unit]:
    """What came meanwhile: the newest of everything is not in one unit."""
    return [
        unit(2, runs=[LATER, NEW], facts=[fact("driver", "580.2")], status={"profiling": {"on": False}}),
        unit(3, runs=[replace(LATER, environment={})], states={KEY: {"number": 3}}, facts=[], rings=[]),
        unit(4, runs=[], states={"another": {"number": 4}}, facts=[], rings=[RingPosition("k", 1, 1)], status={}),
    ]


def assert_told(history: StoreHistory) -> None:
    runs = history.runs()
    assert runs == [replace(LATER, started_at_ns=RUN.started_at_ns), NEW]
    assert history.facts() == [fact("driver", "580.2"), fact("kernel", "6.1")]
    assert history.detector_state(KEY) == {"number": 3}
    assert history.detector_state("another") == {"number": 4}
    assert history.detector_state("nobody's") is None
    assert history.ring_positions() == {"1-2-3": RingPosition("1-2-3", 9, 3), "k": RingPosition("k", 1, 1)}
    status = history.status()
    assert status["profiling"] == (2 * SECOND, {"on": False})
    assert status["targets"] == (3 * SECOND, {"server": {"number": 3}})


def test_a_daemon_that_starts_is_told_what_the_database_will_say(engine: Engine, tmp_path: Path) -> None:
    """Before anything is written, and by the database alone when all of it is."""
    Daemon(engine, tmp_path / "spool").put(*outage())
    daemon = Daemon(engine, tmp_path / "spool")
    assert StoreHistory(engine, "node").detector_state(KEY) == {"version": 1, "number": 1}
    assert daemon.writer.waiting == 3
    assert_told(daemon.history)
    daemon.replay()
    assert_told(StoreHistory(engine, "node"))
    assert daemon.writer.waiting_state.runs() == {}
    assert_told(daemon.history)


def test_a_state_that_waits_is_the_one_that_the_database_would_give(engine: Engine, tmp_path: Path) -> None:
    """JSON has no NaN, and texts alone for keys."""
    odd = {"buckets": {8: math.nan, 64: (1, 2.5)}, "none": None}
    Daemon(engine, tmp_path / "spool").put(unit(2, states={KEY: odd}, status={"profiling": odd}))
    daemon = Daemon(engine, tmp_path / "spool")
    waiting = daemon.history.detector_state(KEY), daemon.history.status()["profiling"]
    daemon.replay()
    history = StoreHistory(engine, "node")
    assert waiting == (history.detector_state(KEY), history.status()["profiling"])
    assert waiting[0] == {"buckets": {"8": None, "64": [1, 2.5]}, "none": None}


def test_a_server_that_starts_while_the_database_is_away_has_the_baseline_that_waits(
    engine: Engine, tmp_path: Path
) -> None:
    daemon = Daemon(engine, tmp_path / "spool")
    daemon.put(*outage())
    engine.dispose()
    (tmp_path / "a.db").rename(tmp_path / "away")
    (tmp_path / "a.db").mkdir()
    assert daemon.history.detector_state(KEY) == {"number": 3}
    with pytest.raises(OperationalError):
        daemon.history.detector_state("one that the database has")


def test_a_damaged_end_of_the_spool_hides_nothing_before_it(engine: Engine, tmp_path: Path) -> None:
    Daemon(engine, tmp_path / "spool").put(*outage())
    (segment,) = (tmp_path / "spool").iterdir()
    segment.write_bytes(segment.read_bytes()[:-5])
    daemon = Daemon(engine, tmp_path / "spool")
    assert daemon.history.detector_state(KEY) == {"number": 3}
    assert daemon.history.detector_state("another") is None
    daemon.replay()


def test_what_no_disk_takes_is_not_told(engine: Engine, tmp_path: Path) -> None:
    """It will never be in the database either."""
    daemon = Daemon(engine, tmp_path / "spool")
    daemon.put(unit(5, windows=[], levels=[], samples=[], states={KEY: {"y": object()}}))
    assert daemon.history.detector_state(KEY) == {"version": 1, "number": 1}
    assert daemon.writer.failures == 0
