"""The sampler from the order to the store, with a process of libkineto's played by a thread of this one."""

import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.kineto.captures import Capture
from cyclewatch.collectors.procfs import parse_stat
from cyclewatch.collectors.records import CycleFlag
from cyclewatch.config.settings import Profiling as ProfilingSettings
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.profiling.ledger import Ledger
from cyclewatch.daemon.profiling.sampler import ProfileRefusedError, Request, Sampler
from cyclewatch.daemon.profiling.switch import Switch, restored
from cyclewatch.daemon.store.profile_records import ProfileState, StoredProfile
from cyclewatch.daemon.store.unit import Unit
from cyclewatch.detectors.costs.profile_cost import STRETCH_NS
from fake_kineto import FakeProcess, Torch, trace
from simulated import cycles
from units import RUN
from watched import ring_identity

SECOND = 10**9
ME = os.getpid()


class Lab:
    """A sampler, a rank that is this process, and a clock that can be moved on."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = Settings(profiling=ProfilingSettings(socket_dir=directory, **settings))
        self.ahead_ns = 0
        self.board = Board()
        self.metrics = Metrics()
        self.switch = Switch()
        self.units: list[Unit] = []
        self.sampler = Sampler(
            self.settings,
            self.board,
            Discovery(()),
            Ledger(0, []),
            self.switch,
            self.units.append,
            self.metrics,
            self.now,
        )
        self.torch: Torch | None = None
        ticks = parse_stat(Path(f"/proc/{ME}/stat").read_bytes()).start_ticks
        self.ring = ring_identity(f"1-{ME}-{ticks}", pid=ME)
        self.run = replace(RUN, started_at_ns=0)

    def now(self) -> Now:
        return Now(time.monotonic_ns() + self.ahead_ns, time.time_ns() + self.ahead_ns)

    def serve(self) -> Torch:
        """Serve the channel to a process."""
        self.sampler.tick()
        self.torch = Torch(self.directory)
        self.until(self.sampler.channel.processes)
        return self.torch

    def watch(self, *, settled: bool = True, suspected: bool = False) -> None:
        """The pipeline watches the rank: 100 cycles up to now."""
        self.cycles(5)
        self.board.judged(self.ring.key, self.now().monotonic_ns, settled=settled, suspected=suspected)

    def cycles(self, cycle_ms: float, seconds: float = 0.5) -> None:
        """Cycles up to now."""
        count = int(seconds * 1000 / cycle_ms)
        records = cycles(count)
        records["cycle_ns"] = int(cycle_ms * 1e6)
        now_ns = self.now().monotonic_ns
        records["end_ns"] = now_ns - np.arange(count, dtype=np.int64)[::-1] * int(cycle_ms * 1e6)
        self.board.take(self.ring, self.run, records)

    def looked(self, *, turned_ns: int | None = None) -> None:
        """The pipeline has just looked at the ring; its server's loop turned then, or last at `turned_ns`."""
        now_ns = self.now().monotonic_ns
        self.board.heard(self.ring.key, now_ns if turned_ns is None else turned_ns, now_ns)

    def hang(self) -> int:
        """Take a profile since which the loop has not turned, and let time pass until its price; gives its begin."""
        self.serve()
        self.watch(suspected=True)
        self.cycles(5, seconds=25)
        began_ns = self.now().monotonic_ns
        self.sampler.tick()
        self.ahead_ns = STRETCH_NS + 6 * SECOND
        self.looked(turned_ns=began_ns)
        self.sampler.tick()
        return began_ns

    def profiles(self) -> list[StoredProfile]:
        """The rows that were stored, one after the other."""
        return [profile for unit in self.units for profile in unit.profiles]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def close(self) -> None:
        if self.torch is not None:
            self.torch.close()
        self.sampler._stopping.set()
        self.sampler.channel.close()


@pytest.fixture(name="directory")
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kineto-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(name="build")
def _build(directory: Path) -> Iterator[Callable[..., Lab]]:
    labs: list[Lab] = []

    def build(**settings: Any) -> Lab:
        labs.append(Lab(directory, **settings))
        return labs[-1]

    yield build
    for lab in labs:
        lab.close()


@pytest.fixture(name="lab")
def _lab(build: Callable[..., Lab]) -> Lab:
    return build()


def test_a_settled_rank_is_sampled_reduced_and_stored_and_its_trace_removed(lab: Lab) -> None:
    torch = lab.serve()
    lab.watch()
    lab.sampler.tick()
    ordered, kept = lab.profiles()
    assert (ordered.state, ordered.kernels) == (ProfileState.TAKING, None)
    assert (kept.state, kept.reason, kept.method, kept.target, kept.pid) == (
        ProfileState.KEPT,
        "baseline",
        "kineto",
        "server",
        ME,
    )
    assert ordered.key == kept.key
    assert kept.ended_at_ns is not None
    assert ordered.began_at_ns == kept.began_at_ns <= kept.ended_at_ns
    assert kept.kernels is not None
    assert {(kernel.name, kernel.family, kernel.calls) for kernel in kept.kernels} == {
        ("aten::mm", "cpu_op", 20),
        ("aten::softmax", "cpu_op", 20),
    }
    assert [unit.runs for unit in lab.units if unit.profiles] == [[lab.run], [lab.run]]
    assert len(torch.orders) == 1
    assert list(lab.directory.glob("cyclewatch-*")) == []
    assert lab.value("cyclewatch_profiles_total", target="server", reason="baseline", state="kept") == 1


def test_one_at_a_time_and_then_none_for_a_while(lab: Lab) -> None:
    torch = lab.serve()
    lab.watch(suspected=True)
    for _ in range(3):
        lab.sampler.tick()
    assert len(torch.orders) == 1


def test_cycles_are_marked_while_it_lasts_and_the_cost_is_stored_when_it_is_known(lab: Lab) -> None:
    torch = lab.serve()
    torch.content = trace(ME, began_ns=time.time_ns() - 10 * SECOND)
    lab.watch()
    lab.cycles(5, seconds=25)
    lab.sampler.tick()
    (_, kept) = lab.profiles()
    marked = lab.board.records(lab.ring.key)
    assert not (marked["flags"] & int(CycleFlag.PROFILED)).all()
    lab.ahead_ns = STRETCH_NS + 6 * SECOND
    lab.cycles(6, seconds=25)
    lab.sampler.tick()
    priced = lab.profiles()[-1]
    assert priced.key == kept.key
    assert priced.kernels is None
    assert priced.cost["after_ratio"] == pytest.approx(1.2, rel=0.01)
    assert priced.totals["cycles"] == {"decode": pytest.approx(60, abs=2)}
    assert lab.value("cyclewatch_profile_after_ratio", target="server") == pytest.approx(1.2, rel=0.01)
    assert len(torch.orders) == 1


def test_over_budget_it_goes_off_says_why_and_stays_off_until_a_person_switches_it_on(lab: Lab) -> None:
    """Also after a restart of the daemon, which finds it in the store."""
    torch = lab.serve()
    lab.watch()
    lab.cycles(5, seconds=25)
    lab.sampler.tick()
    lab.ahead_ns = STRETCH_NS + 6 * SECOND
    lab.cycles(6, seconds=25)
    lab.sampler.tick()
    assert not lab.switch.on
    assert "20.0% longer after" in lab.switch.reason
    assert lab.value("cyclewatch_profiling_on") == 0
    stored = [unit.status["profiling"] for unit in lab.units if unit.status][-1]
    assert restored(stored) == lab.switch
    lab.ahead_ns += 7200 * SECOND
    lab.watch(suspected=True)
    lab.sampler.tick()
    assert len(torch.orders) == 1
    with pytest.raises(ProfileRefusedError, match="profiles on"):
        lab.sampler.ask(Request())
    lab.sampler.turn(on=True)
    assert lab.value("cyclewatch_profiling_on") == 1
    lab.sampler.tick()
    assert len(torch.orders) == 2


def test_a_server_that_hangs_since_a_profile_is_waited_for_and_its_stall_breaks_the_budget(lab: Lab) -> None:
    """However late it ends: no cycle tells of it before."""
    began_ns = lab.hang()
    assert lab.profiles()[-1].cost == {}
    assert lab.switch.on
    lab.ahead_ns = 400 * SECOND
    lab.sampler.tick()
    hung = cycles(1)
    hung["end_ns"] = lab.now().monotonic_ns
    hung["cycle_ns"] = hung["end_ns"] - np.uint64(began_ns)
    lab.board.take(lab.ring, lab.run, hung)
    lab.looked()
    lab.ahead_ns = 440 * SECOND
    lab.sampler.tick()
    assert lab.profiles()[-1].cost["stall_ns"] == pytest.approx(400 * SECOND, rel=0.02)
    assert "longer than any before it" in lab.switch.reason


def test_a_server_that_never_goes_on_is_waited_for_ten_minutes(lab: Lab) -> None:
    began_ns = lab.hang()
    for ahead_s in (200, 400, 550):
        lab.ahead_ns = ahead_s * SECOND
        lab.looked(turned_ns=began_ns)
        lab.sampler.tick()
        assert lab.switch.on
    lab.ahead_ns = 640 * SECOND
    lab.looked(turned_ns=began_ns)
    lab.sampler.tick()
    assert lab.profiles()[-1].cost["stall_ns"] == pytest.approx(640 * SECOND, rel=0.02)
    assert not lab.switch.on


def test_while_a_server_stands_still_no_more_profiles_of_it_are_taken(
    build: Callable[..., Lab], directory: Path
) -> None:
    """Whoever asks."""
    lab = build(suspicion_interval_s=1, max_duty=0.5)
    lab.hang()
    lab.watch(suspected=True)
    lab.sampler.tick()
    with pytest.raises(ProfileRefusedError, match="server stands still since its last profile"):
        lab.sampler.ask(Request())
    assert lab.torch is not None
    assert len(lab.torch.orders) == 1
    assert list(directory.glob("cyclewatch-*")) == []
    lab.ahead_ns += STRETCH_NS + 6 * SECOND
    lab.looked()
    lab.sampler.tick()
    lab.sampler.turn(on=True)
    lab.watch(suspected=True)
    lab.sampler.tick()
    assert len(lab.torch.orders) == 2


def test_a_server_that_has_nothing_to_do_after_a_profile_does_not_hang(lab: Lab) -> None:
    """Its loop turns all the same."""
    lab.serve()
    lab.watch()
    lab.cycles(5, seconds=25)
    lab.looked()
    lab.sampler.tick()
    lab.ahead_ns = STRETCH_NS + 6 * SECOND
    lab.looked()
    lab.sampler.tick()
    assert lab.profiles()[-1].cost["cycles_after"] == 0
    assert lab.profiles()[-1].cost["stall_ns"] in {0, None}
    assert lab.switch.on


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu', ""),
        (b"\x1f\x8b\x08\0", "ends in the middle"),
        (b"not a trace at all", "known profile"),
        (b'{"schemaVersion": 1, "traceEvents": []}', ""),
    ],
)
def test_an_invalid_trace_is_refused_with_the_reason_and_removed(lab: Lab, content: bytes, said: str) -> None:
    """Never a silent empty profile."""
    torch = lab.serve()
    torch.content = content
    lab.watch()
    lab.sampler.tick()
    refused = lab.profiles()[-1]
    assert refused.state is ProfileState.REFUSED
    assert refused.detail
    assert said in refused.detail
    assert "\n" not in refused.detail
    assert "/proc/self" not in refused.detail
    assert refused.kernels is None
    assert list(lab.directory.glob("cyclewatch-*")) == []


def test_a_trace_of_another_process_is_refused(lab: Lab) -> None:
    torch = lab.serve()
    torch.content = trace(1)
    lab.watch()
    lab.sampler.tick()
    assert f"not of {ME}" in lab.profiles()[-1].detail


def test_after_three_failures_a_rank_is_left_alone(lab: Lab) -> None:
    torch = lab.serve()
    torch.content = b""
    for _ in range(5):
        lab.watch(suspected=True)
        lab.sampler.tick()
        lab.ahead_ns += 700 * SECOND
    assert len(torch.orders) == 3


def test_a_file_that_never_comes_ends_with_a_sentence(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cyclewatch.collectors.kineto.captures.START_WAIT_NS", SECOND // 10)
    torch = lab.serve()
    torch.writes = False
    lab.watch()
    lab.sampler.tick()
    refused = lab.profiles()[-1]
    assert "KINETO_ONDEMAND_TRACE_DIR" in refused.detail
    assert refused.ended_at_ns is not None  # the cycles of the attempt stay marked


def test_a_server_that_ends_while_it_is_profiled_is_the_last_that_is(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been a restart, or profiling may have brought it down: a person has to say."""
    torch, check = lab.serve(), Capture.check
    monkeypatch.setattr(Capture, "check", lambda capture, *, alive: check(capture, alive=alive and not torch.orders))
    torch.writes = False
    lab.watch()
    lab.sampler.tick()
    assert lab.switch.reason.endswith(f"process {ME} ended while it was profiled")
    assert lab.value("cyclewatch_profiling_on") == 0
    with pytest.raises(ProfileRefusedError, match="profiles on"):
        lab.sampler.ask(Request())


def test_a_server_that_ends_shortly_after_its_profile_is_the_last_that_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was complete, and its cost would never be known."""
    lab.serve()
    lab.watch()
    lab.sampler.tick()
    assert lab.profiles()[-1].state is ProfileState.KEPT
    assert lab.switch.on
    monkeypatch.setattr("cyclewatch.daemon.profiling.sampler.lives", lambda _tree, pid, _ticks: pid != ME)
    lab.board.forget(lab.ring.key)
    lab.ahead_ns = 5 * SECOND
    lab.sampler.tick()
    assert re.search(rf"process {ME} ended within \d+ s after it was profiled", lab.switch.reason)
    lab.sampler.turn(on=True)
    lab.sampler.tick()
    assert lab.switch.on  # told once


def test_a_restart_a_while_after_a_profile_is_no_concern(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.serve()
    lab.watch()
    lab.sampler.tick()
    monkeypatch.setattr("cyclewatch.daemon.profiling.sampler.lives", lambda *_: False)
    lab.board.forget(lab.ring.key)
    lab.ahead_ns = 15 * SECOND
    lab.sampler.tick()
    assert lab.switch.on


def test_a_server_that_ends_once_its_profile_is_priced_is_no_concern(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.serve()
    lab.watch()
    lab.sampler.tick()
    lab.ahead_ns = STRETCH_NS + 6 * SECOND
    lab.sampler.tick()
    monkeypatch.setattr("cyclewatch.daemon.profiling.sampler.lives", lambda *_: False)
    lab.sampler.tick()
    assert lab.switch.on


def test_a_daemon_that_stops_gives_up_what_is_under_way(lab: Lab) -> None:
    torch = lab.serve()
    torch.writes = False
    lab.watch()
    ticking = threading.Thread(target=lab.sampler.tick)
    ticking.start()
    lab.until(lambda: torch.orders)
    lab.sampler._stopping.set()
    ticking.join(5)
    assert not ticking.is_alive()
    assert lab.profiles()[-1].detail == "the daemon is stopping"


def test_a_person_may_ask_whatever_the_load(lab: Lab) -> None:
    """No baseline, nothing served; the trace is the asker's to copy."""
    torch = lab.serve()
    lab.cycles(5)
    lab.ahead_ns = 3600 * SECOND
    taken = lab.sampler.ask(Request(target="server", duration_ms=50))
    assert taken.profile.state is ProfileState.KEPT
    assert taken.profile.reason == "asked"
    assert taken.capture is not None
    assert taken.capture.path.exists()
    assert "ACTIVITIES_DURATION_MSECS=50\n" in torch.orders[0]


def test_any_process_that_asks_can_be_named_by_its_pid(lab: Lab) -> None:
    """It has no cycles, so no cost either."""
    lab.serve()
    taken = lab.sampler.ask(Request(pid=ME))
    assert taken.profile.state is ProfileState.KEPT
    assert taken.profile.run_key == ""
    assert taken.profile.target.endswith(f"-{ME}")
    lab.ahead_ns = 3600 * SECOND
    lab.sampler.tick()
    assert len([one for one in lab.profiles() if one.key == taken.profile.key]) == 2


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(), "none is being watched"),
        (Request(target="x"), "no server x: none is being watched"),
        (Request(pid=1), "KINETO_USE_DAEMON=1"),
        (Request(pid=1, duration_ms=0), "ask for 10 to 10000"),
        (Request(pid=1, duration_ms=10**9), "ask for 10 to 10000"),
    ],
)
def test_what_cannot_be_profiled_is_one_sentence(lab: Lab, request_: Request, said: str) -> None:
    lab.serve()
    with pytest.raises(ProfileRefusedError, match=said):
        lab.sampler.ask(request_)


def test_of_several_servers_one_has_to_be_named(lab: Lab) -> None:
    lab.watch()
    lab.board.take(replace(lab.ring, key="1-2-3"), replace(lab.run, target="other"), cycles(3))
    with pytest.raises(ProfileRefusedError, match="name one of other, server"):
        lab.sampler.ask(Request())
    with pytest.raises(ProfileRefusedError, match="known are other, server"):
        lab.sampler.ask(Request(target="third"))


def test_a_rank_that_does_not_ask_is_refused_when_asked_for_and_not_tried_otherwise(lab: Lab) -> None:
    lab.sampler.tick()
    lab.watch(suspected=True)
    lab.sampler.tick()
    assert lab.profiles() == []
    taken = lab.sampler.ask(Request())
    assert taken.profile.state is ProfileState.REFUSED
    assert "KINETO_USE_DAEMON=1" in taken.profile.detail


def test_a_busy_process_is_not_asked(lab: Lab) -> None:
    torch = lab.serve()
    torch.free = False
    lab.until(lambda: not lab.sampler.channel.processes()[0].free)
    lab.watch(suspected=True)
    lab.sampler.tick()
    assert lab.profiles() == []


def test_without_a_directory_nothing_is_served_until_there_is_one(build: Callable[..., Lab], directory: Path) -> None:
    directory.rmdir()
    lab = build()
    lab.sampler.tick()
    assert "install -d" in lab.sampler.status()["channel"]
    with pytest.raises(ProfileRefusedError, match="the channel is not served"):
        lab.sampler.ask(Request(pid=1))
    directory.mkdir(mode=0o700)
    lab.sampler.tick()
    assert lab.sampler.channel.endpoint is None
    lab.ahead_ns = 61 * SECOND
    lab.sampler.tick()
    assert lab.sampler.status()["channel"] == f"served in {directory}"


def test_a_directory_that_is_removed_and_made_anew_is_served_again(lab: Lab, directory: Path) -> None:
    """As that of a unit is with every start."""
    lab.sampler.tick()
    with FakeProcess(directory) as hostile:
        hostile.send(b"x")
        lab.until(lambda: lab.sampler.channel.endpoint and lab.sampler.channel.endpoint.refusals())
    shutil.rmtree(directory)
    lab.sampler.tick()
    assert "was removed" in lab.sampler.status()["channel"]
    lab.ahead_ns = 61 * SECOND
    lab.sampler.tick()
    assert "install -d" in lab.sampler.status()["channel"]
    directory.mkdir(mode=0o700)
    lab.ahead_ns = 122 * SECOND
    lab.sampler.tick()
    assert lab.sampler.status()["channel"] == f"served in {directory}"
    with FakeProcess(directory) as process:
        assert process.poll() == ""
    assert lab.value("cyclewatch_profile_datagrams_refused_total") == 1


def test_a_directory_that_another_has_taken_over_is_left_to_it(lab: Lab, directory: Path) -> None:
    lab.sampler.tick()
    (directory / "dynolog").unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dynolog:
        dynolog.bind(f"{directory}/dynolog")
        lab.ahead_ns = 61 * SECOND
        lab.sampler.tick()
        assert "another daemon serves it" in lab.sampler.status()["channel"]
        assert (directory / "dynolog").is_socket()


def test_switched_off_in_the_settings_nothing_is_served(build: Callable[..., Lab]) -> None:
    lab = build(enabled=False)
    lab.sampler.tick()
    assert list(lab.directory.iterdir()) == []
    assert lab.value("cyclewatch_profiling_on") == 0
    with pytest.raises(ProfileRefusedError, match=r"profiling\.enabled"):
        lab.sampler.ask(Request())


def test_a_user_that_does_not_exist_is_a_reason(build: Callable[..., Lab]) -> None:
    lab = build(users=("nobody-of-that-name", "1000"))
    lab.sampler.tick()
    assert "nobody-of-that-name" in lab.sampler.status()["channel"]


def test_refused_questions_are_told_of(lab: Lab) -> None:
    lab.serve()
    with FakeProcess(lab.directory) as hostile:
        hostile.send(b"x")
        lab.until(lambda: lab.sampler.channel.endpoint and lab.sampler.channel.endpoint.refusals())
    lab.sampler.tick()
    assert lab.value("cyclewatch_profile_datagrams_refused_total") == 1


def test_it_runs_by_itself_survives_an_error_and_stops(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def tick() -> None:
        looks.append(1)
        raise RuntimeError("broken")

    monkeypatch.setattr(lab.sampler, "tick", tick)
    monkeypatch.setattr("cyclewatch.daemon.profiling.sampler._TICK_S", 0.01)
    lab.sampler.start()
    lab.until(lambda: len(looks) > 2)
    lab.sampler.stop(5)
    assert not lab.sampler._thread.is_alive()
