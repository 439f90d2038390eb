"""Killed at any moment and begun anew: what was found is found once."""

import functools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cyclewatch.config.store import Store as StoreSettings
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.history import RegressionView
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.spool import Spool
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.waiting import WaitingHistory
from cyclewatch.daemon.store.writer import StoreWriter
from simulated import server
from watched import SECOND, Replay, Watched, ring_identity

SLOWER = {30: 1.2}
WINDOWS = 44
SEEDS = (1, 2, 3)


class DatabaseAway(Watched):
    """A daemon whose database takes nothing until `comes_back`: what it finds waits on disk, over kills, too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "spool"
        self._spool = Spool(self._directory, 2**30)
        super().__init__(directory)

    def start(self) -> None:
        """Begin with what waits, nothing of which the database has."""
        self._spool.close()
        self._spool = Spool(self._directory, 2**30)
        transactions = Transactions(self.engine, "node")
        upkeep = Upkeep(self.engine, "node", StoreSettings(), lambda: 0, transactions.forget)
        self._of_store = StoreWriter(transactions, self._spool, 10, upkeep)
        self._of_store.remember()
        self.history = WaitingHistory(self.engine, "node", self._of_store.waiting_state)
        super().start()

    def write(self) -> None:
        while len(self.units) > self.lag:
            self._of_store._put(self._spool, self.units.pop(0))

    def comes_back(self) -> None:
        assert self.rows(models.RunRow) == []
        self._of_store.start()
        deadline = time.monotonic() + 60
        while self._of_store.waiting:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert self._of_store.stop(60)


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def key_of(watched: Watched) -> str:
    (row,) = watched.rows(models.RegressionRow)
    return str(row.key)


@functools.cache
def undisturbed(seed: int) -> tuple[RegressionView, str, int, int]:
    """What a daemon that is left alone finds: the regression, its key, and how many windows and levels it keeps."""
    with TemporaryDirectory() as directory:
        watched = Watched(Path(directory))
        Replay(watched, server(WINDOWS, seed=seed, slower=SLOWER)).run()
        (view,) = watched.history.regressions(all_directions=True)
        found = view, key_of(watched), len(watched.rows(models.WindowRow)), len(watched.rows(models.LevelRow))
        watched.close()
    return found


@pytest.mark.parametrize("case", range(9))
def test_killed_at_random_moments_it_finds_the_same_once(watched: Watched, case: int) -> None:
    """Up to four kills, the last units unwritten: neither lost nor doubled, the same key, time and size."""
    chance = random.Random(case)
    seed = SEEDS[case % len(SEEDS)]
    replay = Replay(watched, server(WINDOWS, seed=seed, slower=SLOWER))
    for at_s in sorted(chance.sample(range(1, WINDOWS * 5 + 8), chance.randint(1, 4))):
        replay.run(at_s * SECOND)
        replay.kill(chance)
    watched.lag = 0
    replay.run()
    expected, key, windows, levels = undisturbed(seed)
    (found,) = watched.history.regressions(all_directions=True)
    assert key_of(watched) == key
    assert (found.state, found.started_at_ns, found.detected_at_ns) == (
        expected.state,
        expected.started_at_ns,
        expected.detected_at_ns,
    )
    assert found.effect == pytest.approx(expected.effect)
    assert (len(watched.rows(models.WindowRow)), len(watched.rows(models.LevelRow))) == (windows, levels)


@pytest.mark.parametrize("case", range(3))
def test_killed_while_the_database_is_away_it_finds_the_same_once(tmp_path: Path, case: int) -> None:
    """It goes on by what waits on disk, and the database has all of it in the end."""
    chance = random.Random(case)
    watched = DatabaseAway(tmp_path)
    replay = Replay(watched, server(WINDOWS, seed=SEEDS[case], slower=SLOWER))
    for at_s in sorted(chance.sample(range(1, WINDOWS * 5 + 8), 3)):
        replay.run(at_s * SECOND)
        replay.kill(chance)
    watched.lag = 0
    replay.run()
    watched.comes_back()
    expected, key, windows, levels = undisturbed(SEEDS[case])
    (found,) = watched.history.regressions(all_directions=True)
    assert key_of(watched) == key
    assert (found.state, found.started_at_ns) == (expected.state, expected.started_at_ns)
    assert found.effect == pytest.approx(expected.effect)
    assert (len(watched.rows(models.WindowRow)), len(watched.rows(models.LevelRow))) == (windows, levels)
    watched.close()


@pytest.mark.parametrize("at_s", range(165, 195, 3))
def test_killed_around_the_detection_it_finds_it_once(watched: Watched, at_s: int) -> None:
    """The seconds in which the regression is found, submitted and written."""
    chance = random.Random(at_s)
    replay = Replay(watched, server(WINDOWS, seed=1, slower=SLOWER))
    watched.lag = at_s % 3
    replay.run(at_s * SECOND)
    replay.kill(chance)
    watched.lag = 0
    replay.run()
    (found,) = watched.history.regressions(all_directions=True)
    assert key_of(watched) == undisturbed(1)[1]
    assert found.split
    assert found.causes


def test_a_clean_stop_and_start_finds_the_same_once(watched: Watched) -> None:
    """`systemctl restart` every minute."""
    replay = Replay(watched, server(WINDOWS, seed=2, slower=SLOWER))
    chance = random.Random(0)
    for at_s in range(60, WINDOWS * 5, 60):
        replay.run(at_s * SECOND)
        watched.stop(replay.at_ns)
        replay.kill(chance)
        watched.lag = 0
    replay.run()
    assert len(watched.history.regressions(all_directions=True)) == 1
    assert key_of(watched) == undisturbed(2)[1]
    assert len(watched.rows(models.WindowRow)) == undisturbed(2)[2]


def test_an_open_regression_is_still_known_and_ends_after_a_restart(watched: Watched) -> None:
    """The same one, with its causes."""
    replay = Replay(watched, server(80, seed=1, slower={34: 1.2, 58: 1.0}))
    replay.run(270 * SECOND)
    (before,) = watched.history.regressions()
    assert before.state == "open"
    replay.kill(random.Random(1))
    watched.lag = 0
    replay.run()
    (after,) = watched.history.regressions(all_directions=True)
    assert (after.id, after.state, after.started_at_ns) == (before.id, "resolved", before.started_at_ns)
    assert after.detected_at_ns == before.detected_at_ns
    assert after.ended_at_ns is not None
    # Measured again while it lasted, so that the figures behind a cause may differ, but not the cause.
    assert [cause["subject"] for cause in after.causes] == [cause["subject"] for cause in before.causes]


def test_a_daemon_that_was_away_for_minutes_finds_what_began_meanwhile(watched: Watched) -> None:
    """The ring remembers for it."""
    replay = Replay(watched, server(WINDOWS, seed=3, slower=SLOWER))
    replay.run(150 * SECOND)
    watched.stop(replay.at_ns)
    replay.kill(random.Random(3))
    watched.lag = 0
    replay.at_ns = replay.end_ns + 10 * SECOND
    replay.look()
    replay.run()
    assert len(watched.history.regressions(all_directions=True)) == 1
    assert key_of(watched) == undisturbed(3)[1]


@pytest.mark.parametrize("at_s", [120, 128, 133, 149])
def test_a_server_that_restarts_with_the_same_settings_keeps_its_baseline(watched: Watched, at_s: int) -> None:
    """At any time between two checkpoints: a change event, no regression, and no second baseline."""
    windows = list(server(WINDOWS, seed=2))
    replay = Replay(watched, windows)
    replay.run(at_s * SECOND)
    again = Replay(
        watched, windows, ring_identity("1-200-9", pid=200, parent_start_ticks=9, wall_ns=replay.ring.wall_ns + 1)
    )
    again.at_ns = replay.at_ns
    again.next_sequence = replay.next_sequence
    again.run()
    watched.stop(again.at_ns)
    assert watched.history.regressions(all_directions=True) == []
    assert [event["kind"] for event in watched.history.change_events()] == ["restart"]
    assert all(phase.baseline_progress == 1.0 for phase in watched.metrics.state.phases.values())
    assert len(watched.rows(models.DetectorStateRow)) == 1
