"""The probe's programs run for real; what another Python might answer is made up."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.probe import cpu_program, gpu_program, programs
from cyclewatch.collectors.probe.programs import ProbeError, probe_cpu, probe_gpus, torch_of
from cyclewatch.collectors.probe.quantities import QUANTITIES
from cyclewatch.collectors.records import NODE, Reading
from sglang_lab import sglang_environment

GOOD = {"software": "torch 9", "gpus": 2, "devices": {"cuda:0": {"matmul": 2e-4, "copy": 1e-4}}}


@pytest.fixture(name="stopping")
def _stopping() -> threading.Event:
    return threading.Event()


def declared(reading: Reading) -> bool:
    return any(one.name == reading.name and set(one.labels) == dict(reading.labels).keys() for one in QUANTITIES)


def program(directory: Path, text: str) -> str:
    """A stand-in for the Python of another environment: a script of the shell."""
    path = directory / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def answering(directory: Path, answer: object) -> str:
    return program(directory, f"cat <<'END'\n{json.dumps(answer)}\nEND")


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its end yet."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


class TestCpu:
    def test_it_gives_what_is_declared(self, stopping: threading.Event) -> None:
        """Each work by CPU time and by the clock, and with what it was done."""
        readings = probe_cpu(stopping)
        assert all(declared(reading) and reading.target == NODE for reading in readings)
        times = {(reading.name, dict(reading.labels)["kind"]): reading.value for reading in readings}
        assert len(times) == 4
        for name in ("probe.cpu_loop_seconds", "probe.memory_scan_seconds"):
            assert 0 < times[name, "cpu"] < 2 * times[name, "wall"]
        assert {dict(reading.labels)["software"] for reading in readings} == {
            f"python {sys.version_info.major}.{sys.version_info.minor}"
        }

    def test_the_work_is_the_same_each_time(self) -> None:
        """A number that would change with the work."""
        assert cpu_program.loop(1000) == cpu_program.loop(1000) == 67_612

    def test_what_interrupts_one_part_does_not_count_as_time_of_the_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Five parts of 2 s, and 30 s more that were charged to one of them."""
        times = iter([100.0, 102.0, 104.0, 136.0, 138.0, 140.0])
        monkeypatch.setattr(time, "thread_time", lambda: next(times))
        assert cpu_program.timed(lambda: None, 5)["cpu"] == 10.0

    def test_the_memory_is_there_and_holds_nothing_that_ends_a_scan_early(self) -> None:
        with cpu_program.memory() as block:
            assert len(block) == 32 * 2**20
            assert block[0] == block[-4096] == 1
            assert block.find(b"\2") == -1


class TestOtherPythons:
    def test_a_gpu_is_known_by_the_number_that_nvml_gives_it(self, tmp_path: Path, stopping: threading.Event) -> None:
        """The program sees only those it may touch, so that its numbers are others."""
        answer = {
            **GOOD,
            "devices": {"cuda:0": {"matmul": 2e-4, "copy": 1e-4}, "cuda:1": {"matmul": 3e-4, "copy": 2e-4}},
        }
        readings = probe_gpus(answering(tmp_path, answer), ["1", "5"], stopping)
        assert all(declared(reading) for reading in readings)
        assert {(one.name, dict(one.labels)["gpu"]): one.value for one in readings} == {
            ("probe.gpu_matmul_seconds", "1"): 2e-4,
            ("probe.gpu_copy_seconds", "1"): 1e-4,
            ("probe.gpu_matmul_seconds", "5"): 3e-4,
            ("probe.gpu_copy_seconds", "5"): 2e-4,
        }

    def test_it_is_told_which_gpus_there_are_and_nothing_of_ours(
        self, tmp_path: Path, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CYCLEWATCH_STORE__URL", "postgresql://somebody:secret@host/db")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        seen = tmp_path / "seen"
        python = program(tmp_path, f'env > {seen}; echo "$@" >> {seen}; exit 1')
        with pytest.raises(ProbeError, match="ended with 1: it did not say why"):
            probe_gpus(python, ["0", "3"], stopping)
        text = seen.read_text()
        assert "CUDA_VISIBLE_DEVICES=0,3\n" in text
        assert "CUDA_DEVICE_ORDER=PCI_BUS_ID\n" in text
        assert "secret" not in text
        assert text.rstrip().endswith("gpu_program.py cuda:0 cuda:1")

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("echo 'No module named torch' >&2; exit 1", "ended with 1: No module named torch"),
            ("echo hello", "did not answer in JSON: is it a Python"),
            ("echo []", "did not answer in JSON"),
            ("kill -9 $$", "ended with -9"),
            ("printf 'bad \\033[31m\\n' >&2; exit 2", r"ended with 2: bad \[31m$"),
        ],
    )
    def test_whatever_else_it_does_is_one_sentence(self, tmp_path: Path, text: str, reason: str) -> None:
        with pytest.raises(ProbeError, match=reason):
            torch_of(program(tmp_path, text))

    @pytest.mark.parametrize("python", ["/nowhere/python", "/", "\0"])
    def test_one_that_cannot_be_run_is_named(self, python: str) -> None:
        with pytest.raises(ProbeError, match="cannot be run"):
            torch_of(python)

    def test_it_says_what_it_has(self, tmp_path: Path) -> None:
        assert torch_of(answering(tmp_path, GOOD)) == ("torch 9", 2)

    def test_one_that_prints_without_end_waits_for_its_own(
        self, tmp_path: Path, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It takes no memory, and whatever it has started ends with it."""
        monkeypatch.setattr(programs, "_GPU_TIMEOUT_S", 0.3)
        noted = tmp_path / "pid"
        loop = "while :; do echo 0123456789; done"
        with pytest.raises(ProbeError, match="was ended: it took more than 0 s"):
            probe_gpus(program(tmp_path, f"({loop}) & echo $! > {noted}\n{loop}"), ["0"], stopping)
        assert gone(int(noted.read_text()))

    def test_one_that_has_ended_is_not_waited_for_though_a_child_holds_its_output(self, tmp_path: Path) -> None:
        noted = tmp_path / "pid"
        python = program(tmp_path, f"sleep 600 & echo $! > {noted}; echo '{json.dumps(GOOD)}'")
        try:
            assert torch_of(python) == ("torch 9", 2)
        finally:
            os.kill(int(noted.read_text()), signal.SIGKILL)

    def test_one_that_hangs_is_ended(
        self, tmp_path: Path, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(programs, "_GPU_TIMEOUT_S", 0.3)
        noted = tmp_path / "pid"
        with pytest.raises(ProbeError, match="was ended: it took more than 0 s"):
            probe_gpus(program(tmp_path, f"echo $$ > {noted}; exec sleep 600"), ["0"], stopping)
        assert gone(int(noted.read_text()))

    def test_one_is_ended_with_the_daemon(self, tmp_path: Path, stopping: threading.Event) -> None:
        threading.Timer(0.3, stopping.set).start()
        began_s = time.monotonic()
        with pytest.raises(ProbeError, match="was ended: the daemon is stopping"):
            probe_gpus(program(tmp_path, "exec sleep 600"), ["0"], stopping)
        assert time.monotonic() - began_s < 300

    @given(
        answer=st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
            lambda part: (
                st.lists(part, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["software", "devices", "cuda:0", "matmul", "copy", "x"]), part, max_size=5
                )
            ),
            max_leaves=12,
        )
    )
    def test_what_is_no_time_never_becomes_a_reading(self, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        try:
            readings = programs._of_devices(answer, {"0": "cuda:0"})
        except ProbeError:
            return
        assert all(0 < reading.value <= programs._GPU_TIMEOUT_S for reading in readings)


class FakeEvent:
    """An event on a device whose clock stands in the queue."""

    def __init__(self, device: "FakeDevice") -> None:
        self._device = device
        self.at_ms = float("nan")

    def record(self, stream: object) -> None:
        self.at_ms = self._device.done_ms

    def synchronize(self) -> None:
        self._device.waits += 1

    def elapsed_time(self, later: "FakeEvent") -> float:
        return later.at_ms - self.at_ms


class FakeDevice:
    """A GPU that takes these milliseconds for one work after the other."""

    type = "cuda"

    def __init__(self, takes_ms: list[float]) -> None:
        self._takes_ms = takes_ms
        self.done_ms = 0.0
        self.waits = 0
        self.works = 0

    def work(self) -> None:
        self.done_ms += self._takes_ms[self.works]
        self.works += 1


class TestGpuProgram:
    def test_the_shortest_of_the_repetitions_counts(self) -> None:
        """By the device's own events, all launched before any is waited for; the first ones only warm it up."""
        device = FakeDevice([9.0, 0.1, 0.1, 0.5, 0.4, 7.0, 0.3, 0.4, 0.6, 0.5])
        cuda = SimpleNamespace(Event=lambda enable_timing: FakeEvent(device), current_stream=lambda device: None)
        seconds = gpu_program.shortest_s(SimpleNamespace(cuda=cuda), device, device.work)
        assert seconds == pytest.approx(0.3e-3)
        assert device.waits == 1

    def test_with_the_real_torch_everything_but_the_gpu_works(self, stopping: threading.Event) -> None:
        """On the CPU; it has not been run on a GPU."""
        python = str(sglang_environment("0.5.23") / "bin/python")
        torch, _ = torch_of(python)
        assert torch.startswith("torch ")
        command = [python, "-I", programs._program("gpu"), "cpu"]
        answer = programs._answer(command, os.environ, 300, stopping)
        readings = programs._of_devices(answer, {"0": "cpu"})
        assert [one.name for one in readings] == ["probe.gpu_matmul_seconds", "probe.gpu_copy_seconds"]
        assert all(one.value > 0 and dict(one.labels)["software"] == torch for one in readings)
