"""GPU processes by server: NVML gives the host's numbers, rings those of the server's own pid namespace."""

from pathlib import Path

import pytest

from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.calls import CallWatch
from cyclewatch.collectors.gpu.device import Device
from cyclewatch.collectors.gpu.processes import GpuProcesses
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.collectors.records import NODE, Reading, RingIdentity
from fake_proc import FakeProc
from nvml_lab import SECOND, Lab, lab, recording

USED = 131_000_000_000
OTHERS = 600_000_000


def ring(pid: int, parent: int) -> RingIdentity:
    return RingIdentity(
        key=f"1-{pid}",
        pid=pid,
        parent_pid=parent,
        parent_start_ticks=1,
        tp_rank=0,
        pp_rank=None,
        dp_rank=None,
        synchronous=False,
        sglang_version="0.5.23",
        plugin_version="0.1.0",
        hooks_missing=(),
        monotonic_ns=1,
        wall_ns=1,
        server={"host": "127.0.0.1", "port": 30000},
    )


def status(proc: Path, pid: int, parent: int, *numbers: int) -> None:
    """Write the part of /proc/PID/status that tells the numbers of a process from the outside to the inside."""
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    spaced = "\t".join(map(str, (pid, *numbers)))
    (proc / str(pid) / "status").write_text(f"Name:\tpython\nPid:\t{pid}\nPPid:\t{parent}\nNSpid:\t{spaced}\n")


def by_target(one: Lab, name: str) -> dict[str, float]:
    return {
        sample.target: sample.value for sample in one.samples if isinstance(sample, Reading) and sample.name == name
    }


def test_a_process_in_the_same_namespace_is_its_servers(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.process(4000, "python", 1)
    fake.process(4100, "sglang::schedul", 4000)
    discovery = Discovery(())
    target = discovery.note(ring(4100, 4000))
    with lab("h200", discovery, fake.proc) as one:
        one.turn()
        assert by_target(one, "gpu.process_memory_bytes") == {target: USED}
        assert by_target(one, "gpu.process_sm_ratio") == {target: pytest.approx(0.97)}
        assert by_target(one, "gpu.other_memory_bytes") == {NODE: OTHERS}
        assert one.values("gpu.process_memory_bytes", gpu="0", process="scheduler", rank="tp0") == [USED]


def test_a_process_in_a_container_is_found_by_its_own_number(tmp_path: Path) -> None:
    """Its ring says 7 with parent 1; the host calls it 4100. Another container's 7 has another parent."""
    status(tmp_path, 4100, 4000, 7)
    status(tmp_path, 4000, 1, 1)
    status(tmp_path, 9000, 8000, 7)
    status(tmp_path, 8000, 1, 5)
    discovery = Discovery(())
    target = discovery.note(ring(7, 1))
    with lab("h200", discovery, tmp_path) as one:
        one.turn()
        assert by_target(one, "gpu.process_memory_bytes") == {target: USED}
        assert by_target(one, "gpu.other_memory_bytes") == {NODE: OTHERS}


def test_it_is_said_where_no_process_can_be_seen(tmp_path: Path) -> None:
    """The daemon is in a container of its own: it goes on, and says what would help."""
    discovery = Discovery(())
    discovery.note(ring(7, 1))
    with lab("h200", discovery, tmp_path) as one:
        for _ in range(3):
            one.turn()
            assert "run cyclewatch in the host's pid namespace" in one.outcome.no_data
            assert not one.outcome.failures


def test_without_a_server_nothing_is_said(tmp_path: Path) -> None:
    with lab("h200", proc=tmp_path) as one:
        assert one.turn().outcome.no_data == ""
        assert by_target(one, "gpu.other_memory_bytes") == {NODE: USED + OTHERS}


@pytest.mark.parametrize(
    "content", ["", "NSpid:", "NSpid:\tx\nPPid:\ty", "\xff\x00:::\n\n", "PPid:\t4100\nNSpid:\t1 2"]
)
def test_a_status_that_makes_no_sense_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / "4100").mkdir()
    (tmp_path / "4100" / "status").write_text(content)
    discovery = Discovery(())
    discovery.note(ring(7, 1))
    with lab("h200", discovery, tmp_path) as one:
        one.turn()
        assert one.outcome.failures == ()
        assert by_target(one, "gpu.process_memory_bytes") == {}


def test_processes_are_listed_twice_a_minute_and_when_a_server_came(tmp_path: Path) -> None:
    door = RecordedDoor(recording("h200"))
    discovery = Discovery(())
    with lab(door, discovery, tmp_path) as one:
        for _ in range(30):
            one.turn()
        assert door._asked["gpu0 processes"] == 2
        discovery.note(ring(7, 1))
        one.turn().turn()
        assert door._asked["gpu0 processes"] == 3


@pytest.mark.parametrize(
    ("step_s", "told"),
    [(30, True), (-3600, True), (-2, False)],
    ids=["goes on", "put back by an hour", "put back by less than its samples may be ahead"],
)
def test_use_is_told_whatever_the_wall_clock_does(tmp_path: Path, step_s: int, told: bool) -> None:
    """NVML stamps samples with it, and gives those after the last one seen."""
    status(tmp_path, 4100, 4000, 7)
    status(tmp_path, 4000, 1, 1)
    discovery = Discovery(())
    discovery.note(ring(7, 1))
    recorded = recording("h200")
    door = RecordedDoor(recorded)
    device = Device(door, door.gpu(0), 0, CallWatch(lambda: 0))
    now_s = 1_790_000_000
    processes = GpuProcesses(door, discovery, tmp_path, lambda: now_s * SECOND)

    def shares() -> list[float]:
        recorded.answers["gpu0 process_use"] = [[[4100, now_s * 1_000_000, 50]]]
        readings = processes.read(device, processes.owners())
        return [one.value for one in readings if one.name == "gpu.process_sm_ratio"]

    assert shares() == [0.5]
    now_s += step_s
    assert shares() == [0.5] * told
    now_s += 30
    assert shares() == [0.5]
