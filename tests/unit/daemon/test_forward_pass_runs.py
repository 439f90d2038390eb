"""Servers without a ring whose forward passes are watched: whose they are, and when they are another run's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cyclewatch.collectors.records import ServerIdentity
from cyclewatch.config.settings import Windows
from cyclewatch.daemon.store import models
from simulated import cycles, server
from watched import SECOND, WALL_NS, Replay, Watched, batch, ring_identity

IDENTITY = ServerIdentity("server", "http://x", "0.5.23", "tiny", {"page_size": 1})
PASSES = ring_identity("forward-server-dp0", tp_rank=None, dp_rank=0, device_only=True)


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def known(watched: Watched, at_ns: int = 0, identity: ServerIdentity = IDENTITY) -> None:
    """The server has said who it is, and the wait for a ring is over."""
    watched.take(identity, at_ns)
    watched.turn(at_ns + 16 * SECOND)


def test_passes_are_watched_once_the_server_is_known(watched: Watched) -> None:
    """Before that they are nobody's."""
    watched.take(batch(cycles(20), PASSES), SECOND)
    assert watched.pipeline._rings == {}
    known(watched, SECOND)
    watched.take(batch(cycles(20), PASSES), 17 * SECOND)
    watched.stop(30 * SECOND)
    (run,) = watched.history.runs()
    (window,) = watched.rows(models.WindowRow)
    assert (run.version, run.model, window.rank, window.count) == ("0.5.23", "tiny", "dp0", 20)


def test_a_slowdown_is_found_in_forward_passes(watched: Watched) -> None:
    """As in cycles of a ring, but of the device."""
    known(watched)
    Replay(watched, server(60, seed=2, slower={34: 1.2}), PASSES).run()
    (found,) = watched.history.regressions()
    assert (found.rank, found.phase) == ("dp0", "decode")
    assert found.effect == pytest.approx(0.2, rel=0.25)


def test_another_configuration_is_another_run(watched: Watched) -> None:
    """What is watched of the one before ends, whether or not its publisher was seen to end."""
    known(watched)
    watched.take(batch(cycles(20, first_end_ns=17 * SECOND), PASSES), 17 * SECOND)
    known(watched, 20 * SECOND, replace(IDENTITY, arguments={"page_size": 16}, restarted=True))
    assert watched.pipeline._rings == {}
    watched.take(batch(cycles(20, first_end_ns=40 * SECOND), PASSES), 40 * SECOND)
    watched.stop(60 * SECOND)
    before, after = watched.history.runs()
    assert before.fingerprint != after.fingerprint
    assert {window.run_id for window in watched.rows(models.WindowRow)} == {1, 2}
    kinds = [(event.kind, event.subject) for event in watched.rows(models.ChangeEventRow)]
    assert kinds == [("restart", "server"), ("argument", "page_size")]


def test_a_publisher_that_began_anew_waits_for_what_the_server_says(watched: Watched) -> None:
    """Its passes may be of another configuration."""
    known(watched)
    watched.take(batch(cycles(20, first_end_ns=17 * SECOND), PASSES), 17 * SECOND)
    watched.turn(30 * SECOND)
    watched.take(batch(cycles(0), PASSES, alive=False), 31 * SECOND)
    watched.turn(31 * SECOND)
    watched.take(batch(cycles(20, first_end_ns=32 * SECOND), PASSES), 32 * SECOND)
    assert watched.pipeline._rings == {}
    known(watched, 33 * SECOND)
    watched.take(batch(cycles(20, first_end_ns=50 * SECOND), PASSES), 50 * SECOND)
    assert len(watched.pipeline._rings) == 1


def test_a_ring_takes_the_place_of_forward_passes(watched: Watched) -> None:
    """And says of the server what it was asked before."""
    known(watched)
    watched.take(batch(cycles(20, first_end_ns=17 * SECOND), PASSES), 17 * SECOND)
    watched.take(batch(cycles(20, first_end_ns=18 * SECOND), ring_identity()), 18 * SECOND)
    assert list(watched.pipeline._rings) == ["1-100-7"]


def test_a_restart_of_the_daemon_goes_on_with_the_same_baseline(watched: Watched) -> None:
    """Same server, same run, and no window twice."""
    known(watched)
    replay = Replay(watched, server(40, seed=3), PASSES)
    replay.run(100 * SECOND)
    watched.stop(replay.at_ns)
    watched.start()
    known(watched, replay.at_ns)
    replay.run()
    assert len(watched.history.runs()) == 1
    assert watched.history.runs()[0].started_at_ns == WALL_NS
    starts = [window.start_ns for window in watched.rows(models.WindowRow)]
    assert len(starts) == len(set(starts))
    (phase,) = watched.metrics.state.phases.values()
    assert phase.baseline_progress == 1.0


def test_after_a_restart_of_the_machine_passes_are_watched_at_once(watched: Watched) -> None:
    """Windows are counted from its start; the publisher has the name that it had before."""
    known(watched, 10_000 * SECOND)
    watched.take(batch(cycles(20, first_end_ns=10_020 * SECOND), PASSES), 10_020 * SECOND)
    watched.stop(10_030 * SECOND)
    assert len(watched.rows(models.WindowRow)) == 1
    watched.jitter_ns = 20_000 * SECOND
    watched.start()
    known(watched, 100 * SECOND)
    passes = replace(PASSES, monotonic_ns=120 * SECOND, wall_ns=watched.now(120 * SECOND).wall_ns)
    watched.take(batch(cycles(20, first_end_ns=120 * SECOND), passes), 120 * SECOND)
    watched.stop(130 * SECOND)
    assert len(watched.rows(models.WindowRow)) == 2


def test_windows_of_another_length_are_closed_at_once(watched: Watched) -> None:
    """Longer ones have smaller numbers."""
    known(watched, 1000 * SECOND)
    watched.take(batch(cycles(20, first_end_ns=1020 * SECOND), PASSES), 1020 * SECOND)
    watched.stop(1030 * SECOND)
    watched.settings = watched.settings.model_copy(update={"windows": Windows(length_s=20)})
    watched.start()
    known(watched, 1040 * SECOND)
    watched.take(batch(cycles(20, first_end_ns=1060 * SECOND), PASSES), 1060 * SECOND)
    watched.stop(1090 * SECOND)
    assert [row.length_ns // SECOND for row in watched.rows(models.WindowRow)] == [5, 20]
