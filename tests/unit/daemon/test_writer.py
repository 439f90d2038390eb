import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from cyclewatch.config.store import Store as StoreSettings
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import (
    Replaced,
    RingPosition,
    StoredLevel,
    StoredSample,
    Unit,
    merged,
)
from cyclewatch.daemon.store.writer import StoreWriter
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import quantiles
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.watching.tracking import State
from cyclewatch.detectors.windows import cells_of
from simulated import cycles
from units import REGRESSION, RUN, SECOND, profile, stored, unit

NAN = float("nan")
WRITTEN = (
    models.RunRow,
    models.FactRow,
    models.RingRow,
    models.WindowRow,
    models.LevelRow,
    models.SeriesRow,
    models.SampleRow,
    models.ChangeEventRow,
    models.RegressionRow,
    models.ProfileRow,
    models.ProfileKernelRow,
    models.DetectorStateRow,
    models.StatusRow,
)
"""What a unit leaves."""


class Store:
    """A database, a writer on it, and what is in it."""

    def __init__(self, address: str, directory: Path, max_pending: int = 50) -> None:
        self.engine: Engine = open_database(address, create=True)
        self.engine.dispose()
        if self.engine.dialect.name == "sqlite":
            # The lock of another connection is waited for in the writer, not in SQLite.
            event.listen(self.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=20"))
        else:
            event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("SET lock_timeout = 20"))
        self.history = StoreHistory(self.engine, "node")
        self.transactions = Transactions(self.engine, "node")
        self.spool = Spool(directory / "spool", 2**24)
        self.upkeep = Upkeep(self.engine, "node", StoreSettings(), lambda: 0, self.transactions.forget)
        self.writer = StoreWriter(self.transactions, self.spool, max_pending, self.upkeep)

    def rows(self, model: type[models.Base]) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(model.__table__)))

    def counts(self) -> dict[str, int]:
        return {model.__tablename__: len(self.rows(model)) for model in WRITTEN}

    def failing(self, error: Callable[[], Exception], times: float) -> list[int]:
        """Let the next `times` attempts fail; gives a list with one entry an attempt."""
        real, attempts = self.transactions._write_all, list[int]()

        def write_all(connection: Any, unit: Unit) -> None:
            attempts.append(unit.at_ns // SECOND)
            if len(attempts) <= times:
                raise error()
            real(connection, unit)

        self.transactions._write_all = write_all  # type: ignore[method-assign]
        return attempts


def locked() -> Exception:
    return OperationalError("INSERT", {}, Exception("database is locked"))


@pytest.fixture(name="store")
def _store(address: str, tmp_path: Path) -> Iterator[Store]:
    store = Store(address, tmp_path)
    yield store
    store.engine.dispose()


@pytest.fixture(name="full_disk")
def _full_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose spool takes nothing."""

    def append(_: Spool, __: Unit) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "append", append)
    return store


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_its_time_and_its_rows_are_counted(store: Store) -> None:
    """A transaction that failed took time, and wrote nothing."""
    store.transactions.write(unit())
    spent_ns, rows = store.transactions.busy_ns, store.transactions.rows
    assert spent_ns > 0
    assert rows == 11
    store.failing(locked, 1)
    with pytest.raises(OperationalError):
        store.transactions.write(unit(1))
    assert store.transactions.busy_ns > spent_ns
    assert store.transactions.rows == rows


def test_what_was_written_is_what_is_read(store: Store) -> None:
    """Every question that is asked of the store."""
    store.transactions.write(unit(3))
    history = store.history
    assert history.runs() == [RUN]
    assert history.ring_positions() == {"1-2-3": RingPosition("1-2-3", 10, 3)}
    assert history.detector_state("server|tp0|decode|f00d") == {"version": 1, "number": 3}
    assert history.detector_state("another") is None
    assert history.status() == {"targets": (3 * SECOND, {"server": {"number": 3}})}
    (view,) = history.regressions()
    assert (view.effect, view.ci, view.probability) == (0.22, (0.2, 0.24), 0.9999)
    assert (view.split, view.causes) == ([{"part": "launch"}], [{"kind": "x"}])
    assert history.regression(view.id) == view
    assert history.regression(99) is None
    (event,) = history.change_events()
    assert (event["kind"], event["at_ns"]) == ("restart", 3 * SECOND)


def test_a_window_keeps_every_number(store: Store) -> None:
    (cell,) = cells_of(Phase.DECODE, cycles(50, kv_tokens=1234, batch_size=8))
    store.transactions.write(unit())
    (row,) = store.rows(models.WindowRow)
    assert (row.phase, row.rank, row.length_ns, row._mapping["count"]) == ("decode", "tp0", 5 * SECOND, 50)
    for name in (
        "bucket",
        "mean_ns",
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "max_ns",
        "batch_size",
        "new_tokens",
        "queue_length",
        "sketch",
    ):
        assert getattr(row, name) == getattr(cell, name), name
    assert row.launch_ns == 5_000_000
    assert row.on_cpu_ratio is None  # never sampled
    assert quantiles(row.sketch, (0.5,)) == pytest.approx([5_000_000], rel=0.01)


def test_a_unit_written_twice_is_there_once(store: Store) -> None:
    """After a crash the same turns are written again."""
    store.transactions.write(unit(1))
    once = store.counts()
    store.transactions.write(unit(1))
    Transactions(store.engine, "node").write(unit(1))
    assert store.counts() == once
    assert set(once.values()) == {1}


def test_a_regression_is_updated_in_place_and_keeps_its_times(store: Store) -> None:
    """Found again by a daemon that was killed, it would have another time of detection."""
    store.transactions.write(unit())
    again = replace(
        REGRESSION,
        state=State.RESOLVED,
        started_at_ns=101 * SECOND,
        detected_at_ns=199 * SECOND,
        ended_at_ns=300 * SECOND,
        effect=0.3,
    )
    store.transactions.write(unit(5, regressions=[stored(again, causes=({"kind": "y"},))]))
    (view,) = store.history.regressions()
    assert (view.started_at_ns, view.detected_at_ns) == (100 * SECOND, 140 * SECOND)
    assert (view.state, view.ended_at_ns, view.effect, view.causes) == ("resolved", 300 * SECOND, 0.3, [{"kind": "y"}])


def test_improvements_are_listed_where_asked_for(store: Store) -> None:
    faster = replace(REGRESSION, key="def", direction=Direction.FASTER, state=State.NOTED, started_at_ns=SECOND)
    store.transactions.write(unit(regressions=[stored(REGRESSION), stored(faster)]))
    assert [view.direction for view in store.history.regressions()] == ["slower"]
    assert [view.direction for view in store.history.regressions(all_directions=True)] == ["slower", "faster"]


def test_a_run_is_seen_later_and_keeps_its_start(store: Store) -> None:
    store.transactions.write(unit())
    store.transactions.write(unit(1, runs=[replace(RUN, started_at_ns=99, last_seen_ns=77)]))
    (run,) = store.history.runs()
    assert (run.started_at_ns, run.last_seen_ns) == (10, 77)


@pytest.mark.parametrize("number", [NAN, math.inf, -math.inf])
def test_what_is_no_number_is_null_or_left_out(store: Store, number: float) -> None:
    """SQLite would keep infinity, PostgreSQL NaN, and no mean would mean anything."""
    level = StoredLevel(RUN.key, "tp0", "decode", Level(1, number, number, 0, number, 0, 50), suspected=True)
    sample = StoredSample("server", "x", (), 1, number)
    store.transactions.write(unit(levels=[level], samples=[sample]))
    (row,) = store.rows(models.LevelRow)
    assert (row.log_ratio, row.standard_error, row.suspected) == (None, None, True)
    assert store.rows(models.SampleRow) == []


@pytest.mark.parametrize("number", [NAN, math.inf, -math.inf])
def test_what_is_no_number_within_json_is_null(store: Store, number: float) -> None:
    """PostgreSQL would refuse it, and with it the whole unit."""
    holding = {"a": [1, number, {"b": (number, "x")}], "c": None}
    found = stored(REGRESSION, split=(holding,), causes=(holding,))
    made = profile(totals=holding, cost=holding)
    status = {"targets": holding}
    store.transactions.write(
        unit(
            regressions=[found],
            profiles=[made],
            states={"k": holding},
            status=status,
            runs=[replace(RUN, arguments=holding)],
        )
    )
    kept = {"a": [1, None, {"b": [None, "x"]}], "c": None}
    (view,) = store.history.regressions()
    assert (view.split, view.causes) == ([kept], [kept])
    assert store.history.detector_state("k") == kept
    (row,) = store.rows(models.ProfileRow)
    assert (row.totals, row.cost) == (kept, kept)
    assert store.history.status()["targets"][1] == kept
    assert store.history.runs()[0].arguments == kept


def test_a_unit_is_stored_as_a_whole_or_not_at_all(store: Store) -> None:
    """The last part fails: nothing of the first is there, and the next attempt begins with clean ids."""
    bad = unit(status={"targets": {"x": object()}})
    with pytest.raises(Exception, match="JSON serializable"):
        store.transactions.write(bad)
    assert set(store.counts().values()) == {0}
    store.transactions.write(unit())
    assert set(store.counts().values()) == {1}


def test_the_writer_tries_again_until_the_database_takes_it_in_order(store: Store) -> None:
    """Nothing lost, nothing overtaken."""
    attempts = store.failing(locked, times=2)
    store.writer.start()
    for number in range(5):
        store.writer.submit(unit(number))
    wait_for(lambda: store.writer.written == 5)
    assert store.writer.stop(30)
    assert attempts == [0, 0, 0, 1, 2, 3, 4]
    assert (store.writer.failures, store.writer.written, store.writer.dropped) == (2, 5, 0)
    assert store.counts()["windows"] == 5
    assert store.history.detector_state("server|tp0|decode|f00d") == {"version": 1, "number": 4}


def test_a_lock_that_another_process_holds_is_waited_for(store: Store) -> None:
    """A real one, of a second connection: a backup, or a person with a shell. Meanwhile all is on disk."""
    engine = create_engine(store.engine.url)
    with engine.connect() as other:
        is_file = other.dialect.name == "sqlite"
        other.exec_driver_sql("BEGIN IMMEDIATE" if is_file else "LOCK TABLE runs")
        store.writer.start()
        store.writer.submit(unit(1))
        wait_for(lambda: store.writer.failures > 0 and store.writer.pending == 0)
        assert store.writer.spooled_bytes > 0
        assert store.writer.waiting == 1
        other.rollback()
    engine.dispose()
    wait_for(lambda: store.writer.spooled_bytes == store.writer.waiting == 0)
    assert store.writer.stop(30)
    assert store.counts()["windows"] == 1


def test_handing_over_never_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampling path must not feel the database."""
    inside, leave = threading.Event(), threading.Event()

    def hang(_: Unit) -> None:
        inside.set()
        leave.wait(5)

    monkeypatch.setattr(store.transactions, "write", hang)
    store.writer.start()
    store.writer.submit(unit(0))
    inside.wait(5)
    began = time.monotonic()
    for number in range(20):
        store.writer.submit(unit(number))
    assert time.monotonic() - began < 1
    leave.set()
    store.writer.stop(30)


def test_beyond_the_limit_the_oldest_measurements_are_given_up_and_counted(tmp_path: Path) -> None:
    """Not the regressions, not the events, not the states, not the places in the rings."""
    store = Store(f"sqlite:///{tmp_path / 'a.db'}", tmp_path, max_pending=10)
    for number in range(14):
        key = f"r{number}"
        store.writer.submit(unit(number, regressions=[stored(replace(REGRESSION, key=key))]))
    assert store.writer.dropped == 4 * 3
    store.writer.start()
    assert store.writer.stop(30)
    assert {row.start_ns // SECOND for row in store.rows(models.WindowRow)} == set(range(4, 14))
    assert {row.key for row in store.rows(models.RegressionRow)} == {f"r{number}" for number in range(14)}
    assert len(store.rows(models.ChangeEventRow)) == 14
    assert store.history.ring_positions()["1-2-3"].next_sequence == 7 + 13
    store.engine.dispose()


def test_however_long_the_database_is_away_memory_is_bounded(tmp_path: Path) -> None:
    """Units without measurements become one; what was found is all there when it comes back."""
    store = Store(f"sqlite:///{tmp_path / 'a.db'}", tmp_path, max_pending=10)
    for number in range(500):
        found = [stored(replace(REGRESSION, key=f"r{number}"))] if number % 50 == 0 else []
        store.writer.submit(unit(number, regressions=found, events=[]))
        assert store.writer.pending <= 20
    store.writer.start()
    assert store.writer.stop(30)
    assert {row.key for row in store.rows(models.RegressionRow)} == {f"r{number}" for number in range(0, 500, 50)}
    assert {row.start_ns // SECOND for row in store.rows(models.WindowRow)} == set(range(490, 500))
    assert store.history.detector_state("server|tp0|decode|f00d") == {"version": 1, "number": 499}
    store.engine.dispose()


def test_stop_writes_what_is_waiting(store: Store) -> None:
    store.writer.start()
    for number in range(30):
        store.writer.submit(unit(number))
    assert store.writer.stop(30)
    assert store.counts()["windows"] == 30


def test_what_the_database_does_not_take_in_the_end_is_there_at_the_next_start(store: Store, tmp_path: Path) -> None:
    """It lies on disk, and comes before everything else."""
    attempts = store.failing(locked, times=math.inf)
    store.writer.start()
    for number in range(3):
        store.writer.submit(unit(number))
    assert store.writer.stop(30)
    assert attempts
    assert set(store.counts().values()) == {0}
    writer = StoreWriter(Transactions(store.engine, "node"), Spool(tmp_path / "spool", 2**24), 10, store.upkeep)
    writer.start()
    writer.submit(unit(3))
    wait_for(lambda: store.counts()["windows"] == 4)
    assert writer.stop(30)
    assert writer.spooled_bytes == 0
    assert store.history.detector_state("server|tp0|decode|f00d") == {"version": 1, "number": 3}


def test_stop_waits_for_a_database_that_comes_back(full_disk: Store) -> None:
    """Where the disk takes nothing either: locked when asked to stop, free a moment later."""
    full_disk.failing(locked, times=2)
    full_disk.writer.submit(unit())
    full_disk.writer._stopping.set()
    full_disk.writer.start()
    assert full_disk.writer.stop(30)
    assert full_disk.counts()["windows"] == 1


def test_stop_says_that_not_everything_could_be_written(full_disk: Store) -> None:
    """Within its time, and without pretending."""
    full_disk.failing(locked, times=math.inf)
    full_disk.writer.start()
    full_disk.writer.submit(unit())
    began = time.monotonic()
    assert not full_disk.writer.stop(0.5)
    assert time.monotonic() - began < 2
    wait_for(lambda: not full_disk.writer._thread.is_alive())


def test_what_waits_behind_a_database_that_hangs_is_there_at_the_next_start(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what it hangs on, which it takes after all; in order."""
    inside, leave, write = threading.Event(), threading.Event(), store.transactions.write

    def hang(unit: Unit) -> None:
        inside.set()
        leave.wait(30)
        write(unit)

    monkeypatch.setattr(store.transactions, "write", hang)
    store.writer.start()
    for number in range(3):
        store.writer.submit(unit(number))
    inside.wait(30)
    assert store.writer.stop(0.05)
    leave.set()
    wait_for(lambda: not store.writer._thread.is_alive())
    assert store.counts()["windows"] == 1
    spool = Spool(tmp_path / "spool", 2**24)
    assert [one.at_ns // SECOND for one in spool.oldest()] == [0, 1, 2]
    writer = StoreWriter(Transactions(store.engine, "node"), spool, 10, store.upkeep)
    writer.start()
    wait_for(lambda: not writer.spooled_bytes)
    assert writer.stop(30)
    assert store.counts()["windows"] == 3
    assert store.history.detector_state("server|tp0|decode|f00d") == {"version": 1, "number": 2}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_thread_that_is_gone_left_is_there_at_the_next_start(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it came to grief by."""

    def end() -> None:
        raise SystemExit

    monkeypatch.setattr(store.writer, "_write_next", end)
    store.writer.start()
    for number in range(3):
        store.writer.submit(unit(number))
    wait_for(lambda: not store.writer._thread.is_alive())
    assert store.writer.stop(30)
    assert [one.at_ns // SECOND for one in Spool(tmp_path / "spool", 2**24).oldest()] == [0, 1, 2]


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), KeyError("x"), locked()])
def test_whatever_fails_in_the_upkeep_writing_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is tried again; only what the database itself says is one sentence without a traceback."""
    failed = threading.Event()

    def step() -> float:
        if failed.is_set():
            return 60
        failed.set()
        raise error

    monkeypatch.setattr("cyclewatch.daemon.store.writer._UPKEEP_FAILED_S", 0.01)
    monkeypatch.setattr(store.upkeep, "step", step)
    with capture_logs() as logs:
        store.writer.start()
        failed.wait(30)
        store.writer.submit(unit())
        assert store.writer.stop(30)
    assert store.counts()["windows"] == 1
    (entry,) = (one for one in logs if "could not be kept small" in one["event"])
    assert entry["exc_info"] is (None if isinstance(error, OperationalError) else error)


def test_a_full_database_in_which_no_room_can_be_made_does_not_end_the_writing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thin() -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    store.failing(lambda: OperationalError("INSERT", {}, full), 1)
    monkeypatch.setattr(store.upkeep, "thin", thin)
    store.writer.start()
    store.writer.submit(unit())
    wait_for(lambda: store.counts()["windows"] == 1)
    assert store.writer.stop(30)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"windows": [], "rings": [RingPosition("k", 2**64, 0)]}, id="a number too large"),
        pytest.param({"samples": [StoredSample("\ud800", "x", (), 0, 1.0)]}, id="half a character"),
        pytest.param(
            {"levels": [StoredLevel("no such run", "r", "p", Level(0, 0, 0, 1, 0, 1, 1), suspected=False)]}, id="run"
        ),
        pytest.param({"states": {"x": {"y": object()}}}, id="no JSON"),
    ],
)
def test_a_unit_that_no_database_would_take_does_not_stop_the_others(store: Store, changes: dict[str, Any]) -> None:
    """Whatever a hostile ring put there: what can be kept is, and those behind it are written."""
    store.writer.start()
    store.writer.submit(unit(1, **changes))
    store.writer.submit(unit(2, regressions=[stored(replace(REGRESSION, key="behind"))]))
    assert store.writer.stop(30)
    assert "behind" in {row.key for row in store.rows(models.RegressionRow)}
    assert store.writer.pending == 0
    assert store.writer.failures > 0


def test_what_is_open_ends_with_its_configuration(store: Store) -> None:
    """And only that: of the configuration that runs now, and of other servers, nothing ends."""
    store.transactions.write(unit())
    at_ns = 500 * SECOND
    for target, fingerprint, ended in (("other", "0ff", False), ("server", "f00d", False), ("server", "0ff", True)):
        store.transactions.write(Unit(at_ns, replaced=[Replaced(target, fingerprint, at_ns)]))
        (found,) = store.history.regressions()
        assert (found.state, found.ended_at_ns) == (("resolved", at_ns) if ended else ("open", None))


def test_what_is_open_of_a_configuration_that_came_back_stays_open(store: Store) -> None:
    """There and back while the database was away, in units that became one; what the other one has open ends."""
    other = replace(RUN, key="node|server|boot|other", fingerprint="0ff")
    found = stored(replace(REGRESSION, key="of the other"), run_key=other.key)
    there = Unit(1, runs=[RUN, other], regressions=[found], replaced=[Replaced("server", "0ff", SECOND)])
    back = Unit(2, regressions=[stored(REGRESSION)], replaced=[Replaced("server", RUN.fingerprint, 2 * SECOND)])
    store.transactions.write(merged(there, back))
    states = {row.key: row.state for row in store.rows(models.RegressionRow)}
    assert states == {REGRESSION.key: "open", "of the other": "resolved"}
