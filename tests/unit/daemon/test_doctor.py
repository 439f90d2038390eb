import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import rings
from cyclewatch.collectors.fetch import FetchError, Response, UnreachableError
from cyclewatch.config.settings import Rings, Settings, Target
from cyclewatch.daemon import doctor
from cyclewatch.daemon.check import Check, Level
from cyclewatch.daemon.doctor import examine
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.transactions import Transactions
from rings import PlainRing
from units import unit


class FakeFetcher:
    """Servers by address: a status, or an error."""

    def __init__(self, answers: dict[str, int | FetchError]) -> None:
        self.answers = answers

    def get(self, url: str, *, timeout_s: float, max_bytes: int) -> Response:
        answer = self.answers.get(url, UnreachableError(f"{url}: Connection refused: is the server running?"))
        if isinstance(answer, FetchError):
            raise answer
        return Response(answer, "text/plain", b"")


class Node:
    """A node with a ring directory on tmpfs, and what the doctor says about it."""

    def __init__(self, directory: Path) -> None:
        self.rings_directory = directory / "rings"
        self.rings_directory.mkdir()
        self.settings = Settings(state_dir=directory / "state", rings=Rings(directory=self.rings_directory))
        self.fetcher = FakeFetcher({})
        self.file_system = "tmpfs"
        self.processes: list[Any] = []
        self._rings: list[PlainRing] = []

    def ring(self, *, silent_s: int = 0, counters: dict[str, int] | None = None, **changes: Any) -> PlainRing:
        ring = PlainRing(self.rings_directory, 64, rings.identity(**changes))
        ring.write_counters(heartbeat_ns=time.monotonic_ns() - silent_s * 10**9, **counters or {})
        self._rings.append(ring)
        return ring

    def checks(self) -> list[Check]:
        return list(examine(self.settings, self.fetcher))

    def bad(self, subject: str) -> Check:
        """The one bad finding on a subject."""
        (check,) = [one for one in self.checks() if one.subject.startswith(subject) and one.level is Level.BAD]
        return check

    def close(self) -> None:
        for ring in self._rings:
            ring.close()


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path)
    monkeypatch.setattr(
        psutil,
        "disk_partitions",
        lambda *, all: [  # noqa: A006
            SimpleNamespace(mountpoint="/", fstype="ext4"),
            SimpleNamespace(mountpoint=str(tmp_path), fstype=node.file_system),
        ],
    )
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(node.processes))
    yield node
    node.close()


def test_every_finding_that_is_not_good_has_a_mend(node: Node) -> None:
    """On a node where nothing has been set up."""
    node.rings_directory.rmdir()
    checks = node.checks()
    assert any(check.level is Level.BAD for check in checks)
    assert all(check.mend for check in checks if check.level is not Level.GOOD)
    assert all(not check.mend for check in checks if check.level is Level.GOOD)
    assert all("\n" not in check.finding for check in checks)


def test_a_missing_ring_directory_is_named_with_the_command_that_makes_it(node: Node) -> None:
    node.rings_directory.rmdir()
    check = node.bad("ring directory")
    assert (check.subject, check.finding) == (f"ring directory {node.rings_directory}", "does not exist")
    assert f"install -d -m 2770 -g GROUP {node.rings_directory}" in check.mend
    assert f"CYCLEWATCH_RING_DIR={node.rings_directory}" in check.mend


@pytest.mark.parametrize("systemd", [True, False])
def test_where_an_installation_would_mend_it_that_is_named(
    node: Node, monkeypatch: pytest.MonkeyPatch, systemd: bool
) -> None:
    """Directory, group and variable, on a node with systemd; never the plugin itself, which is of SGLang's Python."""
    monkeypatch.setattr(doctor, "systemd_runs", lambda: systemd)
    node.processes = [scheduler(4711, {})]
    node.rings_directory.rmdir()
    subjects = ("ring directory", "SGLang scheduler")
    assert not any("cyclewatch install " in node.bad(subject).mend for subject in subjects)  # in a place of its own
    monkeypatch.setattr(doctor, "Rings", lambda: SimpleNamespace(directory=node.rings_directory))
    for subject in subjects:
        assert ("`cyclewatch install --sglang-service SGLANG`" in node.bad(subject).mend) is systemd
    node.rings_directory.mkdir()
    assert ("`cyclewatch install --sglang-service SGLANG`" in node.bad("rings").mend) is systemd


def test_a_ring_directory_on_a_disk_is_said_to_be_on_one(node: Node) -> None:
    """The hook refuses to write there: a disk could block the scheduler."""
    node.file_system = "ext4"
    assert node.bad("ring directory").finding == "is on ext4, not on tmpfs: the hook refuses to write there"


def test_a_directory_on_tmpfs_is_good(node: Node) -> None:
    assert any(check.level is Level.GOOD and check.finding == "is on tmpfs" for check in node.checks())


def test_no_ring_at_all_says_what_to_install(node: Node) -> None:
    check = node.bad("rings")
    assert "none in" in check.finding
    assert "install cyclewatch-sglang into SGLang's environment" in check.mend


def test_a_garbage_ring_is_named(node: Node) -> None:
    """And the good one beside it is examined all the same."""
    (node.rings_directory / "1-2-3.ring").write_bytes(b"garbage" * 1000)
    node.ring()
    assert str(node.rings_directory / "1-2-3.ring") in node.bad("ring 1-2-3.ring").finding
    assert any(check.finding.startswith("alive, 0 records, SGLang 0.5.23") for check in node.checks())


@pytest.mark.timeout(10)
def test_a_pipe_among_the_rings_does_not_hang_the_doctor(node: Node) -> None:
    os.mkfifo(node.rings_directory / "1-2-3.ring")
    assert node.bad("ring 1-2-3.ring").mend


def test_a_hook_that_switched_itself_off_is_said_so(node: Node) -> None:
    node.ring(counters={"disabled": 1, "failures": 16})
    check = node.bad("hook in 127.0.0.1:30000 tp0")
    assert check.finding == "switched itself off after 16 failures of its own"
    assert "restart SGLang" in check.mend


def test_a_writer_that_has_ended_is_a_note_with_the_file_to_remove(node: Node) -> None:
    """Not bad: servers end."""
    ring = node.ring(pid=2**22 + 1)
    (check,) = [one for one in node.checks() if one.subject.startswith("hook in")]
    assert (check.level, check.mend) == (Level.NOTE, f"remove {ring.path}")


def test_a_process_that_got_the_number_of_the_writer_is_not_the_writer(node: Node) -> None:
    """It began at another clock tick."""
    node.ring(start_ticks=1)
    (check,) = [one for one in node.checks() if one.subject.startswith("hook in")]
    assert (check.level, check.finding) == (Level.NOTE, "the server has ended; its ring is left over")


def test_a_loop_that_no_longer_turns_is_bad(node: Node) -> None:
    node.ring(silent_s=90)
    assert node.bad("hook in").finding in {"last seen 90 s ago", "last seen 91 s ago"}


def test_missing_hook_points_are_named(node: Node) -> None:
    node.ring(hooks_missing=["run_batch", "on_idle"])
    (check,) = [one for one in node.checks() if "hook points" in one.finding]
    assert check.finding.endswith("run_batch, on_idle")


def test_a_server_that_cannot_be_reached_is_named_with_its_address(node: Node) -> None:
    target = Target.model_validate({"name": "prod", "url": "http://h:30000"})
    node.settings = node.settings.model_copy(update={"targets": (target,)})
    check = node.bad("SGLang prod at http://h:30000")
    assert "Connection refused" in check.finding
    assert "[[targets]]" in check.mend


def test_a_server_found_by_its_ring_is_asked_too(node: Node) -> None:
    node.ring(server={"host": "127.0.0.1", "port": 30007})
    node.fetcher.answers = {"http://127.0.0.1:30007/metrics": 200}
    assert any(check.finding == "answers, with metrics" and ":30007" in check.subject for check in node.checks())


def test_a_server_without_metrics_is_a_note_with_the_flag(node: Node) -> None:
    node.ring()
    node.fetcher.answers = {"http://127.0.0.1:30000/metrics": 404}
    (check,) = [one for one in node.checks() if "/metrics with 404" in one.finding]
    assert (check.level, check.mend) == (Level.NOTE, "start SGLang with --enable-metrics")


def scheduler(pid: int, environment: dict[str, str] | Exception) -> object:
    """A process that calls itself as SGLang's scheduler does."""

    def environ() -> dict[str, str]:
        if isinstance(environment, Exception):
            raise environment
        return environment

    return SimpleNamespace(pid=pid, cmdline=lambda: ["sglang::scheduler_TP0"], environ=environ)


@pytest.mark.parametrize(
    ("environment", "finding"),
    [
        ({}, "has no ring; CYCLEWATCH_RING_DIR is not set there, or not readable"),
        (psutil.AccessDenied(), "has no ring; CYCLEWATCH_RING_DIR is not set there, or not readable"),
        ({"CYCLEWATCH_RING_DIR": "/elsewhere"}, "writes its ring to /elsewhere"),
    ],
)
def test_a_scheduler_without_a_ring_is_found_with_the_reason(
    node: Node, environment: dict[str, str] | Exception, finding: str
) -> None:
    node.processes = [scheduler(4711, environment)]
    assert node.bad("SGLang scheduler (pid 4711)").finding == finding


def test_a_scheduler_whose_plugin_is_not_loaded_is_found(node: Node) -> None:
    """The variable names our directory, and there is no ring in it."""
    node.processes = [scheduler(4711, {"CYCLEWATCH_RING_DIR": str(node.rings_directory)})]
    assert "the plugin is not loaded" in node.bad("SGLang scheduler (pid 4711)").finding


def test_processes_that_end_while_one_looks_are_passed_over(node: Node) -> None:
    node.processes = [scheduler(4711, psutil.NoSuchProcess(4711))]
    assert not [check for check in node.checks() if "4711" in check.subject]


def test_a_missing_database_says_to_start_the_daemon(node: Node) -> None:
    check = node.bad("store")
    assert "no database yet" in check.finding
    assert check.mend == "start the daemon: cyclewatch run"


@pytest.mark.parametrize(
    ("age_s", "finding"),
    [(None, "has not stored anything yet"), (100, "last stored something 100 s ago"), (1, "runs and stores")],
)
def test_the_daemon_is_known_by_what_it_stored_last(node: Node, age_s: int | None, finding: str) -> None:
    """An empty database, an old one, a living one."""
    engine = open_database(node.settings.database_url, create=True)
    if age_s is not None:
        written = unit()
        written.at_ns = time.time_ns() - age_s * 10**9
        Transactions(engine, "node").write(written)
    engine.dispose()
    (check,) = [one for one in node.checks() if one.subject == "daemon"]
    assert check.finding == finding
    assert (check.level is Level.GOOD) is (age_s == 1)
