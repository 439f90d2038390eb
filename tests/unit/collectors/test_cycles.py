import itertools
import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import rings
from cyclewatch.collectors.base import Now
from cyclewatch.collectors.cycles import KEEP_ENDED_NS, KEEP_SILENT_NS, MAX_RINGS, SILENT_NS, CyclesCollector
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.procfs import parse_stat
from cyclewatch.collectors.records import CycleBatch, Failure, NoData, Sample
from cyclewatch.config.settings import Rings, Target
from rings import PlainRing

SECOND = 10**9
NOW = Now(10**15, 10**18)


class World:
    """A ring directory, and the collector that looks at it."""

    def __init__(self, directory: Path, targets: tuple[Target, ...] = ()) -> None:
        self.directory = directory
        self.directory.mkdir()
        self.discovery = Discovery(targets)
        self.collector = self.new_collector({})
        self._rings: list[PlainRing] = []

    def new_collector(self, resume: dict[str, int], proc: Path = Path("/proc")) -> CyclesCollector:
        return CyclesCollector(Rings(directory=self.directory), self.discovery, proc, resume)

    def ring(self, *, records: int = 0, capacity: int = 64, **changes: Any) -> PlainRing:
        ring = PlainRing(self.directory, capacity, rings.identity(**changes))
        self._rings.append(ring)
        for _ in range(records):
            ring.write()
        return ring

    def collect(self, now: Now = NOW) -> list[Sample]:
        return list(self.collector.collect(now))

    def batches(self, now: Now = NOW) -> list[CycleBatch]:
        return [sample for sample in self.collect(now) if isinstance(sample, CycleBatch)]

    def failures(self) -> list[str]:
        return [sample.reason for sample in self.collect() if isinstance(sample, Failure)]

    def close(self) -> None:
        self.collector.close()
        for ring in self._rings:
            ring.close()


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "rings")
    yield world
    world.close()


def put(world: World, content: bytes, name: str = "1-2-3.ring") -> Path:
    path = world.directory / name
    path.write_bytes(content)
    return path


def test_records_of_every_ring_come_with_their_target_and_rank(world: World) -> None:
    """Two ranks of one server."""
    world.ring(records=5, start_ticks=1, tp_rank=0)
    world.ring(records=9, start_ticks=2, tp_rank=1, dp_rank=2)
    batches = world.batches()
    assert {(one.target, one.ring.rank, len(one.records)) for one in batches} == {
        ("127.0.0.1:30000", "tp0", 4),
        ("127.0.0.1:30000", "dp2-tp1", 8),
    }


def test_each_reading_goes_on_where_the_one_before_stopped(world: World) -> None:
    """`next_sequence` is what the store has to remember."""
    ring = world.ring(records=5)
    (first,) = world.batches()
    ring.write()
    (second,) = world.batches()
    assert [*first.records["sequence"], *second.records["sequence"]] == [1, 2, 3, 4, 5]
    assert second.next_sequence == 6


@pytest.mark.parametrize("seed", range(20))
def test_what_a_batch_calls_complete_is_complete(world: World, seed: int) -> None:
    """Whatever is written between the looks: nothing that ended before comes afterwards, however late it is written."""
    chance = random.Random(seed)
    ring = world.ring(capacity=4096)
    now_ns, complete_ns = NOW.monotonic_ns, 0
    for look in range(60):
        looked_ns = now_ns
        for _ in range(chance.choice((0, 0, 1, 2, 30))):
            now_ns += chance.randint(1, 200_000_000)
            ring.write(rings.payload(end_ns=now_ns - chance.randint(0, 90_000_000)))
        now_ns += chance.randint(1, 3 * SECOND)
        (batch,) = world.batches(Now(now_ns, 0))
        assert (batch.records["end_ns"] > complete_ns).all()
        complete_ns = batch.complete_ns
        assert complete_ns == (looked_ns - 100_000_000 if look else 0)


def test_a_look_that_leaves_records_over_completes_nothing(world: World) -> None:
    """As after minutes in which nobody read; a second look that empties the ring tells when the first one was."""
    world.ring(records=70_000, capacity=2**17)
    looks = [NOW.monotonic_ns + number * SECOND for number in range(4)]
    told = [one.complete_ns for at_ns in looks for one in world.batches(Now(at_ns, 0))]
    assert told[:2] == [0, 0]
    assert looks[0] < told[2] < looks[1] < told[3] < looks[2]


def test_the_last_batch_of_a_server_that_has_ended_is_marked(world: World) -> None:
    """Once a look after its end found nothing, and held nothing back."""
    world.ring(records=3, pid=2**22 + 1)
    batches = [one for _ in range(4) for one in world.batches()]
    assert [(len(one.records), one.over) for one in batches] == [(2, False), (1, False), (0, True), (0, True)]


def test_a_remembered_place_is_where_reading_begins(world: World) -> None:
    """As after a restart of the daemon."""
    ring = world.ring(records=10)
    world.collector = world.new_collector({ring.key: 7})
    (batch,) = world.batches()
    assert list(batch.records["sequence"]) == [7, 8, 9]


def test_a_place_is_kept_until_the_ring_can_be_read(world: World) -> None:
    """A file that cannot be opened at first loses nothing."""
    ring = world.ring(records=10)
    world.collector = world.new_collector({ring.key: 7})
    whole = ring.path.read_bytes()
    os.pwrite(ring.fd, b"X", 0)
    assert world.failures()
    os.pwrite(ring.fd, whole[:1], 0)
    os.utime(ring.path)
    (batch,) = world.batches()
    assert list(batch.records["sequence"]) == [7, 8, 9]


def test_no_directory_is_no_data_that_says_what_to_do(world: World) -> None:
    """Not a failure: no server has been set up yet."""
    world.directory.rmdir()
    (sample,) = world.collect()
    assert isinstance(sample, NoData)
    assert str(world.directory) in sample.reason
    assert "CYCLEWATCH_RING_DIR" in sample.reason


def test_an_empty_directory_is_no_data(world: World) -> None:
    (sample,) = world.collect()
    assert isinstance(sample, NoData)
    assert "no ring in" in sample.reason


def test_files_of_other_kinds_are_left_alone(world: World) -> None:
    """A ring under construction ends in .tmp."""
    put(world, b"", "1-2-3.ring.tmp")
    put(world, b"", "notes.txt")
    assert world.failures() == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"garbage" * 2000, id="foreign"),
        pytest.param(rings.header(b"{}", 64), id="identity"),
        pytest.param(rings.header(json.dumps(rings.identity()).encode(), 2**40), id="capacity"),
        pytest.param(rings.header(json.dumps(rings.identity()).encode(), 64, version=9), id="version"),
    ],
)
def test_a_bad_file_is_reported_once_and_again_when_it_changes(world: World, content: bytes) -> None:
    """Named in its sentence; the other rings are read all the while."""
    world.ring(records=3)
    path = put(world, content)
    (reason,) = world.failures()
    assert reason.startswith(f"{path}: ")
    assert "\n" not in reason
    assert world.failures() == []
    assert len(world.batches()) == 1
    path.write_bytes(content + b"x")
    os.utime(path, ns=(1, 1))
    assert len(world.failures()) == 1
    assert world.failures() == []


def test_a_bad_file_that_becomes_good_is_read(world: World) -> None:
    """A copy that was not complete yet."""
    ring = world.ring(records=3)
    good = ring.path.read_bytes()
    ring.path.write_bytes(good[:100])
    assert len(world.failures()) == 1
    ring.path.write_bytes(good)
    os.utime(ring.path, ns=(1, 1))
    assert len(world.batches()) == 1


@pytest.mark.timeout(10)
def test_what_is_no_plain_file_is_reported_once_and_stops_nothing(world: World, tmp_path: Path) -> None:
    """A directory, a pipe, a link, a socketless name: each with its sentence, none blocks."""
    world.ring(records=3)
    (world.directory / "1-1-1.ring").mkdir()
    os.mkfifo(world.directory / "1-1-2.ring")
    (world.directory / "1-1-3.ring").symlink_to(world.ring(start_ticks=8).path)
    (world.directory / "1-1-4.ring").symlink_to(tmp_path / "nowhere")
    (world.directory / "1-1-5.ring").symlink_to("/dev/zero")
    (world.directory / "strange\nname.ring").mkdir()
    reasons = world.failures()
    assert len(reasons) == 6
    assert all(str(world.directory) in reason for reason in reasons)
    assert world.failures() == []
    assert len(world.batches()) == 2


def test_a_file_that_must_not_be_read_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is missing; tests may run as root, so the refusal is played."""
    world.ring(records=3)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    (reason,) = world.failures()
    assert reason.endswith("cannot be read: Permission denied")


def test_a_ring_that_is_deleted_while_one_looks_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading the directory and opening the file."""
    ring = world.ring(records=3)
    names = [ring.path]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(names))
    ring.path.unlink()
    assert [type(sample) for sample in world.collect()] == [NoData]


def test_a_ring_that_fails_while_open_is_reported_and_opened_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input error of one ring, the other goes on."""
    world.ring(records=3, start_ticks=1)
    world.ring(records=3, start_ticks=2)
    assert len(world.batches()) == 2
    real, calls = os.pread, iter([None])

    def fail_once(*call: int) -> bytes:
        if next(calls, "done") is None:
            raise OSError(5, "Input/output error")
        return real(*call)

    monkeypatch.setattr("os.pread", fail_once)
    samples = world.collect()
    (failure,) = [sample for sample in samples if isinstance(sample, Failure)]
    assert failure.reason.endswith("Input/output error")
    assert len([sample for sample in samples if isinstance(sample, CycleBatch)]) == 1
    assert len(world.batches()) == 2


def test_what_is_left_in_a_deleted_ring_is_read(world: World) -> None:
    """Then it is forgotten, and its descriptor closed."""
    before = psutil.Process().num_fds()
    ring = world.ring(records=3)
    world.batches()
    ring.write()
    ring.path.unlink()
    batches = world.batches()
    assert [(list(one.records["sequence"]), one.over) for one in batches] == [([3], False), ([4], True)]
    assert world.batches() == []
    assert world.discovery.schedulers() == ()
    assert psutil.Process().num_fds() == before + 1  # the writer's


def test_a_ring_made_anew_under_the_same_name_is_read_from_its_beginning(world: World) -> None:
    """The old file is let go of, although the directory looks the same."""
    world.ring(records=3)
    world.batches()
    (world.directory / "x").mkdir()
    old = next(world.directory.glob("*.ring"))
    old.unlink()
    world.ring(records=6)
    batches = world.batches()
    assert [list(one.records["sequence"]) for one in batches] == [[3], [], [1, 2, 3, 4, 5]]


def test_a_directory_that_vanishes_and_comes_back(world: World) -> None:
    """No data in between, and nothing twice afterwards."""
    ring = world.ring(records=3)
    world.batches()
    away = world.directory.with_name("away")
    world.directory.rename(away)
    assert [type(sample) for sample in world.collect()] == [NoData]
    away.rename(world.directory)
    ring.write()
    (batch,) = world.batches()
    assert list(batch.records["sequence"]) == [3]


def test_more_rings_than_can_be_read_are_a_failure_and_the_first_are_read(world: World) -> None:
    """The limit is said, not silently kept."""
    for number in range(MAX_RINGS + 3):
        world.ring(capacity=2, start_ticks=1000 + number).close()
    world._rings.clear()
    samples = world.collect()
    (failure,) = [sample for sample in samples if isinstance(sample, Failure)]
    assert f"{MAX_RINGS + 3} rings, only the first {MAX_RINGS}" in failure.reason
    assert len([sample for sample in samples if isinstance(sample, CycleBatch)]) == MAX_RINGS


def test_a_file_cut_off_is_reported_once(world: World) -> None:
    """Until it is whole again."""
    ring = world.ring(records=3)
    world.collect()
    os.truncate(ring.path, 4096)
    (reason,) = world.failures()
    assert "was cut off by somebody" in reason
    assert world.failures() == []
    os.truncate(ring.path, 4096 + 64 * 128)
    assert world.failures() == []
    os.truncate(ring.path, 0)
    assert len(world.failures()) == 1


def test_damaged_counters_keep_the_last_good_ones(world: World) -> None:
    """A block that is just being rewritten is no news."""
    ring = world.ring(records=3)
    ring.write_counters(failures=7)
    world.collect()
    os.pwrite(ring.fd, b"\xff", 3072)
    (batch,) = world.batches()
    assert batch.counters.failures == 7


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        pytest.param({}, True, id="this process"),
        pytest.param({"start_ticks": 1}, False, id="a later process with its number"),
        pytest.param({"pid": 2**22 + 1}, False, id="ended"),
    ],
)
def test_a_writer_is_alive_as_long_as_its_process(world: World, changes: dict[str, int], alive: bool) -> None:
    """Same pid and same start, in our own pid namespace."""
    world.ring(records=1, **changes)
    (batch,) = world.batches()
    assert batch.alive is alive
    assert len(world.discovery.schedulers()) == alive


def test_a_writer_that_is_dead_and_not_reaped_has_ended(world: World) -> None:
    """Its parent may never ask what became of it."""
    with subprocess.Popen(["/bin/sleep", "60"]) as writer:
        start_ticks = parse_stat(Path(f"/proc/{writer.pid}/stat").read_bytes()).start_ticks
        world.ring(records=1, pid=writer.pid, start_ticks=start_ticks)
        assert [one.alive for one in world.batches()] == [True]
        writer.kill()
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
        assert [one.alive for one in world.batches()] == [False]


def test_in_another_pid_namespace_the_heartbeat_tells(world: World) -> None:
    """Its processes cannot be seen; ten minutes of silence are its end."""
    began = rings.identity()["monotonic_ns"]
    ring = world.ring(records=1, pid_namespace=1, pid=7, monotonic_ns=began)
    assert [one.alive for one in world.batches(Now(began + SECOND, 0))] == [True]
    assert [one.alive for one in world.batches(Now(began + SILENT_NS, 0))] == [False]
    assert world.discovery.schedulers() == ()
    ring.write_counters(heartbeat_ns=began + SILENT_NS)
    assert [one.alive for one in world.batches(Now(began + SILENT_NS + SECOND, 0))] == [True]
    assert len(world.discovery.schedulers()) == 1


@pytest.mark.parametrize("case", ["another's pids", "hidden", "forbidden"])
def test_where_processes_cannot_be_seen_the_heartbeat_tells(world: World, tmp_path: Path, case: str) -> None:
    """The host's /proc in a container of its own; /proc with `hidepid`: a living writer's ring stays."""
    proc = tmp_path / "proc"
    proc.mkdir()
    own, began = os.getpid(), rings.identity()["monotonic_ns"]
    (proc / "self").symlink_to("4711" if case == "another's pids" else str(own))
    (proc / (proc / "self").readlink() / "ns").mkdir(parents=True)
    (proc / "self/ns/pid").touch()
    if case == "another's pids":  # one of the host has our number
        (proc / str(own)).mkdir()
        (proc / str(own) / "stat").write_bytes(Path("/proc/1/stat").read_bytes())
    elif case == "forbidden":
        (proc / "1").mkdir()
        (proc / "7").symlink_to("7")  # what cannot be followed stands for what must not be read
    namespace = (proc / "self/ns/pid").stat().st_ino
    pid = own if case == "another's pids" else 7
    ring = world.ring(records=1, pid_namespace=namespace, pid=pid, monotonic_ns=began)
    world.collector = world.new_collector({}, proc)
    at_ns = began
    for _ in range(4):
        ring.write_counters(heartbeat_ns=at_ns)
        assert [one.alive for one in world.batches(Now(at_ns + SECOND, 0))] == [True]
        at_ns += KEEP_ENDED_NS
    at_ns += SILENT_NS
    assert [one.alive for one in world.batches(Now(at_ns, 0))] == [False]
    world.collect(Now(at_ns + KEEP_SILENT_NS - SECOND, 0))
    assert ring.path.exists()
    world.collect(Now(at_ns + KEEP_SILENT_NS, 0))
    assert not ring.path.exists()


def test_a_writer_that_was_only_silent_keeps_its_ring(world: World) -> None:
    """Each silence is counted by itself before a ring is cleared away."""
    began = rings.identity()["monotonic_ns"]
    ring = world.ring(records=1, pid_namespace=1, pid=7, monotonic_ns=began)
    at_ns = began
    for _ in range(3):
        at_ns += SILENT_NS
        assert [one.alive for one in world.batches(Now(at_ns, 0))] == [False]
        ring.write_counters(heartbeat_ns=at_ns)
        assert [one.alive for one in world.batches(Now(at_ns + SECOND, 0))] == [True]
    assert ring.path.exists()


@pytest.mark.parametrize(
    ("server", "target"),
    [
        ({"host": "127.0.0.1", "port": 30001}, "named"),
        ({"host": "0.0.0.0", "port": 30001}, "named"),
        ({"host": "::1", "port": 30001}, "named"),
        ({"host": "[::]", "port": 30001}, "named"),
        ({"host": "10.0.0.7", "port": 30001}, "named"),
        ({"host": "10.0.0.7", "port": 30002}, "10.0.0.7:30002"),
        ({"host": "fe80::1", "port": 30002}, "[fe80::1]:30002"),
        ({"host": None, "port": 30002}, "127.0.0.1:30002"),
        ({"host": "[::1", "port": 30002}, "sglang-77"),
        ({"host": "h", "port": 99999}, "sglang-77"),
        ({"host": "h", "port": "30001"}, "sglang-77"),
        ({"host": "h" * 200, "port": 30002}, "h" * 64),
        ({}, "sglang-77"),
    ],
)
def test_the_target_of_a_ring_is_the_configured_server_or_its_address(
    tmp_path: Path, server: dict[str, object], target: str
) -> None:
    """Whatever a server calls its own address; nonsense gets a name too, and stops nothing."""
    world = World(tmp_path / "rings", (Target.model_validate({"name": "named", "url": "http://localhost:30001"}),))
    world.ring(server=server, parent_pid=77)
    assert [one.target for one in world.batches()] == [target]
    world.close()


def test_closing_twice_is_harmless_and_gives_everything_back(world: World) -> None:
    """And a collector that was closed can collect again."""
    before = psutil.Process().num_fds()
    world.ring(records=2)
    world.collect()
    world.collector.close()
    world.collector.close()
    assert psutil.Process().num_fds() == before + 1
    assert len(world.batches()) == 1


def test_the_ring_of_a_process_that_ended_is_cleared_away_in_the_end(world: World) -> None:
    """It holds memory: ten minutes after its writer was seen dead it is deleted; a living writer's stays."""
    ended = world.ring(records=2, pid=2**22 - 1)
    living = world.ring(records=2)
    world.collect()
    world.collect(Now(NOW.monotonic_ns + KEEP_ENDED_NS - SECOND, NOW.wall_ns))
    assert ended.path.exists()
    world.collect(Now(NOW.monotonic_ns + KEEP_ENDED_NS, NOW.wall_ns))
    assert not ended.path.exists()
    assert living.path.exists()


class TestSeveralServers:
    """Ranks and servers on one node, each in its place."""

    def test_two_servers_with_all_their_ranks(self, world: World) -> None:
        """Four tensor-parallel ranks here, two data-parallel groups of two there."""
        running = {"pid_namespace": 1, "monotonic_ns": NOW.monotonic_ns}
        for rank in range(4):
            world.ring(start_ticks=rank + 1, tp_rank=rank, **running)
        for dp, tp in itertools.product(range(2), range(2)):
            world.ring(
                start_ticks=11 + 2 * dp + tp,
                parent_pid=4000,
                dp_rank=dp,
                tp_rank=tp,
                server={"host": "127.0.0.1", "port": 30001},
                **running,
            )
        places = sorted((one.target, one.ring.rank) for one in world.batches())
        assert places == [
            *(("127.0.0.1:30000", f"tp{rank}") for rank in range(4)),
            *(("127.0.0.1:30001", f"dp{dp}-tp{tp}") for dp, tp in itertools.product(range(2), range(2))),
        ]
        assert [server.target for server in world.discovery.servers()] == ["127.0.0.1:30000", "127.0.0.1:30001"]

    def test_two_containers_with_the_same_port_are_two_servers(self, world: World) -> None:
        """Each has a network of its own; both have begun long ago, and both are heard."""
        for namespace, tp in itertools.product((1, 2), range(2)):
            ring = world.ring(pid_namespace=namespace, pid=7, start_ticks=tp, tp_rank=tp, monotonic_ns=0)
            ring.write_counters(heartbeat_ns=NOW.monotonic_ns)
        places = sorted((one.target, one.ring.rank) for one in world.batches())
        assert places == [
            ("127.0.0.1:30000", "tp0"),
            ("127.0.0.1:30000", "tp1"),
            ("127.0.0.1:30000-2", "tp0"),
            ("127.0.0.1:30000-2", "tp1"),
        ]
        assert [server.target for server in world.discovery.servers()] == ["127.0.0.1:30000"]
        assert {process.target for process in world.discovery.schedulers()} == {"127.0.0.1:30000", "127.0.0.1:30000-2"}

    def test_a_container_that_was_restarted_is_the_same_server(self, world: World) -> None:
        """The ring of the start before turns no more; until that can be told the new one waits, and loses nothing."""
        before = world.ring(pid_namespace=1, pid=7, start_ticks=1, monotonic_ns=0)
        before.write_counters(heartbeat_ns=NOW.monotonic_ns)
        assert len(world.batches()) == 1
        world.ring(records=3, pid_namespace=2, pid=7, start_ticks=1, monotonic_ns=NOW.monotonic_ns + 1)
        assert [one.ring.key for one in world.batches(at(1))] == [before.key]
        first, second = world.batches(at(6))
        assert (first.target, second.target) == ("127.0.0.1:30000", "127.0.0.1:30000")
        assert [len(first.records), len(second.records)] == [0, 2]

    @pytest.mark.parametrize("namespaces", [(1, 2), (2, 1)])
    def test_the_ring_of_the_start_before_is_of_the_same_server(
        self, world: World, namespaces: tuple[int, int]
    ) -> None:
        """Found by a daemon that starts after the server did, in whatever order they are found."""
        earlier, later = namespaces
        before = world.ring(records=3, pid_namespace=earlier, pid=7, start_ticks=1, monotonic_ns=0)
        before.write_counters(heartbeat_ns=at(-30).monotonic_ns)
        ring = world.ring(records=3, pid_namespace=later, pid=7, start_ticks=1, monotonic_ns=at(-20).monotonic_ns)
        ring.write_counters(heartbeat_ns=NOW.monotonic_ns)
        assert [one.target for one in world.batches()] == ["127.0.0.1:30000", "127.0.0.1:30000"]

    def test_a_second_container_is_told_apart_as_soon_as_both_are_heard(self, world: World) -> None:
        first = world.ring(pid_namespace=1, pid=7, start_ticks=1, monotonic_ns=0)
        first.write_counters(heartbeat_ns=NOW.monotonic_ns)
        world.collect()
        world.ring(pid_namespace=2, pid=7, start_ticks=1, monotonic_ns=NOW.monotonic_ns)
        first.write_counters(heartbeat_ns=at(3).monotonic_ns)
        assert sorted(one.target for one in world.batches(at(3))) == ["127.0.0.1:30000", "127.0.0.1:30000-2"]


def at(seconds: float) -> Now:
    """So long after `NOW`."""
    return Now(NOW.monotonic_ns + int(seconds * SECOND), NOW.wall_ns + int(seconds * SECOND))
