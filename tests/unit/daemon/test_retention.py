"""What is kept, how finely and how long: on both databases."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, create_engine, event, func, select
from sqlalchemy.exc import OperationalError

from cyclewatch.config.store import Store
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.rollup import HOUR_NS, MINUTE_NS, roll_up
from cyclewatch.daemon.store.stretches import Stretch, cycles_in
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredLevel, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import merge, quantiles
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.watching.tracking import State
from cyclewatch.detectors.windows import CellWindow, cells_of
from postgres_server import PostgresServer
from simulated import cycles
from units import REGRESSION, RUN, SECOND, stored, unit

DAY_NS = 24 * HOUR_NS
START_NS = 1_790_000_000 * SECOND // HOUR_NS * HOUR_NS
LENGTH_NS = 5 * SECOND


@pytest.fixture(name="engine")
def _engine(address: str) -> Iterator[Engine]:
    engine = open_database(address, create=True)
    yield engine
    engine.dispose()


class Kept:
    """A store, its upkeep, and a clock."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self.engine = engine
        self.transactions = Transactions(engine, "node")
        self.now_ns = START_NS
        self.upkeep = Upkeep(engine, "node", Store(**settings), lambda: self.now_ns, self.transactions.forget)

    def keep(self, steps: int = 100_000) -> None:
        while steps and self.upkeep.step() < 60:
            steps -= 1

    def counts(self, *models_: type[models.Base]) -> list[int]:
        with self.engine.connect() as connection:
            return [connection.execute(select(func.count()).select_from(model)).scalar_one() for model in models_]

    def lengths(self) -> dict[int, int]:
        row = models.WindowRow
        with self.engine.connect() as connection:
            query = select(row.length_ns, func.count()).group_by(row.length_ns)
            return {length: count for length, count in connection.execute(query)}  # noqa: C416 (rows are not tuples)


def cell(number: int) -> CellWindow:
    """One window's cycles of a load, each another."""
    generator = np.random.default_rng(number)
    made = cycles(int(generator.integers(5, 60)), kv_tokens=int(generator.integers(100, 9000)), batch_size=8)
    made["cycle_ns"] = generator.lognormal(np.log(5e6), 0.3, len(made)).astype(np.uint64)
    (one,) = cells_of(Phase.DECODE, made)
    return replace(one, on_cpu_ratio=0.1 * (number % 5) if number % 3 else float("nan"))


def measured(number: int, at_ns: int) -> Unit:
    """What is measured in one window that begins at `at_ns`."""
    level = Level(at_ns, 0.01 * number, 0.002, 50.0, 0.1, 10 + number, 60 + number, (0.5, 0.25))
    return Unit(
        at_ns,
        runs=[RUN],
        windows=[StoredWindow(RUN.key, "tp0", at_ns, LENGTH_NS, cell(number))],
        levels=[StoredLevel(RUN.key, "tp0", "decode", level, suspected=number == 3)],
        samples=[StoredSample("server", "host.x", (("rank", "tp0"),), at_ns + 1, float(number))],
    )


def rows(engine: Engine, model: type[models.Base], order: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(model.__table__).order_by(order)))


@pytest.mark.parametrize("offset_ns", [0, 1_234_567_890])
def test_a_minute_is_what_its_windows_were(engine: Engine, offset_ns: int) -> None:
    """Counted once more from what was stored; also where a window begins with the minute itself."""
    transactions = Transactions(engine, "node")
    cells = {START_NS + offset_ns + number * LENGTH_NS: cell(number) for number in range(24)}
    for number, at_ns in enumerate(cells):
        transactions.write(measured(number, at_ns))
    with engine.begin() as connection:
        roll_up(connection, START_NS, START_NS + 2 * MINUTE_NS + MINUTE_NS, MINUTE_NS)
    found = rows(engine, models.WindowRow, "start_ns")
    minutes = sorted({at_ns - at_ns % MINUTE_NS for at_ns in cells})
    assert [row.start_ns for row in found] == minutes
    for row in found:
        of = [one for at_ns, one in cells.items() if row.start_ns <= at_ns < row.start_ns + MINUTE_NS]
        counts = np.array([one.count for one in of])
        assert row.length_ns == MINUTE_NS
        assert row._mapping["count"] == counts.sum()
        assert row.mean_ns == pytest.approx(np.average([one.mean_ns for one in of], weights=counts))
        assert row.kv_tokens == pytest.approx(np.average([one.kv_tokens for one in of], weights=counts))
        assert row.max_ns == max(one.max_ns for one in of)
        whole = merge(one.sketch for one in of if one.sketch)
        assert row.sketch == whole
        assert (row.p50_ns, row.p90_ns, row.p99_ns) == quantiles(whole, (0.5, 0.9, 0.99))
        times = np.array([one.count * sum(one.stages_ns) for one in of])
        ratios = np.array([one.on_cpu_ratio for one in of])
        known = np.isfinite(ratios)
        assert row.on_cpu_ratio == pytest.approx(np.average(ratios[known], weights=times[known]))


def test_evidence_reads_the_same_mean_cycles_from_minutes_and_hours(engine: Engine) -> None:
    transactions = Transactions(engine, "node")
    for number in range(30):
        transactions.write(measured(number, START_NS + number * 3 * MINUTE_NS))
    stretch = Stretch(RUN.target, START_NS, START_NS + 2 * HOUR_NS, node="node")
    told = []
    for length_ns in (None, MINUTE_NS, HOUR_NS):
        with engine.begin() as connection:
            if length_ns is not None:
                roll_up(connection, START_NS, START_NS + 2 * HOUR_NS, length_ns)
            (one,) = cycles_in(connection, stretch, ["tp0"], "decode")["tp0"]
            told.append(one)
    first = told[0]
    for one in told[1:]:
        assert (one.bucket, one.count) == (first.bucket, first.count)
        assert one.stages_ns == pytest.approx(first.stages_ns)
        # Of a minute in which it was sampled now and then, how often is not kept.
        assert one.on_cpu_ratio == pytest.approx(first.on_cpu_ratio, rel=0.05)
    assert len(rows(engine, models.WindowRow, "start_ns")) == 2


def test_levels_and_readings_become_means(engine: Engine) -> None:
    """Weighted by the cycles of known load; nothing is surer than it was."""
    transactions = Transactions(engine, "node")
    for number in range(6):
        transactions.write(measured(number, START_NS + 7 + number * LENGTH_NS))
    for _ in range(2):  # once more changes nothing
        with engine.begin() as connection:
            roll_up(connection, START_NS, START_NS + MINUTE_NS, MINUTE_NS)
        (level,) = rows(engine, models.LevelRow, "start_ns")
        known = np.arange(10, 16)
        assert (level.start_ns, level.length_ns, level.doubt, level.suspected) == (START_NS, MINUTE_NS, None, True)
        assert level.log_ratio == pytest.approx(np.average(0.01 * np.arange(6), weights=known))
        assert (level.known, level.total) == (known.sum(), known.sum() + 6 * 50)
        assert level.standard_error == pytest.approx(0.002)
        (sample,) = rows(engine, models.SampleRow, "at_ns")
        assert (sample.at_ns, sample.value) == (START_NS, 2.5)


def test_what_grows_old_becomes_coarser_and_then_goes(engine: Engine) -> None:
    """Nothing is kept longer than its settings say, and nothing is lost before."""
    kept = Kept(engine, fine_days=1, minute_days=3, hour_days=10)
    times = [START_NS + number * 20 * SECOND for number in range(3 * 180)]  # three hours
    for number, at_ns in enumerate(times):
        kept.transactions.write(measured(number % 20, at_ns))
    kept.keep()
    assert kept.lengths() == {LENGTH_NS: 540}
    kept.now_ns = START_NS + DAY_NS + 2 * HOUR_NS
    kept.keep()
    assert kept.lengths() == {MINUTE_NS: 120, LENGTH_NS: 180}
    kept.now_ns = START_NS + 3 * DAY_NS + HOUR_NS
    kept.keep()
    assert kept.lengths() == {HOUR_NS: 1, MINUTE_NS: 120}
    kept.now_ns = START_NS + 9 * DAY_NS
    kept.keep()
    assert kept.counts(models.WindowRow, models.LevelRow, models.SampleRow) == [3, 3, 3]
    with engine.connect() as connection:
        assert connection.execute(select(func.sum(models.WindowRow.count))).scalar() == sum(
            cell(number % 20).count for number in range(540)
        )
    kept.now_ns = START_NS + 11 * DAY_NS
    kept.keep()
    assert kept.counts(models.WindowRow, models.LevelRow, models.SampleRow) == [0, 0, 0]


def test_measurements_that_come_late_are_added_up_too(engine: Engine) -> None:
    """After days in which the database was away; what has been added up already counts with its cycles."""
    kept = Kept(engine)
    kept.transactions.write(measured(1, START_NS))
    kept.now_ns = START_NS + 3 * DAY_NS
    kept.keep()
    assert kept.lengths() == {MINUTE_NS: 1}
    kept.transactions.write(measured(2, START_NS + LENGTH_NS))
    kept.keep()
    assert kept.lengths() == {MINUTE_NS: 1, LENGTH_NS: 1}
    kept.transactions.reopen(START_NS)
    kept.keep()
    (row,) = rows(engine, models.WindowRow, "start_ns")
    assert row._mapping["count"] == cell(1).count + cell(2).count


def between(engine: Engine, statement: str, do: Callable[[], None]) -> None:
    """Do something once, before the first statement that begins like this."""
    done: list[str] = []

    def look(_: object, __: object, next_statement: str, *___: object) -> None:
        if not done and next_statement.startswith(statement):
            done.append(next_statement)
            do()

    event.listen(engine, "before_cursor_execute", look)


@pytest.mark.parametrize("table", ["windows", "levels", "samples"])
def test_what_comes_while_it_is_added_up_is_not_lost(engine: Engine, table: str) -> None:
    """Out of the spool of another node, between the sums and the deletion of what they are made of."""
    kept, other = Kept(engine), create_engine(engine.url)
    if other.dialect.name == "sqlite":
        event.listen(other, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=20"))
    kept.keep()
    kept.transactions.write(measured(1, START_NS))
    kept.now_ns = START_NS + 3 * DAY_NS
    late = Transactions(other, "node")

    def write_late() -> None:
        with contextlib.suppress(OperationalError):  # nobody else may write to a file just now
            late.write(measured(2, START_NS + LENGTH_NS))

    between(engine, f"DELETE FROM {table}", write_late)
    kept.keep(1)
    if other.dialect.name == "sqlite":
        assert late.rows == 0
        late.write(measured(2, START_NS + LENGTH_NS))
    assert kept.counts(models.WindowRow, models.LevelRow, models.SampleRow) == [2, 2, 2]
    late.reopen(START_NS)
    kept.keep()
    (window,) = rows(engine, models.WindowRow, "start_ns")
    (level,) = rows(engine, models.LevelRow, "start_ns")
    (sample,) = rows(engine, models.SampleRow, "at_ns")
    assert window._mapping["count"] == cell(1).count + cell(2).count
    assert (level.known, level.total) == (23, 123)
    assert sample.value == 1.5
    other.dispose()


def test_what_is_altered_while_it_is_added_up_is_added_up_later(postgres: PostgresServer) -> None:
    """PostgreSQL ends the transaction with an error, as of any database that does not do something now."""
    engine = open_database(postgres.url(postgres.database("ready")), create=True)
    kept, other = Kept(engine), create_engine(engine.url)
    kept.transactions.write(measured(1, START_NS))
    kept.now_ns = START_NS + 3 * DAY_NS
    between(engine, "DELETE FROM windows", lambda: Transactions(other, "node").write(measured(1, START_NS)))
    with pytest.raises(OperationalError, match="could not serialize access"):
        kept.upkeep.step()
    assert kept.lengths() == {LENGTH_NS: 1}
    kept.keep()
    assert kept.lengths() == {MINUTE_NS: 1}
    other.dispose()
    engine.dispose()


def test_what_was_found_stays_longer(engine: Engine) -> None:
    """Except what is open: that is not over, however old. Of what goes, nothing is left behind."""
    kept = Kept(engine, finding_days=1000)
    ended = replace(REGRESSION, key="ended", state=State.RESOLVED, ended_at_ns=200 * SECOND)
    kept.transactions.write(unit(200, regressions=[stored(REGRESSION), stored(ended)]))
    found = (models.RegressionRow, models.ChangeEventRow, models.ProfileRow, models.ProfileKernelRow)
    kept.now_ns = 900 * DAY_NS
    kept.keep()
    assert kept.counts(*found) == [2, 1, 1, 1]
    assert kept.counts(models.WindowRow, models.SampleRow, models.SeriesRow, models.DetectorStateRow) == [0, 0, 0, 0]
    kept.now_ns = 1001 * DAY_NS
    kept.keep()
    assert kept.counts(*found) == [1, 0, 0, 0]
    assert kept.counts(models.RunRow, models.RingRow) == [1, 0]
    kept.transactions.write(unit(1001 * 86_400))
    assert kept.counts(models.SeriesRow, models.SampleRow) == [1, 1]


def test_other_nodes_keep_their_runs_and_series(engine: Engine) -> None:
    """Each daemon forgets its own numbers of them; it cannot make others forget theirs."""
    kept = Kept(engine)
    other = Transactions(engine, "another")
    other.write(Unit(0, runs=[replace(RUN, key="k", node="another")], samples=unit().samples))
    kept.now_ns = 1000 * DAY_NS
    kept.keep()
    assert kept.counts(models.RunRow, models.SeriesRow, models.SampleRow) == [1, 1, 0]
