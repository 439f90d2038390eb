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
from cyclewatch.config.settings import ForwardPass, Rings, Settings, Target
from cyclewatch.config.store import Store
from cyclewatch.daemon import ring_checks
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
        self.proc = Path("/proc")
        self._rings: list[PlainRing] = []

    def ring(self, *, silent_s: int = 0, counters: dict[str, int] | None = None, **changes: Any) -> PlainRing:
        ring = PlainRing(self.rings_directory, 64, rings.identity(**changes))
        ring.write_counters(heartbeat_ns=time.monotonic_ns() - silent_s * 10**9, **counters or {})
        self._rings.append(ring)
        return ring

    def checks(self) -> list[Check]:
        return list(examine(self.settings, self.fetcher, self.proc))

    def bad(self, subject: str) -> Check:
        """The one bad finding on a subject."""
        (check,) = [one for one in self.checks() if one.subject.startswith(subject) and one.level is Level.BAD]
        return check

    def one(self, subject: str) -> Check:
        """The one finding on a subject, whatever its level."""
        (check,) = [one for one in self.checks() if one.subject.startswith(subject)]
        return check

    def publishes(self, name: str, port: int) -> Target:
        """A configured server whose forward-pass metrics are read."""
        return Target.model_validate(
            {"name": name, "url": f"http://127.0.0.1:{port}", "forward_pass_metrics": "ipc:///run/passes"}
        )

    def stored(self, *, age_s: int, **changes: Any) -> None:
        """What the daemon stored `age_s` ago."""
        engine = open_database(self.settings.database_url, create=True)
        written = unit(**changes)
        written.at_ns = time.time_ns() - age_s * 10**9
        Transactions(engine, "node").write(written)
        engine.dispose()

    def change(self, **changes: Any) -> None:
        self.settings = self.settings.model_copy(update=changes)

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


@pytest.fixture(name="hidden")
def _hidden(node: Node, tmp_path: Path) -> Path:
    """/proc as `hidepid` leaves it: of all processes only this one is there."""
    node.proc = tmp_path / "proc"
    own = node.proc / str(os.getpid())
    (own / "ns").mkdir(parents=True)
    (own / "ns/pid").symlink_to("/proc/self/ns/pid")
    (own / "stat").write_bytes(Path("/proc/self/stat").read_bytes())
    (node.proc / "self").symlink_to(own.name)
    return node.proc


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
    monkeypatch.setattr(ring_checks, "systemd_runs", lambda: systemd)
    node.processes = [scheduler(4711, {})]
    node.rings_directory.rmdir()
    subjects = ("ring directory", "SGLang scheduler")
    assert not any("cyclewatch install " in node.bad(subject).mend for subject in subjects)  # in a place of its own
    monkeypatch.setattr(ring_checks, "Rings", lambda: SimpleNamespace(directory=node.rings_directory))
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


def visible(proc: Path, pid: int, state: str, start_ticks: int) -> None:
    """A process that can be seen after all."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (sglang::schedul) {state} 1 {'0 ' * 17}{start_ticks} 0\n")


def test_a_writer_that_is_only_waited_for_has_ended(node: Node, hidden: Path) -> None:
    node.ring(pid=4711, start_ticks=1000)
    visible(hidden, 4711, "Z", 1000)
    assert node.one("hook in").finding == "the server has ended; its ring is left over"


def test_a_writer_that_is_hidden_has_not_ended(node: Node, hidden: Path) -> None:
    """It has where other users' processes, such as the first one, can be seen."""
    node.ring(pid=2**22 + 1)
    assert node.one("hook in").finding.startswith("alive")
    (hidden / "1").mkdir()
    assert node.one("hook in").finding == "the server has ended; its ring is left over"


def test_in_the_proc_of_another_pid_namespace_numbers_tell_nothing(node: Node, hidden: Path) -> None:
    """As after `unshare --pid` alone: our numbers are other processes there."""
    (hidden / "1").mkdir()
    (hidden / "self").unlink()
    (hidden / "self").symlink_to("1")
    node.ring(start_ticks=1)
    assert node.one("hook in").finding.startswith("alive")


@pytest.mark.parametrize("changes", [{"pid_namespace": 1}, {"pid": 2**22 + 1}])
def test_a_silent_writer_that_cannot_be_seen_is_a_note(node: Node, hidden: Path, changes: dict[str, Any]) -> None:
    """In a container, or hidden: it may have ended. That its hook switched itself off is known all the same."""
    ring = node.ring(silent_s=90, **changes)
    check = node.one("hook in")
    assert check.level is Level.NOTE
    assert check.finding in {f"not heard for {age_s} s: it has ended, or its loop hangs" for age_s in (90, 91)}
    assert "remove" not in check.mend
    ring.write_counters(disabled=1, failures=16)
    assert node.bad("hook in").finding.startswith("switched itself off")


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


def scheduler(pid: int, environment: dict[str, str] | Exception, port: int = 30000) -> object:
    """A process that calls itself as SGLang's scheduler does; its server listens on `port`."""

    def environ() -> dict[str, str]:
        if isinstance(environment, Exception):
            raise environment
        return environment

    server = SimpleNamespace(cmdline=lambda: ["python", "-m", "sglang.launch_server", "--port", str(port)])
    return SimpleNamespace(
        pid=pid, cmdline=lambda: ["sglang::scheduler_TP0"], environ=environ, parents=lambda: [server]
    )


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


def test_processes_that_are_hidden_are_passed_over(node: Node) -> None:
    """With `hidepid=1` they are listed, and nothing of them can be read."""

    def cmdline() -> list[str]:
        raise psutil.AccessDenied(4711)

    node.processes = [SimpleNamespace(pid=4711, cmdline=cmdline)]
    assert not [check for check in node.checks() if "4711" in check.subject]


@pytest.mark.parametrize(("start_ticks", "is_watched"), [(1000, True), (1001, False)])
def test_a_scheduler_in_a_container_has_the_ring_with_its_own_number(
    node: Node, hidden: Path, start_ticks: int, is_watched: bool
) -> None:
    """Containers give the same numbers to their processes, but these began at different times."""
    node.ring(pid_namespace=1, pid=7, start_ticks=1000)
    visible(hidden, 4711, "S", start_ticks)
    (hidden / "4711/status").write_text("Name:\tsglang::schedul\nNSpid:\t4711\t7\n")
    node.processes = [scheduler(4711, {})]
    assert is_watched is not any("SGLang scheduler" in check.subject for check in node.checks())


@pytest.mark.parametrize("name", ["127.0.0.1:30000", "prod"])
def test_a_server_with_forward_pass_metrics_needs_no_ring(node: Node, name: str) -> None:
    """One that was found, by what the daemon stored just now; one that is configured so."""
    if name == "prod":
        node.change(targets=(node.publishes(name, 30000),))
    else:
        node.stored(age_s=1, status={"targets": {name: {"phases": [{"rank": "dp0", "phase": "decode"}]}}})
    node.processes = [scheduler(4711, {})]
    for subject in ("SGLang scheduler", "rings"):
        assert node.one(subject).level is Level.NOTE
        assert "forward-pass metrics are read instead" in node.one(subject).finding
    node.rings_directory.rmdir()
    assert node.one("ring directory").level is Level.NOTE


def test_another_server_beside_forward_pass_metrics_needs_its_ring(node: Node) -> None:
    node.change(targets=(node.publishes("prod", 30000),))
    node.processes = [scheduler(4711, {}), scheduler(4712, {}, port=30001)]
    assert node.bad("SGLang scheduler").subject == "SGLang scheduler (pid 4712)"


@pytest.mark.parametrize(("rank", "age_s"), [("tp0", 1), ("dp0-tp0", 1), ("dp0", 100)])
def test_phases_of_rings_and_old_ones_are_no_forward_pass_metrics(node: Node, rank: str, age_s: int) -> None:
    """A ring that was deleted under a server; a daemon that no longer runs."""
    status = {"targets": {"127.0.0.1:30000": {"phases": [{"rank": rank, "phase": "decode"}]}}}
    node.stored(age_s=age_s, status=status)
    node.processes = [scheduler(4711, {})]
    assert node.bad("SGLang scheduler")
    assert node.bad("rings")


def test_a_server_with_a_ring_has_one_for_each_scheduler(node: Node) -> None:
    """Forward-pass metrics are not read of a server that has a ring; the ring of an ended one does not count."""
    node.change(targets=(node.publishes("prod", 30000),))
    node.processes = [scheduler(4711, {})]
    ring = node.ring()
    assert node.bad("SGLang scheduler")
    ring.path.unlink()
    node.ring(start_ticks=1)
    assert node.one("SGLang scheduler").level is Level.NOTE


def test_forward_pass_metrics_that_are_switched_off_are_not_read(node: Node) -> None:
    node.change(targets=(node.publishes("prod", 30000),), forward_pass=ForwardPass(enabled=False))
    node.processes = [scheduler(4711, {})]
    assert node.bad("SGLang scheduler")


def test_rings_that_are_switched_off_are_not_looked_for(node: Node) -> None:
    node.change(rings=Rings(directory=node.rings_directory, enabled=False))
    node.processes = [scheduler(4711, {})]
    assert (node.one("rings").level, node.one("rings").finding) == (Level.NOTE, "rings.enabled is false")
    assert not [check for check in node.checks() if check.subject.startswith(("SGLang scheduler", "ring directory"))]


def test_a_missing_database_says_to_start_the_daemon(node: Node) -> None:
    check = node.bad("store")
    assert "no database yet" in check.finding
    assert check.mend == "start the daemon: cyclewatch run"


def test_a_damaged_database_says_to_look_for_damage(node: Node) -> None:
    node.stored(age_s=1)
    with (node.settings.state_dir / "cyclewatch.db").open("r+b") as file:
        file.write(b"damaged" * 100)
    check = node.bad("store")
    assert "file is not a database" in check.finding
    assert check.mend == "see docs/database.md; `cyclewatch db check` looks for damage"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")
def test_a_state_directory_of_another_user_says_who_may_look(node: Node) -> None:
    node.stored(age_s=1)
    node.settings.state_dir.chmod(0o700)
    os.setresuid(65534, 65534, 0)
    try:
        checks = node.checks()
    finally:
        os.setresuid(0, 0, 0)
    (check,) = [one for one in checks if one.subject == "store"]
    assert "Permission denied" in check.finding
    assert check.mend == "run the doctor as root, or as the daemon's user"


def test_a_database_that_may_not_be_written_says_who_may_look(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads it writes to the files beside it."""
    node.settings.state_dir.mkdir()
    (node.settings.state_dir / "cyclewatch.db").mkdir()  # it cannot be opened
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert node.bad("store").mend == "run the doctor as root, or as the daemon's user"


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/none", "mysql://h/x", "not an address"])
def test_a_database_that_is_no_file_has_a_page_to_read(node: Node, url: str) -> None:
    node.change(store=Store(url=url))
    assert node.bad("store").mend == "see docs/database.md"


@pytest.mark.parametrize(
    ("age_s", "finding"),
    [(None, "has not stored anything yet"), (100, "last stored something 100 s ago"), (1, "runs and stores")],
)
def test_the_daemon_is_known_by_what_it_stored_last(node: Node, age_s: int | None, finding: str) -> None:
    """An empty database, an old one, a living one."""
    if age_s is None:
        open_database(node.settings.database_url, create=True).dispose()
    else:
        node.stored(age_s=age_s)
    (check,) = [one for one in node.checks() if one.subject == "daemon"]
    assert check.finding == finding
    assert (check.level is Level.GOOD) is (age_s == 1)
