"""Taking a profile from a server that goes wrong in the middle of it."""

import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import pytest

from cyclewatch.collectors.kineto.captures import Capture
from cyclewatch.collectors.kineto.endpoint import Endpoint
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.config.settings import Profiling
from cyclewatch.daemon.profiling.taking import (
    Scheduler,
    TakingError,
    Tools,
    take_by_channel,
    take_by_start_profile,
)
from fake_http import Answer, closed_port, http_server
from fake_kineto import trace

PID, BEGAN = 7, 100


class QuickEvent(threading.Event):
    """One that nobody waits long for."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.01 if timeout else timeout)


class World:
    """A process under a /proc of its own, and a server whose scheduler it is.

    The server writes `files` at `/start_profile` and `late` at `/stop_profile`, by the parts of their names that tell
    the rank. `then` is done once the stretch has begun.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "channel"
        self.proc = directory / "proc"
        self.directory.mkdir()
        (self.proc / str(PID)).mkdir(parents=True)
        self.process()
        self.files: dict[str, bytes] = {}
        self.late: dict[str, bytes] = {}
        self.status = {"/start_profile": 200, "/stop_profile": 200}
        self.answers_in_s = 0.0
        self.then: Callable[[], object] = lambda: None
        self.happened: list[str] = []
        self.tools = Tools(Profiling(socket_dir=self.directory), self.proc, time.monotonic_ns, QuickEvent())
        self.url = ""
        self._id = ""

    def process(self, state: str = "S", start_ticks: int = BEGAN) -> None:
        """What /proc tells of the process from now on."""
        text = f"{PID} (sglang::schedul) {state} 1 {'0 ' * 17}{start_ticks} {'0 ' * 30}\n"
        (self.proc / str(PID) / "stat").write_text(text)

    def began(self, at_ns: int) -> None:
        assert at_ns
        self.happened.append("began")
        self.then()

    def ended(self, at_ns: int) -> None:
        assert at_ns
        self.happened.append("ended")

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.happened.append(handler.path)
        if handler.path == "/start_profile":
            body: dict[str, Any] = json.loads(cast("Any", handler).body)
            self._id = body["profile_id"]
            time.sleep(self.answers_in_s)
        written = self.files if handler.path == "/start_profile" else self.late
        for ranks, content in written.items():
            (self.directory / f"{self._id}-{ranks}.trace.json.gz").write_bytes(gzip.compress(content))
        Answer(b"", self.status[handler.path])._send(handler)

    def take(self, **ranks: int | None) -> int:
        """How many kernels came by `/start_profile`."""
        values: dict[str, Any] = {"tp_rank": 0, "dp_rank": None, "pp_rank": None, "ranks": 1, **ranks}
        scheduler = Scheduler(url=self.url, pid=PID, start_ticks=BEGAN, user=os.getuid(), **values)
        return len(take_by_start_profile(self.tools, scheduler, self.directory, self, gpu=False).kernels)

    def refused(self) -> TakingError:
        with pytest.raises(TakingError) as caught:
            self.take()
        assert self.happened[-1] == "ended"
        assert list(self.directory.iterdir()) == []
        return caught.value

    def asked(self) -> list[str]:
        return [one for one in self.happened if one.startswith("/")]


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    answer = Answer(send=world.answer)
    with http_server({"/start_profile": answer, "/stop_profile": answer}) as server:
        world.url = server.url
        yield world


class AtOnce:
    """An endpoint that hands an order out as it comes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.attached: list[int] = []

    def attach(self, pid: int, capture: Capture) -> None:
        self.attached.append(pid)
        assert capture.poll(capture.process)

    def detach(self, pid: int) -> None:
        self.attached.remove(pid)


@pytest.mark.parametrize(
    "after", [{"state": "Z"}, {"state": "X"}, {"start_ticks": BEGAN + 1}], ids=["not reaped", "going", "pid reused"]
)
def test_a_process_that_dies_in_a_capture_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any]
) -> None:
    """Also where its parent does not ask what became of it, or where another has its number by now."""
    monkeypatch.setattr("cyclewatch.collectors.kineto.captures.START_WAIT_NS", 10**9)
    process = KinetoProcess(PID, PID, os.getuid(), free=True, first_seen_ns=0, last_seen_ns=0)
    world.then = lambda: world.process(**after)
    endpoint = AtOnce(world.directory)
    with pytest.raises(TakingError, match="process 7 ended before its profile was complete") as caught:
        take_by_channel(world.tools, cast("Endpoint", endpoint), process, 300, world, gpu=False)
    assert (caught.value.ended, caught.value.counts) == (True, False)
    assert world.happened == ["began", "ended"]
    assert endpoint.attached == []


@pytest.mark.parametrize("after", [{"state": "Z"}, {"start_ticks": BEGAN + 1}], ids=["not reaped", "pid reused"])
def test_a_server_that_dies_by_start_profile_has_ended_and_is_not_waited_for(
    world: World, after: dict[str, Any]
) -> None:
    world.then = lambda: world.process(**after)
    error = world.refused()
    assert str(error) == "process 7 ended before its profile was complete"
    assert (error.ended, error.counts) == (True, False)
    assert world.asked() == ["/start_profile"]


@pytest.mark.parametrize(("state", "ended"), [("S", False), ("Z", True)])
def test_a_server_that_does_not_answer_has_ended_only_where_its_scheduler_has(
    world: World, state: str, ended: bool
) -> None:
    world.url = f"http://127.0.0.1:{closed_port()}"
    world.then = lambda: world.process(state)
    error = world.refused()
    assert (error.ended, error.counts) == (ended, not ended)


def test_a_recording_that_does_not_end_is_stopped_and_its_late_file_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without traffic its steps are never made; the server is exposed until it has been stopped."""
    monkeypatch.setattr("cyclewatch.daemon.profiling.taking._START_PROFILE_WAIT_NS", 0)
    world.late = {"TP-0": trace(PID)}
    assert "0 of 1 files came" in str(world.refused())
    assert world.happened == ["began", "/start_profile", "/stop_profile", "ended"]


def test_a_recording_that_cannot_be_stopped_is_refused_for_what_went_wrong_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cyclewatch.daemon.profiling.taking._START_PROFILE_WAIT_NS", 0)
    monkeypatch.setattr("cyclewatch.daemon.profiling.taking._STOP_PROFILE_S", 0.2)
    world.status["/stop_profile"] = 500
    assert "0 of 1 files came" in str(world.refused())
    assert world.asked() == ["/start_profile", "/stop_profile"]


def test_a_start_that_is_not_answered_may_have_begun_and_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cyclewatch.collectors.start_profile._REQUEST_TIMEOUT_S", 0.2)
    world.answers_in_s, world.late = 0.4, {"TP-0": trace(PID)}
    assert "ReadTimeout" in str(world.refused())
    assert world.asked() == ["/start_profile", "/stop_profile"]


def test_a_start_that_is_refused_stops_nothing(world: World) -> None:
    """It would be somebody else's."""
    world.status["/start_profile"] = 500
    assert "answers 500" in str(world.refused())
    assert world.asked() == ["/start_profile"]


def test_a_daemon_that_stops_leaves_no_recording_behind(world: World) -> None:
    world.late = {"TP-0": trace(PID)}
    world.then = world.tools.stopping.set
    error = world.refused()
    assert (str(error), error.counts, error.ended) == ("the daemon is stopping", False, False)
    assert world.asked() == ["/start_profile", "/stop_profile"]


def test_of_many_files_that_of_the_rank_is_read(world: World) -> None:
    """Each replica of a data-parallel server has a rank TP-0."""
    world.files = {f"TP-{tp}-DP-{dp}": trace(PID if (tp, dp) == (1, 1) else 1) for tp in (0, 1, 10) for dp in (0, 1)}
    assert world.take(tp_rank=1, dp_rank=1, ranks=6) == 2
    assert world.asked() == ["/start_profile"]
    assert list(world.directory.iterdir()) == []
