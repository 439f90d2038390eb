"""A back-test over stored levels, with the settings of the daemon, comes to what the daemon came to."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, update

from cyclewatch.collectors.records import Records
from cyclewatch.config.settings import Detection, Windows
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.levels import StoredLevels
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredLevel, Unit
from cyclewatch.daemon.watch import SeriesKey, SeriesWatch
from cyclewatch.detectors.watching.backtest import replay
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.level_watch import Level
from cyclewatch.detectors.watching.shift_watch import Kind
from cyclewatch.detectors.watching.tracking import Regression
from simulated import WINDOW_NS, cycles, server
from units import RUN, SECOND
from watched import QUICK, Replay, Watched

KEY = SeriesKey(RUN.target, "tp0", "decode", RUN.fingerprint, RUN.node)
REASON = "explained by the load after all"


@pytest.fixture(name="engine")
def _engine(address: str) -> Iterator[Engine]:
    engine = open_database(address, create=True)
    yield engine
    engine.dispose()


def watch_and_store(
    engine: Engine, windows: Iterable[tuple[int, Records]], parameters: Parameters
) -> tuple[list[Regression], list[str]]:
    """Regressions as they stood last, and the reasons why there were no others; all levels go to the store."""
    watch = SeriesWatch(KEY, parameters)
    levels, reasons, found = list[Level](), list[str](), dict[str, Regression]()
    for number, records in windows:
        verdict, changed = watch.update(number * parameters.window_ns, records, ())
        levels += [*verdict.baseline, *([verdict.level] if verdict.level else [])]
        reasons.append(verdict.reason)
        found |= {one.regression.key: one.regression for one in changed}
    stored = [StoredLevel(RUN.key, KEY.rank, KEY.phase, level, suspected=False) for level in levels]
    Transactions(engine, "node").write(Unit(0, runs=[RUN], levels=stored))
    return list(found.values()), reasons


def stored_levels(engine: Engine, parameters: Parameters) -> list[Level]:
    levels = StoredLevels(engine)
    (series,) = levels.series()
    assert series.key.rank == KEY.rank
    return list(levels.levels(series, parameters.min_cycles))


def facts(regressions: Iterable[Regression]) -> list[tuple[Any, ...]]:
    """All but numbers, which may differ in their last digits with another order of sums."""
    return [
        (one.key, one.kind, one.state, one.direction, one.started_at_ns, one.detected_at_ns, one.ended_at_ns)
        for one in regressions
    ]


def sizes(regressions: Iterable[Regression]) -> list[float]:
    return [size for one in regressions for size in (one.base, one.level, one.effect, *one.ci)]


def test_a_step_and_a_slower_tail_are_found_as_the_daemon_found_them(tmp_path: Path) -> None:
    """The same keys, times and sizes, from the levels that the pipeline stored."""
    watched = Watched(tmp_path)
    windows = [(number, with_tail(records, number >= 60)) for number, records in server(160, seed=2, slower={100: 1.2})]
    Replay(watched, windows).run()
    parameters = Parameters.of(QUICK.detection, QUICK.windows)
    levels = StoredLevels(watched.engine)
    (series,) = levels.series()
    found = replay(levels.levels(series, parameters.min_cycles), parameters, series.key.name).regressions
    rows = {row.key: row for row in watched.rows(models.RegressionRow)}
    assert {row.kind for row in rows.values()} == {Kind.LEVEL, Kind.TAIL}
    assert {one.key for one in found} == set(rows)
    for one in found:
        row = rows[one.key]
        assert (row.kind, row.state, row.direction) == (one.kind, one.state, one.direction)
        assert (row.started_at_ns, row.detected_at_ns) == (one.started_at_ns, one.detected_at_ns)
        assert (row.effect, row.ci_low, row.ci_high) == pytest.approx((one.effect, *one.ci))
    watched.close()


def with_tail(records: Records, slower: bool) -> Records:
    """Every 25th cycle takes half as long again."""
    if slower:
        records["cycle_ns"][::25] = records["cycle_ns"][::25] * 3 // 2
    return records


def test_what_the_load_explained_is_explained_again(engine: Engine) -> None:
    """Contexts grow, and cost more than in the baseline; without doubts this would be a slowdown."""
    parameters = Parameters.of(Detection(reference_s=300), Windows())
    found, reasons = watch_and_store(engine, growing_contexts(), parameters)
    assert found == []
    assert REASON in reasons
    levels = stored_levels(engine, parameters)
    assert replay(levels, parameters, KEY.name).regressions == ()
    assert len(replay([replace(level, doubt=()) for level in levels], parameters, KEY.name).regressions) == 1


def growing_contexts() -> Iterator[tuple[int, Records]]:
    """From window 120 on requests have 1,400 cached tokens in place of 1,000, which cost more than in proportion."""
    random = np.random.default_rng(1)
    for window in range(200):
        context = 1400 if window >= 120 else 1000
        kv_tokens = 8 * random.integers(context * 19 // 20, context * 21 // 20, 100)
        true_ns = 7.4e6 + 300 * kv_tokens * (1 + 0.5 * np.maximum(kv_tokens / 8000 - 1, 0))
        noise = random.normal(0, 0.01) + random.normal(0, 0.03, 100)
        times_ns = (true_ns * np.exp(noise)).astype(np.int64)
        yield window, cycles(100, times_ns, kv_tokens=kv_tokens, first_end_ns=window * WINDOW_NS + 1)


def test_a_drift_is_found_as_the_daemon_found_it(engine: Engine) -> None:
    """1.2 % a day, in windows of a minute."""
    detection = Detection(reference_s=1200, min_cycles=5)
    parameters = Parameters.of(detection, Windows(length_s=60))
    found, _ = watch_and_store(engine, drifting(days=5, a_day=0.012), parameters)
    assert {one.kind for one in found} == {Kind.DRIFT}
    again = replay(stored_levels(engine, parameters), parameters, KEY.name).regressions
    assert facts(again) == facts(found)
    assert sizes(again) == pytest.approx(sizes(found))


def drifting(days: int, a_day: float) -> Iterator[tuple[int, Records]]:
    random = np.random.default_rng(1)
    for window in range(days * 1440):
        log = random.normal(0, 0.005) + random.normal(0, 0.01, 10) + a_day * window / 1440
        yield window, cycles(10, (7.4e6 * np.exp(log)).astype(np.int64), first_end_ns=window * 60 * SECOND + 1)


def test_a_level_comes_back_as_it_was_stored(engine: Engine) -> None:
    """Doubt in single precision, with a number for each feature."""
    levels = [
        Level(1, 0.01, 0.002, 40.0, 0.1, 50, 60, (0.5, 0.25, 0.0, 0.125)),
        Level(2, 0.02, 0.002, 40.0, float("nan"), 50, 60, (1.0, 2.0, 3.0, 4.0, 5.0)),
    ]
    stored = [StoredLevel(RUN.key, "tp0", "decode", level, suspected=False) for level in levels]
    Transactions(engine, "node").write(Unit(0, runs=[RUN], levels=stored))
    first, second = stored_levels(engine, Parameters.of(Detection(), Windows()))
    assert first == replace(levels[0], doubt=(0.5, 0.25, 0.0, 0.125, 0.0))
    assert np.isnan(second.tail)
    assert second.doubt == levels[1].doubt


@pytest.mark.parametrize("damaged", [None, b"", b"\0\0\0", bytes(400)])
def test_levels_without_what_is_stored_now_are_read_too(engine: Engine, damaged: bytes | None) -> None:
    """Those of an older schema, and damaged ones, have no tail and no doubt."""
    level = StoredLevel(RUN.key, "tp0", "decode", Level(1, 0.01, 0.002, 40.0, 0.1, 50, 60, (0.5,)), suspected=False)
    Transactions(engine, "node").write(Unit(0, runs=[RUN], levels=[level]))
    with engine.begin() as connection:
        connection.execute(update(models.LevelRow).values(effective=None, tail=None, doubt=damaged))
    (read,) = stored_levels(engine, Parameters.of(Detection(), Windows()))
    assert np.isnan((read.effective, read.tail)).all()
    assert read.doubt == (0.0,) * 5
