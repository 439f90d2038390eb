"""Days of a daemon's life in minutes: the real server, moved by hand from one window to the next.

Everything but its timers is real: collectors on a node's files, a ring, SGLang's pages over HTTP and a recording of
NVML, the queue, detection, the writer's thread with SQLite on disk, its upkeep, incidents, and scrapes. On the third
day the server is slower for an hour, and every few hours a collector hangs. What grows, is lost or is left out without
being counted must show.
"""

import contextlib
import gc
import itertools
import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from prometheus_client import generate_latest

import rings
from cyclewatch.collectors.base import Now
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.collectors.runner import Runner
from cyclewatch.config.settings import Discovery, Engine, ForwardPass, Gpu, Host, Rings, SelfUsage, Settings, Windows
from cyclewatch.config.web import Web
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store import retention
from fake_http import Answer, HttpServer, http_server
from host_trees import Node, files
from nvml_lab import recording
from rings import PlainRing

SECOND = 10**9
HOUR_S = 3600
DAY_S = 24 * HOUR_S
ORIGIN = Now(10**15, 1_800_000_000 * SECOND)
STEP_S = 30
"""One window, one turn, and one look at incidents."""

CYCLES = 20
"""In one window."""

PAGES = Path(__file__).parent.parent / "fixtures/engine"
OFTEN_S = 120
SELDOM_S = 600
HANGS_EVERY_S = 5 * HOUR_S
HANGS_S = 10 * 60
PARTS = 8
GROWTH_BYTES = 8 * 2**20
WAL_BYTES = 16 * 2**20
SLOW_S = (2 * DAY_S, 2 * DAY_S + HOUR_S)


class HandClock:
    """A clock that the test moves, from `ORIGIN` on."""

    def __init__(self) -> None:
        self.passed_s = 0

    def now(self) -> Now:
        passed_ns = self.passed_s * SECOND
        return Now(ORIGIN.monotonic_ns + passed_ns, ORIGIN.wall_ns + passed_ns)

    def real_seconds(self, seconds: float) -> float:
        return seconds


@dataclass(frozen=True)
class Held:
    """What the process holds at the end of a while, in bytes where it is no number of things."""

    rss: int
    files: int
    threads: int
    wal: int
    database: int


class Life:
    """A server whose time passes by hand."""

    def __init__(self, directory: Path, memory: Path, http: HttpServer) -> None:
        self.clock = HandClock()
        self.node = Node("intel-bare-metal", memory / "node")
        (memory / "rings").mkdir()
        self.ring = PlainRing(memory / "rings", 4096, self._identity(http.port))
        self.server = Server(self._settings(directory, memory / "rings"), self.clock, RecordedDoor(recording("h200")))
        self.http = http
        self.due: Counter[str] = Counter()
        self._database = directory / "state/cyclewatch.db"
        self._random = np.random.default_rng(1)
        self._trees = itertools.cycle((files(self.node.name, "after"), files(self.node.name, "before")))
        self.server._writer.start()

    def _identity(self, port: int) -> dict[str, object]:
        """Of a scheduler that is among the processes of the node."""
        (scheduler,) = rings_of(self.node)
        proc = self.node.root / "proc"
        own = proc / str(os.getpid())
        (own / "ns").mkdir(parents=True)
        (own / "ns/pid").touch()
        (proc / "self").symlink_to(own.name)
        namespace = own / "ns/pid"
        return rings.identity(
            **scheduler,
            pid_namespace=namespace.stat().st_ino,
            monotonic_ns=ORIGIN.monotonic_ns,
            wall_ns=ORIGIN.wall_ns,
            server={"host": "127.0.0.1", "port": port, "model_path": "tiny"},
        )

    def _settings(self, directory: Path, of_rings: Path) -> Settings:
        root = self.node.root
        return Settings(
            state_dir=directory / "state",
            web=Web(enabled=False),
            rings=Rings(directory=of_rings, interval_s=STEP_S),
            windows=Windows(length_s=STEP_S),
            forward_pass=ForwardPass(interval_s=OFTEN_S),
            discovery=Discovery(interval_s=SELDOM_S),
            engine=Engine(interval_s=OFTEN_S),
            host=Host(interval_s=OFTEN_S, proc=root / "proc", sys=root / "sys", cgroup=root / "sys/fs/cgroup"),
            gpu=Gpu(interval_s=OFTEN_S),
            self=SelfUsage(enabled=False),
        )

    def live(self, seconds: int) -> Held:
        """Let time pass; what is held after it."""
        end_s = self.clock.passed_s + seconds
        while self.clock.passed_s < end_s:
            self.clock.passed_s += STEP_S
            self._serve()
            self._collect()
            self.server._take_all()
            self.server._turn()
            self.server._alerting._incidents.look()
            if self.clock.passed_s % SELDOM_S == 0:
                self._rest()
        self.http.requests.clear()
        gc.collect()
        process = psutil.Process()
        wal, database = (Path(f"{self._database}{end}").stat().st_size for end in ("-wal", ""))
        return Held(process.memory_info().rss, process.num_fds(), process.num_threads(), wal, database)

    def _serve(self) -> None:
        """The cycles of one window."""
        end_ns = self.clock.now().monotonic_ns
        slow = SLOW_S[0] <= self.clock.passed_s < SLOW_S[1]
        for number, noise in enumerate(self._random.lognormal(0, 0.03, CYCLES)):
            cycle_ns = int(5e6 * noise * (1.3 if slow else 1))
            at_ns = end_ns - (CYCLES - number) * STEP_S * SECOND // (CYCLES + 1)
            self.ring.write(rings.payload(end_ns=at_ns, cycle_ns=cycle_ns, launch_ns=cycle_ns, kv_tokens=4000))
        self.ring.write_counters(heartbeat_ns=end_ns)

    def _collect(self) -> None:
        """What is due, as the schedule runs it; now and then one collector hangs for ten minutes."""
        for place, runner in enumerate(self.server._runners):
            name = runner.collector.name
            if self.clock.passed_s % runner.collector.interval_s:
                continue
            self.due[name] += 1
            with self._hanging(runner, self.clock.passed_s // HANGS_EVERY_S % len(self.server._runners) == place):
                self.server._schedule._run(runner)

    @contextlib.contextmanager
    def _hanging(self, runner: Runner, its_turn: bool) -> Iterator[None]:
        """While a run of before has not ended, as the runner sees it."""
        with runner._busy if its_turn and self.clock.passed_s % HANGS_EVERY_S < HANGS_S else contextlib.nullcontext():
            yield

    def _rest(self) -> None:
        """Other readings of the node, a scrape; and the writer catches up."""
        self.node.write(next(self._trees))
        generate_latest(self.server.metrics.page)
        deadline = time.monotonic() + 60
        while self.server._writer.waiting:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def counted(self, name: str, collector: str) -> float:
        """A count of /metrics for one collector."""
        value = self.server.metrics.registry.get_sample_value(name, {"collector": collector})
        assert value is not None
        return value

    def end(self) -> None:
        """As the server drains, but for its timers, which never ran."""
        self.server.pipeline.flush(self.clock.now(), checkpoint=True)
        assert self.server._writer.stop(60)
        for runner in self.server._runners:
            assert runner.close(10)
        self.server._engine.dispose()
        self.ring.close()

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """What is stored, read without the code under test."""
        with contextlib.closing(sqlite3.connect(self._database)) as file:
            return file.execute(question).fetchall()


def rings_of(node: Node) -> list[dict[str, int]]:
    """Process id and start of each scheduler of a node, and its parent's."""
    found = []
    for pid in node.schedulers:
        parent, start = stat_of(node, pid)
        found.append(
            {"pid": pid, "start_ticks": start, "parent_pid": parent, "parent_start_ticks": stat_of(node, parent)[1]}
        )
    return found


def stat_of(node: Node, pid: int) -> tuple[int, int]:
    """Parent and start of a process."""
    fields = (node.root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])


@pytest.fixture(name="life")
def _life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    """The writer's upkeep pauses as much shorter as time passes faster."""
    monkeypatch.setattr(retention, "_BETWEEN_STEPS_S", 0.001)
    monkeypatch.setattr(retention, "_IDLE_S", 0.1)
    answers = {
        "/metrics": Answer((PAGES / "metrics-0.5.23.txt").read_bytes()),
        "/server_info": Answer((PAGES / "server_info-0.5.23.json").read_bytes(), content_type="application/json"),
    }
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, http_server(answers) as http:
        yield Life(tmp_path, Path(memory), http)


@pytest.mark.story
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("days", [1, 7])
def test_nothing_grows_and_nothing_is_left_out_uncounted(life: Life, days: int) -> None:
    """Memory, descriptors, threads and the WAL stay what they were after the first quarter."""
    held = []
    for part in range(PARTS):
        began_s = time.monotonic()
        held.append(life.live(days * DAY_S // PARTS))
        print(f"{part + 1} of {PARTS}, {time.monotonic() - began_s:.0f} s: {held[-1]}")
    life.end()
    first, *later = held[PARTS // 4 :]
    for one in later:
        assert one.files <= first.files
        assert one.threads <= first.threads
        assert one.rss < first.rss + GROWTH_BYTES
        assert one.wal < WAL_BYTES
    missed = {}
    for name, due in life.due.items():
        missed[name] = life.counted("cyclewatch_collector_missed_runs_total", name)
        assert life.counted("cyclewatch_collector_duration_seconds_count", name) + missed[name] == due
    print(f"due: {dict(life.due)}, missed: {missed}")
    print("found:", life.ask("SELECT kind, direction, state, effect FROM regressions"))
    assert sum(missed.values()) >= 1
    assert life.server.metrics.samples_dropped._value.get() == 0
    ((stored,),) = life.ask("SELECT sum(count) FROM windows")
    # Where the rings were not read for ten minutes, windows were over before their cycles came; the last one is open.
    late = life.server.metrics.records_refused.labels("late")._value.get()
    assert life.ring.written - CYCLES < stored + late <= life.ring.written
    oldest_fine_ns = life.clock.now().wall_ns - 49 * HOUR_S * SECOND
    ((summed_up_ns,),) = life.ask("SELECT until_ns FROM rollups WHERE name = 'timeline'")
    assert life.clock.now().wall_ns - summed_up_ns < 8 * HOUR_S * SECOND
    assert life.ask("SELECT min(start_ns) FROM windows WHERE length_ns < 60000000000")[0][0] > oldest_fine_ns
    slowed = [("level", "slower", "resolved")] if days * DAY_S > SLOW_S[1] else []
    assert life.ask("SELECT kind, direction, state FROM regressions") == slowed
