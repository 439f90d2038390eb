import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.host.collector import HostCollector
from cyclewatch.collectors.host.process_activity import parse_activity
from cyclewatch.collectors.host.serving_threads import THREADS_MAX
from cyclewatch.collectors.records import Failure, NoData, Reading, RingIdentity, Sample
from cyclewatch.config.settings import Host
from fake_proc import FakeProc, unlinked_files_fail

MAIN, SCHEDULER, DETOKENIZER = 100, 200, 300
SECOND = 1_000_000_000
LOOK_S = Host().look_interval_s
S = (("process", "scheduler"), ("rank", "tp0"))

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def ring(pid: int, parent: int, tp_rank: int = 0, port: int = 30000) -> RingIdentity:
    return RingIdentity(
        key=f"1-{pid}-{port}",
        pid=pid,
        parent_pid=parent,
        parent_start_ticks=1,
        tp_rank=tp_rank,
        pp_rank=None,
        dp_rank=None,
        synchronous=False,
        sglang_version="0.5.23",
        plugin_version="0.1.0",
        hooks_missing=(),
        monotonic_ns=1,
        wall_ns=1,
        server={"host": "127.0.0.1", "port": port},
    )


WATCHED = ("host.on_cpu_ratio", "host.run_queue_wait_ratio", "host.cgroup_throttled_ratio")


def values(samples: list[Sample], *names: str) -> Values:
    """Readings of threads and CPU limits, which these tests are about, or of `names`."""
    readings = [sample for sample in samples if isinstance(sample, Reading) and sample.name in (names or WATCHED)]
    found = {(reading.name, reading.labels): reading.value for reading in readings}
    assert len(found) == len(readings)
    return found


def of(samples: list[Sample], kind: type[Failure | NoData]) -> list[str]:
    return [sample.reason for sample in samples if isinstance(sample, kind)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Node:
    """A fake host with one server, and a collector that watches it."""

    def __init__(self, root: Path, **settings: float) -> None:
        self.fake = FakeProc(root)
        self.discovery = Discovery([])
        self.host = HostCollector(
            Host(proc=self.fake.proc, sys=self.fake.sys, cgroup=self.fake.cgroup, **settings),  # type: ignore[arg-type]
            self.discovery,
        )
        self.now_ns = 50 * SECOND

    def server(self, cgroup: str = "0::/\n", *, children: bool = True) -> None:
        self.fake.process(MAIN, "python", 1, children=children)
        self.fake.process(
            SCHEDULER,
            "sglang::schedul",
            MAIN,
            threads={SCHEDULER: (10, 20), 201: (0, 0), 202: (0, 0)},
            cgroup=cgroup,
            children=children,
        )
        self.fake.process(DETOKENIZER, "sglang::detoken", MAIN, children=children)
        self.fake.process(301, "python", MAIN, children=children)
        self.discovery.note(ring(SCHEDULER, MAIN))

    def collect(self, seconds: float = 5) -> list[Sample]:
        self.now_ns += int(seconds * SECOND)
        return list(self.host.collect(Now(self.now_ns, 0)))


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    unlinked_files_fail(monkeypatch)
    return Node(tmp_path)


def test_without_schedulers_there_is_no_data(node: Node) -> None:
    assert of(node.collect(), NoData)[0].startswith("no scheduler process known yet: ")


def test_first_sample_gives_nothing(node: Node) -> None:
    node.server()
    assert values(node.collect()) == {}


def test_shares_of_the_time_between_two_samples(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.thread(SCHEDULER, SCHEDULER, 10 + 4 * SECOND, 20 + SECOND)
    node.fake.thread(SCHEDULER, 201, SECOND, 0)
    node.fake.thread(SCHEDULER, 202, 2 * SECOND, SECOND // 2)
    node.fake.thread(MAIN, MAIN, SECOND // 4, 0)
    node.fake.thread(DETOKENIZER, DETOKENIZER, SECOND, SECOND)
    assert values(node.collect(5)) == pytest.approx(
        {
            ("host.on_cpu_ratio", (*S, ("thread", "main"))): 0.8,
            ("host.run_queue_wait_ratio", (*S, ("thread", "main"))): 0.2,
            ("host.on_cpu_ratio", (*S, ("thread", "others"))): 0.6,
            ("host.run_queue_wait_ratio", (*S, ("thread", "others"))): 0.1,
            ("host.on_cpu_ratio", (("process", "main"), ("thread", "main"))): 0.05,
            ("host.run_queue_wait_ratio", (("process", "main"), ("thread", "main"))): 0,
            ("host.on_cpu_ratio", (("process", "detokenizer"), ("thread", "main"))): 0.2,
            ("host.run_queue_wait_ratio", (("process", "detokenizer"), ("thread", "main"))): 0.2,
            ("host.on_cpu_ratio", (("process", "other"), ("thread", "main"))): 0,
            ("host.run_queue_wait_ratio", (("process", "other"), ("thread", "main"))): 0,
        }
    )


def test_children_are_found_without_the_kernels_list_of_them(node: Node) -> None:
    node.server(children=False)
    node.collect()
    processes = {dict(labels)["process"] for _, labels in values(node.collect())}
    assert processes == {"scheduler", "main", "detokenizer", "other"}


def test_processes_of_one_role_add_up(node: Node) -> None:
    node.server()
    node.fake.process(302, "sglang::tokeniz", MAIN)
    node.collect()
    node.fake.thread(301, 301, SECOND, 0)
    node.fake.thread(302, 302, 2 * SECOND, 0)
    key = ("host.on_cpu_ratio", (("process", "other"), ("thread", "main")))
    assert values(node.collect(1))[key] == pytest.approx(3)


def test_data_parallel_controller_stands_between_main_and_schedulers(node: Node) -> None:
    node.fake.process(MAIN, "python", 1)
    node.fake.process(150, "sglang::data_pa", MAIN)
    node.fake.process(DETOKENIZER, "sglang::detoken", MAIN)
    for rank in (0, 1):
        node.fake.process(SCHEDULER + rank, "sglang::schedul", 150)
        node.discovery.note(ring(SCHEDULER + rank, 150, rank))
    node.collect()
    found = [labels for _, labels in values(node.collect(), "host.on_cpu_ratio")]
    assert found == [
        (("process", "scheduler"), ("rank", "tp0"), ("thread", "main")),
        (("process", "scheduler"), ("rank", "tp1"), ("thread", "main")),
        (("process", "main"), ("thread", "main")),
        (("process", "other"), ("thread", "main")),
        (("process", "detokenizer"), ("thread", "main")),
    ]


def test_two_servers_are_kept_apart(node: Node) -> None:
    node.server()
    node.fake.process(1100, "python", 1)
    node.fake.process(1200, "sglang::schedul", 1100)
    node.discovery.note(ring(1200, 1100, port=31000))
    node.collect()
    node.fake.thread(1200, 1200, SECOND, 0)
    readings = [sample for sample in node.collect(1) if isinstance(sample, Reading)]
    busy = [reading for reading in readings if reading.value > 0]
    assert [(reading.target, reading.labels[1]) for reading in busy] == [("127.0.0.1:31000", ("rank", "tp0"))]


def test_process_of_another_pid_namespace_is_not_taken_for_the_scheduler(node: Node) -> None:
    node.fake.process(SCHEDULER, "somebody", 7)
    node.discovery.note(ring(SCHEDULER, MAIN))
    assert "another pid namespace" in of(node.collect(), NoData)[0]
    assert values(node.collect()) == {}


def test_counter_that_goes_backwards_drops_that_difference_only(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.thread(SCHEDULER, SCHEDULER, 9, 20)  # backwards
    node.fake.thread(SCHEDULER, 201, SECOND, 0)
    found = values(node.collect(1), "host.on_cpu_ratio")
    assert (S[0], S[1], ("thread", "main")) not in {labels for _, labels in found}
    assert found["host.on_cpu_ratio", (*S, ("thread", "others"))] == pytest.approx(1)
    node.fake.thread(SCHEDULER, SCHEDULER, 9 + SECOND // 2, 20)
    assert values(node.collect(1))["host.on_cpu_ratio", (*S, ("thread", "main"))] == pytest.approx(0.5)


def test_clock_that_stands_still_gives_nothing(node: Node) -> None:
    node.server()
    node.collect()
    assert values(node.collect(0)) == {}


def test_garbage_in_one_file_silences_one_thread(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.garbage(SCHEDULER, SCHEDULER, "what\0ever")
    found = {labels for _, labels in values(node.collect())}
    assert (*S, ("thread", "main")) not in found
    assert (*S, ("thread", "others")) in found
    node.fake.thread(SCHEDULER, SCHEDULER, 10, 20)
    node.collect(LOOK_S)  # found again, and read for the first time
    assert (*S, ("thread", "main")) in {labels for _, labels in values(node.collect())}


def test_vanished_thread_is_left_out_and_new_ones_are_found(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.end_thread(SCHEDULER, 201)
    node.fake.thread(SCHEDULER, 203, 5 * SECOND, 0)  # began before it was first seen
    node.fake.thread(SCHEDULER, 202, SECOND // 2, 0)
    key = ("host.on_cpu_ratio", (*S, ("thread", "others")))
    assert values(node.collect(1))[key] == pytest.approx(0.5)
    node.fake.thread(SCHEDULER, 203, 6 * SECOND, 0)
    assert values(node.collect(1))[key] == pytest.approx(1)


def test_new_threads_are_found_in_time(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.thread(MAIN, 101, 0, 0)
    key = ("host.on_cpu_ratio", (("process", "main"), ("thread", "others")))
    assert key not in values(node.collect(5))
    assert key not in values(node.collect(LOOK_S))  # found, and read for the first time
    assert key in values(node.collect(5))


def test_reused_pid_is_another_process(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.end(DETOKENIZER)
    node.fake.process(DETOKENIZER, "sglang::detoken", MAIN, start=2000, threads={DETOKENIZER: (9 * SECOND, 0)})
    key = ("host.on_cpu_ratio", (("process", "detokenizer"), ("thread", "main")))
    assert key not in values(node.collect(1))
    node.fake.thread(DETOKENIZER, DETOKENIZER, 10 * SECOND, 0)
    assert values(node.collect(1))[key] == pytest.approx(1)


def test_pid_reused_within_one_interval_of_the_same_start_is_still_noticed(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.end(301)
    node.fake.process(301, "python", MAIN, threads={301: (9 * SECOND, 0)})
    assert ("host.on_cpu_ratio", (("process", "other"), ("thread", "main"))) not in values(node.collect(1))


def test_vanished_scheduler_is_said_and_the_others_go_on(node: Node) -> None:
    node.server()
    node.collect()
    node.fake.end(SCHEDULER)
    samples = node.collect()
    assert "has ended" in of(samples, NoData)[0]
    assert {dict(labels)["process"] for _, labels in values(samples)} == {"main", "detokenizer", "other"}


def test_unreadable_process_is_a_failure_and_the_others_go_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.server()
    listdir = os.listdir

    def refusing(path: str) -> list[str]:
        if path == f"{node.fake.proc}/{MAIN}/task":
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)
    assert "task: permission denied: run" in of(node.collect(), Failure)[0]
    assert "scheduler" in {dict(labels)["process"] for _, labels in values(node.collect())}


def test_unreadable_thread_is_left_out(node: Node) -> None:
    node.server()
    shutil.rmtree(node.fake.proc / str(SCHEDULER) / "task" / "201")
    (node.fake.proc / str(SCHEDULER) / "task" / "201").mkdir()
    assert values(node.collect()) == {}
    assert (*S, ("thread", "others")) in {labels for _, labels in values(node.collect())}


def test_number_of_open_files_is_bounded(node: Node) -> None:
    before = open_files()
    node.collect()
    of_node = open_files() - before
    node.server()
    for tid in range(1000, 1000 + THREADS_MAX):
        node.fake.thread(SCHEDULER, tid, 0, 0)
    assert of(node.collect(), Failure)[0].startswith("6 threads beyond 512")
    stats_of_processes = 4
    assert open_files() <= before + of_node + THREADS_MAX + stats_of_processes
    assert (*S, ("thread", "main")) in {labels for _, labels in values(node.collect())}
    node.host.close()
    assert open_files() == before


def test_files_are_given_back_when_the_servers_go(node: Node) -> None:
    node.collect()
    before = open_files()
    group = node.fake.mount("")
    node.server(cgroup="0::/a\n")
    node.fake.cpu_stat(group / "a", nr_periods=0, nr_throttled=0, throttled_usec=0)
    for _ in range(20):
        node.collect()
    assert open_files() > before
    node.discovery.forget(ring(SCHEDULER, MAIN).key)
    assert of(node.collect(), NoData)
    assert open_files() == before


THROTTLED = ("host.cgroup_throttled_ratio", S)


@pytest.mark.parametrize(
    ("mounts", "cgroup", "directory", "field", "unit"),
    [
        pytest.param([("", "")], "0::/a/b\n", "a/b", "throttled_usec", 1000, id="version 2"),
        pytest.param([("", "")], "0::/a/b\n", "a", "throttled_usec", 1000, id="limit of the group above"),
        pytest.param([("cpu", "cpu,cpuacct")], "3:cpu,cpuacct:/a\n", "cpu/a", "throttled_time", 1, id="version 1"),
        pytest.param([("cpu", "cpu"), ("unified", "")], "1:cpu:/a\n0::/u\n", "cpu/a", "throttled_time", 1, id="hybrid"),
        pytest.param([("a b", "")], "0::/c d\n", "a b/c d", "throttled_usec", 1000, id="names with spaces"),
    ],
)
def test_throttled_share(
    node: Node, mounts: list[tuple[str, str]], cgroup: str, directory: str, field: str, unit: int
) -> None:
    for point, controllers in mounts:
        node.fake.mount(point, controllers=controllers)
    node.server(cgroup)
    path = node.fake.cgroup / directory
    node.fake.cpu_stat(path, nr_periods=10, nr_throttled=3, **{field: 7 * SECOND // unit})
    assert THROTTLED not in values(node.collect())
    node.fake.cpu_stat(path, nr_periods=60, nr_throttled=13, **{field: 8 * SECOND // unit})
    assert values(node.collect(5))[THROTTLED] == pytest.approx(0.2)
    node.fake.cpu_stat(path, nr_periods=0, nr_throttled=0, **{field: 0})  # backwards
    assert THROTTLED not in values(node.collect(5))
    assert values(node.collect(5))[THROTTLED] == 0


def test_container_seen_from_its_own_namespace(node: Node) -> None:
    path = node.fake.mount("", root="/docker/me")
    node.server("0::/docker/me\n")
    node.fake.cpu_stat(path, nr_periods=1, nr_throttled=0, throttled_usec=0)
    node.collect()
    assert values(node.collect())[THROTTLED] == 0


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/../other\n", "0::/gone\n", "nonsense", ""])
def test_group_without_limits_or_out_of_sight_has_no_reading(node: Node, cgroup: str) -> None:
    node.fake.cpu_stat(node.fake.mount(""), usage_usec=5)  # the root group
    node.server(cgroup)
    node.collect()
    found = values(node.collect())
    assert THROTTLED not in found
    assert found


def test_garbage_in_cpu_stat_is_passed_over(node: Node) -> None:
    path = node.fake.mount("") / "a"
    node.server("0::/a\n")
    node.fake.cpu_stat(path, nr_periods=1, nr_throttled=0, throttled_usec=0)
    node.collect()
    (path / "cpu.stat").write_text("throttled_usec minus one\n")
    assert THROTTLED not in values(node.collect())
    node.fake.cpu_stat(path, nr_periods=1, nr_throttled=0, throttled_usec=0)
    assert THROTTLED not in values(node.collect())
    assert values(node.collect())[THROTTLED] == 0


def test_scheduler_that_moves_to_another_group_is_followed(node: Node) -> None:
    root = node.fake.mount("")
    node.server("0::/a\n")
    for name, usec in (("a", 0), ("b", 900)):
        node.fake.cpu_stat(root / name, nr_periods=1, nr_throttled=0, throttled_usec=usec)
    node.collect()
    (node.fake.proc / str(SCHEDULER) / "cgroup").write_text("0::/b\n")
    shutil.rmtree(root / "a")
    assert THROTTLED not in values(node.collect())
    node.fake.cpu_stat(root / "b", nr_periods=1, nr_throttled=0, throttled_usec=900 + 1_000_000)
    assert values(node.collect(2))[THROTTLED] == pytest.approx(0.5)


def test_without_mountinfo_there_are_shares_but_no_throttling(node: Node) -> None:
    node.server("0::/a\n")
    node.collect()
    assert {name for name, _ in values(node.collect())} == {"host.on_cpu_ratio", "host.run_queue_wait_ratio"}


def test_real_process_with_threads_that_come_and_go() -> None:
    script = (
        "import sys, threading, time\n"
        "sys.stdin.readline()\n"
        "end = time.thread_time() + 0.3\n"
        "thread = threading.Thread(target=time.sleep, args=(0.1,))\n"
        "thread.start()\n"
        "while time.thread_time() < end: pass\n"
        "print('done', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        discovery = Discovery([])
        discovery.note(ring(child.pid, os.getpid()))
        host = HostCollector(Host(), discovery)
        first = time.monotonic_ns()
        list(host.collect(Now(first, 0)))
        child.stdin.write(b"go\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"done\n"
        now = time.monotonic_ns()
        found = values(list(host.collect(Now(now, 0))))
        busy = found["host.on_cpu_ratio", (*S, ("thread", "main"))] * (now - first) / SECOND
        assert busy == pytest.approx(0.3, abs=0.1)  # of CPU time, however long it took to get it
        child.stdin.close()
        child.wait()
    samples = list(host.collect(Now(time.monotonic_ns(), 0)))
    assert "has ended" in of(samples, NoData)[0]
    host.close()


def test_own_process_shows_every_thread() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    try:
        discovery = Discovery([])
        discovery.note(ring(os.getpid(), os.getppid()))
        host = HostCollector(Host(), discovery)
        list(host.collect(Now(1, 0)))
        found = {labels for _, labels in values(list(host.collect(Now(1 + SECOND, 0))))}
        assert {(*S, ("thread", "main")), (*S, ("thread", "others"))} <= found
        host.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(("state", "stopped"), [("R", 0), ("S", 0), ("T", 1), ("t", 1)])
def test_a_stopped_scheduler_is_told_from_one_that_sleeps(state: str, stopped: int) -> None:
    """By a signal or by a debugger: both are off the CPU without waiting for one."""
    fields = " ".join("7" for _ in range(49))
    assert parse_activity(f"12 (sglang::schedul) {state} {fields}".encode())["host.stopped_ratio"] == stopped
