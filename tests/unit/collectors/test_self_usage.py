import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.records import NODE, Failure, Reading, Sample
from cyclewatch.collectors.registry import build_collectors
from cyclewatch.collectors.self_usage import RingProgress, SelfCollector, Work
from cyclewatch.config.settings import Host, SelfUsage, Settings
from fake_proc import FakeProc

SECOND = 10**9
STATUS = "Name:\tcyclewatch\nVmHWM:\t  120000 kB\nVmRSS:\t  100000 kB\nThreads:\t17\n"


class Daemon:
    """A daemon whose files, CPU time and work are what a test says."""

    def __init__(self, proc: Path) -> None:
        self.own = proc / "self"
        (self.own / "fd").mkdir()
        (self.own / "status").write_text(STATUS)
        self.cpu_ns = 0
        self.work = Work()
        self.collector = SelfCollector(SelfUsage(), lambda: self.work, self.own, lambda: self.cpu_ns)

    def collect(self, at_s: float) -> list[Sample]:
        return list(self.collector.collect(Now(int(at_s * 1e9), 1)))

    def values(self, at_s: float) -> dict[tuple[str, ...], float]:
        """Readings by target, name and the values of their labels."""
        samples = self.collect(at_s)
        return {
            (one.target, one.name.removeprefix("self."), *(value for _, value in one.labels)): one.value
            for one in samples
            if isinstance(one, Reading)
        }

    def thread(self, tid: int, on_cpu_ns: int) -> None:
        (self.own / f"task/{tid}").mkdir(parents=True, exist_ok=True)
        (self.own / f"task/{tid}/schedstat").write_text(f"{on_cpu_ns} 0 0\n")


@pytest.fixture(name="daemon")
def _daemon(tmp_path: Path) -> Daemon:
    return Daemon(FakeProc(tmp_path).proc)


@pytest.fixture(name="worker")
def _worker() -> Iterator[int]:
    """The number of a thread that is named like those of a pool."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="collector_7")
    thread.start()
    assert thread.native_id is not None
    yield thread.native_id
    ended.set()
    thread.join()


def test_memory_threads_and_files_are_told_at_once(daemon: Daemon) -> None:
    """Bytes are bytes, and no rate is made of one reading."""
    for number in range(3):
        (daemon.own / f"fd/{number}").touch()
    values = daemon.values(1)
    assert values[NODE, "rss_bytes"] == 100_000 * 1024
    assert values[NODE, "rss_peak_bytes"] == 120_000 * 1024
    assert values[NODE, "threads"] == 17
    assert values[NODE, "open_files"] == 3
    assert values[NODE, "open_files_limit"] > 3
    assert (NODE, "cpu_ratio") not in values


def test_cpu_time_is_a_share_of_a_core(daemon: Daemon) -> None:
    daemon.collect(0)
    daemon.cpu_ns = SECOND // 5
    assert daemon.values(10)[NODE, "cpu_ratio"] == pytest.approx(0.02)


def test_threads_of_a_pool_count_together_and_foreign_ones_as_other(daemon: Daemon, worker: int) -> None:
    """What a library starts has no name in Python."""
    own = threading.get_native_id()
    for tid in (own, worker, 10**7, 10**7 + 1):
        daemon.thread(tid, SECOND)
    daemon.collect(0)
    daemon.thread(own, SECOND + SECOND // 2)
    daemon.thread(worker, 2 * SECOND)
    daemon.thread(10**7, SECOND + SECOND // 10)
    values = daemon.values(10)
    assert values[NODE, "thread_cpu_ratio", threading.current_thread().name] == pytest.approx(0.05)
    assert values[NODE, "thread_cpu_ratio", "collector"] == pytest.approx(0.1)
    assert values[NODE, "thread_cpu_ratio", "other"] == pytest.approx(0.01)


def test_threads_have_their_names_where_the_hosts_proc_is_mounted(tmp_path: Path) -> None:
    """There the daemon's threads have other numbers: those of the host."""
    fake = FakeProc(tmp_path)
    task = fake.proc / "self/task/4000100"
    task.mkdir(parents=True)
    (task / "schedstat").write_text(f"{SECOND} 0 0\n")
    settings = Settings(host=Host(proc=fake.proc))
    (collector,) = (one for one in build_collectors(settings, Discovery(()), {}) if one.name == "self")
    list(collector.collect(Now(0, 1)))
    samples = list(collector.collect(Now(SECOND, 1)))
    names = [dict(one.labels).get("thread") for one in samples if isinstance(one, Reading)]
    assert threading.current_thread().name in names


def test_the_work_of_the_store_and_of_the_queues_is_told(daemon: Daemon) -> None:
    daemon.work = Work({"samples": 12, "batches": 3}, store_busy_ns=SECOND, store_rows=100)
    daemon.collect(0)
    daemon.work = Work({"samples": 0, "batches": 4}, store_busy_ns=SECOND + SECOND // 4, store_rows=600)
    values = daemon.values(5)
    assert (values[NODE, "queue_length", "samples"], values[NODE, "queue_length", "batches"]) == (0, 4)
    assert values[NODE, "store_busy_ratio"] == pytest.approx(0.05)
    assert values[NODE, "store_rows_per_s"] == pytest.approx(100)


def test_the_lag_and_the_losses_of_a_ring_are_its_servers(daemon: Daemon) -> None:
    daemon.work = Work(rings=(RingProgress("server", "tp1", behind_records=1, behind_s=0.0, lost=5),))
    daemon.collect(0)
    daemon.work = Work(rings=(RingProgress("server", "tp1", behind_records=900, behind_s=3.5, lost=25),))
    values = daemon.values(10)
    assert values["server", "ring_behind_records", "tp1"] == 900
    assert values["server", "ring_behind_s", "tp1"] == 3.5
    assert values["server", "ring_lost_per_s", "tp1"] == pytest.approx(2)


def test_garbage_collections_are_told_by_generation(daemon: Daemon) -> None:
    daemon.collect(0)
    assert {key[-1] for key in daemon.values(10) if key[1] == "garbage_collections_per_s"} == {"0", "1", "2"}


def test_files_that_cannot_be_read_are_named_and_stop_nothing_else(daemon: Daemon) -> None:
    (daemon.own / "status").write_text("VmRSS: nonsense kB\n")
    (daemon.own / "fd").rmdir()
    daemon.collect(0)
    samples = daemon.collect(1)
    assert [one.source for one in samples if isinstance(one, Failure)] == [
        str(daemon.own / "status"),
        str(daemon.own / "fd"),
    ]
    assert any(isinstance(one, Reading) and one.name == "self.cpu_ratio" for one in samples)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 2**63), st.integers(0, 2**63)), max_size=6))
def test_counts_and_clocks_that_go_backwards_give_no_reading(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[int, int, int]]
) -> None:
    """A rate is never negative, whatever is read, and in whatever order."""
    daemon = Daemon(FakeProc(tmp_path_factory.mktemp("node")).proc)
    for at_ns, cpu_ns, rows in turns:
        daemon.cpu_ns, daemon.work = cpu_ns, Work(store_rows=rows)
        assert all(value >= 0 for value in daemon.values(at_ns / 1e9).values())
