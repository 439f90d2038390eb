"""A pause of sampling: one at a time, and never longer than it may last."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cyclewatch.config.settings import Discovery, Engine, Gpu, Profiling, Rings, Settings
from cyclewatch.config.web import Web
from cyclewatch.daemon.control import ControlError, asked
from cyclewatch.daemon.pause import LONGEST_S, Pause
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store.database import open_database

PAUSE = {"do": "pause", "seconds": 20}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Sampling:
    """What is paused: what was done to it, in order."""

    def __init__(self) -> None:
        self.free = True
        self.done: list[str] = []

    def hold(self) -> bool:
        self.done.append("hold" if self.free else "refuse")
        return self.free

    def release(self) -> None:
        self.done.append("release")


@pytest.fixture(name="sampling")
def _sampling() -> Sampling:
    return Sampling()


@pytest.fixture(name="pause")
def _pause(sampling: Sampling) -> Iterator[Pause]:
    pause = Pause(sampling.hold, sampling.release)
    yield pause
    pause.end()


def test_it_ends_when_the_asker_hangs_up(pause: Pause, sampling: Sampling) -> None:
    answer = pause.answer(PAUSE)
    assert answer == {"pause": 1}
    assert pause.active
    pause.done(answer)
    assert not pause.active
    assert sampling.done == ["hold", "release"]


def test_it_ends_at_its_deadline_with_a_word_in_the_log(pause: Pause, sampling: Sampling) -> None:
    """Whoever asked may be stopped, and hold the connection for ever."""
    with capture_logs() as events:
        answer = pause.answer({"do": "pause", "seconds": 0.05})
        until(lambda: not pause.active)
        until(lambda: sampling.done == ["hold", "release"])
    assert [event["event"] for event in events] == ["a pause was not ended in time; sampling goes on"]
    assert answer is not None
    pause.done(answer)
    assert sampling.done == ["hold", "release"]


def test_a_second_one_is_refused_and_ends_nothing(pause: Pause, sampling: Sampling) -> None:
    pause.answer(PAUSE)
    refusal = pause.answer(PAUSE)
    assert refusal == {"error": "sampling is paused already: somebody else measures"}
    pause.done(refusal)
    assert pause.active
    assert sampling.done == ["hold"]


def test_an_asker_who_comes_late_does_not_end_the_pause_of_the_next(pause: Pause) -> None:
    first = pause.answer(PAUSE)
    pause.end()
    pause.answer(PAUSE)
    assert first is not None
    pause.done(first)
    assert pause.active


def test_none_begins_while_a_profile_is_taken(pause: Pause, sampling: Sampling) -> None:
    sampling.free = False
    assert pause.answer(PAUSE) == {"error": "a kernel profile or a probe is under way: try again in some seconds"}
    assert not pause.active
    assert sampling.done == ["refuse"]


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"do": "profile"},
        {"do": "pause"},
        {"do": "pause", "seconds": 0},
        {"do": "pause", "seconds": -1},
        {"do": "pause", "seconds": LONGEST_S + 1},
        {"do": "pause", "seconds": "20"},
        {"do": "pause", "seconds": float("nan")},
    ],
)
def test_other_questions_are_not_for_it(pause: Pause, question: dict[str, object]) -> None:
    """One that lasts longer than rings reach back is none."""
    assert pause.answer(question) is None
    assert not pause.active


@pytest.fixture(name="state")
def _state() -> Iterator[Path]:
    """A state directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(name="server")
def _server(state: Path) -> Iterator[Server]:
    """A running daemon, with little to sample."""
    settings = Settings(
        state_dir=state,
        rings=Rings(directory=state / "rings", interval_s=0.05),
        engine=Engine(enabled=False),
        discovery=Discovery(enabled=False),
        gpu=Gpu(enabled=False),
        profiling=Profiling(enabled=False),
        web=Web(port=0),
    )
    open_database(settings.database_url, create=True).dispose()
    server = Server(settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server._turns > 0)
    yield server
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


def samples(server: Server) -> float:
    """How often the rings have been looked at."""
    name = "cyclewatch_collector_duration_seconds_count"
    return server.metrics.registry.get_sample_value(name, {"collector": "cycles"}) or 0.0


def assert_it_samples(server: Server) -> None:
    before, turns = samples(server), server._turns
    until(lambda: samples(server) > before + 2 and server._turns > turns)


def test_a_daemon_that_is_paused_samples_and_turns_no_more_and_stays_healthy(server: Server, state: Path) -> None:
    """Until the asker hangs up; a second one is told to wait."""
    with asked(state, PAUSE):
        time.sleep(0.3)  # what was under way ends
        before, turns = samples(server), server._turns
        with pytest.raises(ControlError, match="paused already"), asked(state, PAUSE):
            pass
        time.sleep(1.5)
        assert (samples(server), server._turns) == (before, turns)
        assert server._healthy().good
    assert_it_samples(server)


def test_kill_9_of_the_asker_ends_the_pause(server: Server, state: Path) -> None:
    code = (
        "import sys, time, pathlib; from cyclewatch.daemon.control import asked\n"
        f"with asked(pathlib.Path({str(state)!r}), {PAUSE}):\n    print('paused', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        assert asker.stdout.readline() == b"paused\n"
        assert server._pause.active
        asker.kill()
        until(lambda: not server._pause.active)
    assert_it_samples(server)


def test_a_daemon_that_is_stopped_in_a_pause_ends(server: Server, state: Path) -> None:
    """And leaves its windows open for the next one, which reads what is still in the rings."""
    with asked(state, PAUSE):
        turns = server._turns
        server.stop()
        until(lambda: not server._pause.active)
    assert server._turns == turns
