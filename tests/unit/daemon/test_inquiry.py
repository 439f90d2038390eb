"""What is behind a regression is asked beside the turns: they go on, and nothing is lost or doubled meanwhile."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.records import NODE, Fact
from cyclewatch.daemon.reports.regression import regression_markdown
from cyclewatch.daemon.store import models
from cyclewatch.daemon.triage.documents import RegressionDetail
from model_configs import LLAMA_3_8B
from simulated import server
from watched import QUICK, SECOND, Replay, Watched, ring_identity


class Later(Executor):
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def work(self) -> None:
        """Do all of it."""
        waiting, self.waiting = self.waiting, []
        for task in waiting:
            task()


@pytest.fixture(name="later")
def _later() -> Later:
    return Later()


@pytest.fixture(name="watched")
def _watched(tmp_path: Path, later: Later) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    watched.executor = later
    watched.start()
    yield watched
    watched.close()


def replay_of(watched: Watched) -> Replay:
    return Replay(watched, server(60, seed=1, slower={30: 1.2}))


def until_found(replay: Replay, later: Later) -> None:
    while not later.waiting:
        replay.run(replay.at_ns + SECOND)


def key_of(watched: Watched) -> str:
    (row,) = watched.rows(models.RegressionRow)
    return str(row.key)


def test_turns_go_on_and_the_regression_comes_with_its_cause(watched: Watched, later: Later) -> None:
    """Windows are stored meanwhile; the regression is not, nor where reading goes on."""
    replay = replay_of(watched)
    until_found(replay, later)
    position = watched.history.ring_positions()[replay.ring.key].next_sequence
    windows = len(watched.rows(models.WindowRow))
    replay.run(replay.at_ns + 30 * SECOND)
    assert watched.history.regressions() == []
    assert len(watched.rows(models.WindowRow)) > windows
    assert watched.history.ring_positions()[replay.ring.key].next_sequence == position
    later.work()
    replay.run(replay.at_ns + SECOND)
    (found,) = watched.history.regressions()
    assert found.causes
    assert found.split
    assert watched.history.ring_positions()[replay.ring.key].next_sequence > position


def test_killed_before_the_cause_is_known_it_is_found_again_once(
    watched: Watched, later: Later, tmp_path: Path
) -> None:
    replay = replay_of(watched)
    until_found(replay, later)
    replay.kill(random.Random(1))
    watched.lag = 0
    replay.run()
    later.work()
    watched.stop(replay.at_ns)
    (found,) = watched.history.regressions()
    assert found.causes
    assert key_of(watched) == key_undisturbed(tmp_path / "undisturbed")


def key_undisturbed(directory: Path) -> str:
    """The key that the regression has where nothing happens to the daemon."""
    directory.mkdir()
    watched = Watched(directory)
    replay_of(watched).run()
    key = key_of(watched)
    watched.close()
    return key


def test_what_ended_meanwhile_is_stored_after_what_began(watched: Watched, later: Later) -> None:
    """In the order in which it was found: it is over, and its cause is kept."""
    replay = Replay(watched, server(90, seed=1, slower={30: 1.2, 58: 1.0}))
    replay.run()
    assert watched.history.regressions() == []
    later.work()
    watched.turn(replay.at_ns + SECOND)
    (found,) = watched.history.regressions()
    assert found.state == "resolved"
    assert found.causes


def test_on_a_known_gpu_a_regression_tells_what_is_above_the_bound(tmp_path: Path) -> None:
    """Stored with it, kept over a restart, and shown."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_3_8B, "num_hidden_layers": 4}))
    watched = Watched(tmp_path)
    watched.take(Fact(NODE, "gpu0.model", "NVIDIA H200"), 1)
    ring = ring_identity(synchronous=False, server={"model_path": str(tmp_path)})
    replay = Replay(watched, server(60, seed=1, slower={30: 1.2}), ring)
    replay.run(250 * SECOND)
    replay.kill(random.Random(1))
    watched.lag = 0
    replay.run()
    (found,) = watched.history.regressions()
    watched.close()
    assert found.physical_bound is not None
    before, after = found.physical_bound["before"], found.physical_bound["after"]
    assert before["gpu"] == "H200"
    assert before["at_least_us"] == pytest.approx(after["at_least_us"], rel=0.02)
    grown_us = sum(part["delta_us"] for part in found.split)
    assert after["above_us"] - before["above_us"] == pytest.approx(grown_us, rel=0.05)
    assert "| at least on H200, by memory |" in regression_markdown(found)
    assert RegressionDetail.model_validate(found).physical_bound == found.physical_bound


@pytest.mark.parametrize("reloads", [False, True])
def test_a_stop_and_a_reload_wait_for_the_cause(watched: Watched, later: Later, *, reloads: bool) -> None:
    """Either begins anew with what is stored."""
    replay = replay_of(watched)
    until_found(replay, later)
    worker = threading.Timer(0.05, later.work)
    worker.start()
    if reloads:
        watched.pipeline.take_settings(QUICK)
    watched.stop(replay.at_ns)
    worker.join()
    (found,) = watched.history.regressions()
    assert found.causes
