"""One capture, step by step, with a hand-moved clock; every way in which nothing comes of it."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from cyclewatch.collectors.kineto.captures import (
    POLL_WAIT_NS,
    START_WAIT_NS,
    WRITE_WAIT_NS,
    Capture,
    CaptureError,
    Exposure,
    Failure,
    check_room,
)
from cyclewatch.collectors.kineto.device import uses_gpu
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.collectors.kineto.protocol import CPU_ACTIVITIES
from cyclewatch.collectors.trace_file import TraceFileError, open_trace
from fake_kineto import Recording

SECOND = 10**9
ME = os.geteuid()


class Stage:
    """A process that is captured in a directory, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.now_ns = 100 * SECOND
        self.capture = Capture(self.process(), directory, "token", 300, CPU_ACTIVITIES, lambda: self.now_ns)

    def process(self, *, free: bool = True) -> KinetoProcess:
        return KinetoProcess(500, 7, ME, free, 0, 0)

    def poll(self, *, free: bool = True) -> str:
        return self.capture.poll(self.process(free=free))

    def check(self, *, alive: bool = True) -> Exposure | None:
        return self.capture.check(alive=alive)

    def wait(self, ns: int) -> None:
        self.now_ns += ns

    def failure(self, *, alive: bool = True) -> CaptureError:
        with pytest.raises(CaptureError) as caught:
            self.check(alive=alive)
        assert "\n" not in str(caught.value)
        return caught.value

    def handed_out(self) -> Recording:
        """The process has taken the order."""
        return Recording(self.poll(), 7)


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_it_is_ordered_once_recorded_and_complete(stage: Stage) -> None:
    assert stage.check() is None
    stage.wait(4 * SECOND)
    recording = stage.handed_out()
    assert stage.poll() == ""
    stage.wait(SECOND)
    recording.configure()
    assert stage.check() is None
    stage.wait(2 * SECOND)
    recording.finish()
    stage.poll()
    assert stage.check() == Exposure(104 * SECOND, 105 * SECOND, 107 * SECOND)
    assert stage.capture.path == recording.path
    stage.capture.remove()
    assert not recording.path.exists()
    stage.capture.remove()


def test_a_file_that_appears_between_two_looks_counts_from_the_order(stage: Stage) -> None:
    recording = stage.handed_out()
    stage.wait(SECOND)
    recording.finish()
    assert stage.check() == Exposure(100 * SECOND, 100 * SECOND, 101 * SECOND)


def test_a_process_that_asks_no_more_hangs(stage: Stage) -> None:
    stage.wait(POLL_WAIT_NS)
    assert stage.check() is None
    stage.wait(1)
    assert stage.failure().failure is Failure.NOT_TAKEN


def test_a_process_that_is_being_profiled_is_not_disturbed(stage: Stage) -> None:
    """It would not even take the order; a free one later does."""
    assert stage.poll(free=False) == ""
    stage.wait(POLL_WAIT_NS + 1)
    assert stage.failure().failure is Failure.BUSY
    assert stage.poll() != ""


def test_somebodys_start_profile_in_its_place_is_known_as_such(stage: Stage) -> None:
    """Busy with the other one at first, then free, and no file."""
    recording = stage.handed_out()
    stage.wait(SECOND)
    recording.configure()
    assert stage.check() is None
    stage.wait(4 * SECOND)
    stage.poll(free=False)
    assert stage.check() is None
    stage.wait(5 * SECOND)
    stage.poll(free=True)
    stage.wait(1)
    failure = stage.failure()
    assert failure.failure is Failure.CANCELLED
    assert "/start_profile" in str(failure)


def test_a_trace_that_is_written_elsewhere_is_known_soon(stage: Stage) -> None:
    """As torch 2.14.1 does without KINETO_ONDEMAND_TRACE_DIR."""
    stage.handed_out()
    stage.wait(START_WAIT_NS)
    assert stage.check() is None
    stage.wait(1)
    failure = stage.failure()
    assert failure.failure is Failure.NO_FILE
    assert "KINETO_ONDEMAND_TRACE_DIR" in str(failure)


def test_a_process_that_reads_the_order_at_its_next_poll_only_is_waited_for(stage: Stage) -> None:
    """An answer came too late for it; it is one behind from then on, and told so."""
    recording = stage.handed_out()
    assert not stage.capture.behind
    stage.wait(5 * SECOND)
    assert stage.poll(free=True) == ""
    assert stage.check() is None
    stage.wait(SECOND)
    recording.configure()
    assert stage.check() is None
    assert stage.capture.behind
    stage.wait(2 * SECOND)
    recording.finish()
    assert stage.check() == Exposure(100 * SECOND, 106 * SECOND, 108 * SECOND)


def test_a_file_that_is_never_finished(stage: Stage) -> None:
    recording = stage.handed_out()
    recording.configure()
    stage.check()
    stage.wait(WRITE_WAIT_NS + 300 * 10**6)
    assert stage.check() is None
    stage.wait(1)
    assert stage.failure().failure is Failure.UNFINISHED


def test_a_process_that_ends_meanwhile(stage: Stage) -> None:
    """But what it had finished counts."""
    assert stage.failure(alive=False).failure is Failure.ENDED
    stage.handed_out().finish()
    assert stage.check(alive=False) is not None


def test_a_full_directory_is_seen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_room(tmp_path, 300)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=10, f_frsize=4096))
    with pytest.raises(CaptureError, match="40960 bytes free") as caught:
        check_room(tmp_path, 300)
    assert caught.value.failure is Failure.NO_ROOM


@pytest.mark.parametrize(("duration_ms", "needed_bytes"), [(10, 64 * 2**20), (300, 64 * 2**20), (10_000, 10**9)])
def test_a_longer_recording_needs_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duration_ms: int, needed_bytes: int
) -> None:
    """As much as its trace may take: /run is often a tmpfs of some hundred megabytes."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=needed_bytes, f_frsize=1))
    check_room(tmp_path, duration_ms)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=needed_bytes - 1, f_frsize=1))
    with pytest.raises(CaptureError, match=f"fewer than the {needed_bytes} .* of {duration_ms} ms .*: make room"):
        check_room(tmp_path, duration_ms)


def test_a_trace_is_opened_by_what_it_is(tmp_path: Path) -> None:
    """And stays that file, whatever its name leads to later."""
    path = tmp_path / "a.json"
    path.write_text("{}")
    descriptor = open_trace(path, ME, 100)
    path.unlink()
    assert os.read(descriptor, 10) == b"{}"
    os.close(descriptor)


@pytest.mark.parametrize("what", ["link", "hard link", "pipe", "directory", "missing", "long", "another user's"])
def test_anything_else_under_its_name_is_refused(tmp_path: Path, what: str) -> None:
    """Whoever may write into the directory could put it there."""
    path, other = tmp_path / "a.json", tmp_path / "other"
    other.write_text("secret")
    user = ME
    if what == "link":
        path.symlink_to(other)
    elif what == "hard link":
        path.hardlink_to(other)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "long":
        path.write_bytes(b"x" * 101)
    elif what == "another user's":
        path.write_text("{}")
        user = ME + 1
    files = open_files()
    with pytest.raises(TraceFileError, match=r"^a\.json: "):
        open_trace(path, user, 100)
    assert open_files() == files
    assert stat.S_ISREG(other.stat().st_mode)


def test_a_process_uses_a_gpu_if_it_has_mapped_its_driver(tmp_path: Path) -> None:
    proc, dev = tmp_path / "proc", tmp_path / "dev"
    dev.mkdir()
    (proc / "5").mkdir(parents=True)
    maps = proc / "5/maps"
    maps.write_text("7f0-7f1 r-xp 0 08:01 1 /usr/lib/libcuda.so.580.1\n")
    assert not uses_gpu(5, proc, dev)  # no GPU in this host
    (dev / "nvidiactl").touch()
    assert uses_gpu(5, proc, dev)
    maps.write_text("7f0-7f1 r-xp 0 08:01 1 /usr/lib/libtorch_cpu.so\n")
    assert not uses_gpu(5, proc, dev)
    assert uses_gpu(6, proc, dev)  # not to be seen: most likely
