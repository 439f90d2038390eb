"""Ranges of time as a bounded number of points, on both databases: short ones of windows, long ones of hours."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine, func, select

from cyclewatch.config.store import Store
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.rollup import HOUR_NS, MINUTE_NS
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.timeline import CyclePoint, cycles_over, readings_over
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredLevel, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.windows import CellWindow, cells_of
from simulated import cycles
from units import RUN, SECOND

DAY_NS = 24 * HOUR_NS
START_NS = 1_790_000_000 * SECOND // DAY_NS * DAY_NS
STEP_NS = 20 * MINUTE_NS
DAYS = 3
(CELL,) = cells_of(Phase.DECODE, cycles(20))


def cell(number: int, bucket: int) -> CellWindow:
    """The cycles of one load in one window, each another."""
    mean_ns = 1e7 * (1 + 0.1 * math.sin(number)) * bucket
    return replace(
        CELL,
        bucket=bucket,
        count=10 + number % 7,
        mean_ns=mean_ns,
        p50_ns=0.9 * mean_ns,
        p99_ns=1.5 * mean_ns,
        max_ns=2 * mean_ns,
        sketch=b"",  # as of schema 0001: means of quantiles stay what they are
    )


def measured() -> Unit:
    """Some days of windows with two loads, with a level but for every ninth, and two readings."""
    unit = Unit(START_NS, runs=[RUN])
    for number in range(DAYS * DAY_NS // STEP_NS):
        at_ns = START_NS + number * STEP_NS
        log_ratio = math.nan if number % 9 == 0 else 0.01 * (number % 5)
        level = Level(at_ns, log_ratio, 0.002, 50.0, 0.1, 10 + number % 3, 60, ())
        unit.levels.append(StoredLevel(RUN.key, "tp0", "decode", level, suspected=False))
        unit.windows += [StoredWindow(RUN.key, "tp0", at_ns, 5 * SECOND, cell(number, bucket)) for bucket in (1, 8)]
        unit.samples += [
            StoredSample("server", "host.x", (("gpu", gpu),), at_ns, float(number + 1000 * place))
            for place, gpu in enumerate("01")
        ]
    return unit


@pytest.fixture(name="engine")
def _engine(address: str) -> Iterator[Engine]:
    """What was measured, not yet summed up."""
    engine = open_database(address, create=True)
    Transactions(engine, "node").write(measured())
    yield engine
    engine.dispose()


def keep(engine: Engine, now_ns: int, fine_days: float = 30) -> None:
    Upkeep(engine, "node", Store(fine_days=fine_days), lambda: now_ns, lambda: None).catch_up()


def drawn(engine: Engine, from_ns: int, to_ns: int, points: int, **changes: str) -> list[CyclePoint]:
    stretch = Stretch(**{"target": "server", "from_ns": from_ns, "to_ns": to_ns, **changes})  # type: ignore[arg-type]
    with engine.connect() as connection:
        return cycles_over(connection, stretch, "tp0", "decode", points)


def expected(from_ns: int, to_ns: int) -> CyclePoint:
    """One point, counted once more from what was written."""
    numbers = [number for number in range(DAYS * DAY_NS // STEP_NS) if from_ns <= START_NS + number * STEP_NS < to_ns]
    cells = [cell(number, bucket) for number in numbers for bucket in (1, 8)]
    counts = [one.count for one in cells]
    judged = [number for number in numbers if number % 9]
    return CyclePoint(
        from_ns,
        sum(counts),
        float(np.average([one.mean_ns for one in cells], weights=counts)),
        float(np.average([one.p50_ns for one in cells], weights=counts)),
        float(np.average([one.p99_ns for one in cells], weights=counts)),
        max(one.max_ns for one in cells),
        float(np.average([0.01 * (one % 5) for one in judged], weights=[10 + one % 3 for one in judged])),
    )


def assert_same(found: CyclePoint, wanted: CyclePoint, log_ratio: float = 1e-9) -> None:
    assert (found.start_ns, found.count) == (wanted.start_ns, wanted.count)
    for name in ("mean_ns", "p50_ns", "p99_ns", "max_ns"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name))
    assert found.log_ratio == pytest.approx(wanted.log_ratio, abs=log_ratio)


def test_a_short_range_is_drawn_from_its_windows(engine: Engine) -> None:
    from_ns = START_NS + DAY_NS + 7
    found = drawn(engine, from_ns, from_ns + 4 * HOUR_NS, 4)
    assert len(found) == 4
    for place, point in enumerate(found):
        assert_same(point, expected(from_ns + place * HOUR_NS, from_ns + (place + 1) * HOUR_NS))


def test_a_long_range_says_the_same_of_hours_and_of_windows(engine: Engine) -> None:
    """Also where the last hours have not been summed up yet, and where windows have become coarser since."""
    from_ns, to_ns = START_NS + HOUR_NS, START_NS + DAYS * DAY_NS
    of_windows = {points: drawn(engine, from_ns, to_ns, points) for points in (1, 10, 1000)}
    for points, found in of_windows.items():
        length_ns = -(-(to_ns - from_ns) // (points * HOUR_NS)) * HOUR_NS
        assert len(found) == -(-(to_ns - from_ns) // length_ns) <= points
        for point in found:
            assert_same(point, expected(point.start_ns, min(point.start_ns + length_ns, to_ns)))
    for fine_days in (30.0, 1.0):
        keep(engine, to_ns, fine_days)
        for points, wanted in of_windows.items():
            for one, other in zip(drawn(engine, from_ns, to_ns, points), wanted, strict=True):
                # Hours weigh a level by all cycles, windows by those of known load.
                assert_same(one, other, log_ratio=0.002)
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(models.HourRow)).scalar() == DAYS * 24 - 6


def test_only_what_lies_in_a_long_range_is_in_it(engine: Engine) -> None:
    """Begun in the midst of an hour it begins with that hour; it ends where it ends."""
    keep(engine, START_NS + DAYS * DAY_NS)
    from_ns, to_ns = START_NS + 30 * MINUTE_NS, START_NS + 60 * HOUR_NS + 30 * MINUTE_NS
    found = drawn(engine, from_ns, to_ns, 1000)
    assert found[0].start_ns == START_NS
    assert_same(found[-1], expected(START_NS + 60 * HOUR_NS, to_ns), log_ratio=0.002)


def test_of_another_server_node_or_time_there_is_nothing(engine: Engine) -> None:
    to_ns = START_NS + DAYS * DAY_NS
    for length_ns in (DAY_NS, DAYS * DAY_NS):
        assert drawn(engine, to_ns, to_ns + length_ns, 100) == []
        assert drawn(engine, to_ns - length_ns, to_ns, 100, target="another") == []
        assert drawn(engine, to_ns - length_ns, to_ns, 100, node="another") == []
        assert drawn(engine, to_ns - length_ns, to_ns, 100, node="node") != []


def test_what_came_late_is_in_its_hour(engine: Engine) -> None:
    """After days in which the database was away."""
    to_ns = START_NS + DAYS * DAY_NS
    keep(engine, to_ns)
    transactions = Transactions(engine, "node")
    late = StoredWindow(RUN.key, "tp0", START_NS + HOUR_NS + SECOND, 5 * SECOND, replace(cell(1, 8), count=5000))
    transactions.write(Unit(0, runs=[RUN], windows=[late]))
    transactions.reopen(late.start_ns)
    keep(engine, to_ns)
    assert [point.count > 5000 for point in drawn(engine, START_NS, to_ns, 1000)[:3]] == [False, True, False]


def test_hours_go_with_what_they_were_made_of(engine: Engine) -> None:
    keep(engine, START_NS + DAYS * DAY_NS)
    for _ in range(2):  # what it was of goes with the next look
        keep(engine, START_NS + (DAYS + 1000) * DAY_NS)
    with engine.connect() as connection:
        for model in (models.HourRow, models.WindowRow, models.RunRow):
            assert connection.execute(select(func.count()).select_from(model)).scalar() == 0


@pytest.mark.parametrize("length_ns", [2 * HOUR_NS, DAYS * DAY_NS])
def test_readings_are_means_by_their_labels(engine: Engine, length_ns: int) -> None:
    with engine.connect() as connection:
        found = readings_over(connection, Stretch("server", START_NS, START_NS + length_ns), "host.x", 2)
    each = length_ns // STEP_NS // 2
    assert [trace.labels for trace in found] == [{"gpu": "0"}, {"gpu": "1"}]
    for place, trace in enumerate(found):
        assert trace.at_ns.tolist() == [START_NS, START_NS + length_ns // 2]
        means = [1000 * place + (each - 1) / 2, 1000 * place + each + (each - 1) / 2]
        assert trace.values.tolist() == pytest.approx(means)
