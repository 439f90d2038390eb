"""What `cyclewatch compare` reads of a stretch of time, on both databases."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine

from cyclewatch.daemon.compare.stored_cycles import StoredCycles, stored_cycles
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredWindow, Unit
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import merge
from cyclewatch.detectors.windows import CellWindow, cells_of
from simulated import cycles
from units import RUN, SECOND

WINDOW_NS = 5 * SECOND
BEGAN_NS = 1_790_000_000 * SECOND
WINDOWS = 1440
SHORT_NS, LONG_NS = 1000 * SECOND, 7200 * SECOND


def cell(number: int) -> CellWindow:
    """Each of another length; the last one of schema 0001, without a sketch."""
    (found,) = cells_of(Phase.DECODE, cycles(50, np.full(50, 5_000_000 + 1000 * (number % 100))))
    return found if number < WINDOWS - 1 else replace(found, sketch=None)


@pytest.fixture(name="engine")
def _engine(address: str) -> Iterator[Engine]:
    """Two hours of windows."""
    engine = open_database(address, create=True)
    windows = [
        StoredWindow(RUN.key, "tp0", BEGAN_NS + number * WINDOW_NS, WINDOW_NS, cell(number))
        for number in range(WINDOWS)
    ]
    Transactions(engine, "node").write(Unit(0, runs=[RUN], windows=windows))
    yield engine
    engine.dispose()


def of(engine: Engine, length_ns: int, rank: str = "tp0") -> StoredCycles:
    with engine.connect() as connection:
        return stored_cycles(connection, Stretch("server", BEGAN_NS, BEGAN_NS + length_ns), rank)


def test_a_short_stretch_comes_window_by_window(engine: Engine) -> None:
    found = of(engine, SHORT_NS)
    assert str(found) == "200 of 5 s"
    assert not found.is_coarse
    assert [one.start_ns for one in found.cells["decode"]] == [BEGAN_NS + number * WINDOW_NS for number in range(200)]
    for number, one in enumerate(found.cells["decode"]):
        expected = cell(number)
        assert (one.bucket, one.count, one.sketch) == (expected.bucket, expected.count, expected.sketch)
        assert one.mean_ns == pytest.approx(expected.mean_ns)
        assert one.stages_ns.tolist() == pytest.approx(expected.stages_ns)


def test_a_long_stretch_is_added_up_while_it_is_read(engine: Engine) -> None:
    """Nothing is lost, and a step has the cycles of its windows."""
    found, fine = of(engine, LONG_NS), of(engine, SHORT_NS).cells["decode"]
    assert str(found) == "1,440 of 5 s, in steps of 7 s"
    steps = found.cells["decode"]
    assert 900 < len(steps) <= 1000
    assert sum(one.count for one in steps) == WINDOWS * 50
    together = [one for one in fine if one.start_ns < steps[1].start_ns]
    assert len(together) == 2
    assert steps[0].count == 100
    assert steps[0].sketch == merge(one.sketch for one in together if one.sketch)
    assert steps[0].mean_ns == pytest.approx(np.mean([one.mean_ns for one in together]))
    assert steps[0].stages_ns == pytest.approx(np.mean([one.stages_ns for one in together], axis=0))
    assert [one.start_ns for one in steps if one.sketch is None] == [steps[-1].start_ns]


def test_of_another_rank_there_is_nothing(engine: Engine) -> None:
    found = of(engine, LONG_NS, "tp1")
    assert (dict(found.cells), dict(found.windows)) == ({}, {})
