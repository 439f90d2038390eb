"""What the doctor says of profiles: each thing that can be wrong, and its mend."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cyclewatch.collectors.process_environment import environment
from cyclewatch.config.settings import Profiling
from cyclewatch.daemon.check import Check, Level
from cyclewatch.daemon.profiling.checks import profiling_checks
from fake_proc import FakeProc

PID = 500


class Node:
    """A directory of the channel, and a scheduler with an environment."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        self.proc = FakeProc(root)
        self.proc.process(400, "python", 1)
        self.proc.process(PID, "sglang::schedul", 400)
        self.given(USE="1", IPC_SOCKET_DIR=None, ONDEMAND_TRACE_DIR=None)

    def given(self, **variables: str | None) -> None:
        """The environment of the server's first process: None for the right value."""
        entries = ["SECRET=hidden"]
        for name, value in variables.items():
            key = "KINETO_USE_DAEMON" if name == "USE" else f"KINETO_{name}"
            entries.append(f"{key}={self.directory if value is None else value}")
        (self.proc.proc / "400/environ").write_text("\0".join(entries) + "\0")
        (self.proc.proc / f"{PID}/environ").write_bytes(bytes(200))  # its title is written over it

    def checks(self, torch: str = "", **settings: object) -> list[Check]:
        profiling = Profiling(socket_dir=self.directory, **settings)  # type: ignore[arg-type]
        return list(profiling_checks(profiling, {PID: torch}, self.proc.proc))

    def scheduler(self) -> Check:
        (check,) = [one for one in self.checks() if "scheduler" in one.subject]
        return check


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr("cyclewatch.daemon.profiling.checks.file_system", lambda _: "tmpfs")
    with tempfile.TemporaryDirectory(prefix="kineto-", dir="/dev/shm") as directory:
        yield Node(Path(directory), tmp_path)


def test_all_is_well(node: Node) -> None:
    assert [check.level for check in node.checks("2.13.0")] == [Level.GOOD, Level.GOOD]


@pytest.mark.parametrize("torch", ["2.7.1", "2.8.0+cu128", "2.9.0a0"])
def test_a_torch_that_may_crash_with_the_channel_is_told(node: Node, torch: str) -> None:
    """Its starts are the operator's to weigh against profiles."""
    check = node.checks(torch)[1]
    assert (check.level, torch in check.finding) == (Level.NOTE, True)
    assert "unset KINETO_USE_DAEMON" in check.mend


@pytest.mark.parametrize(
    ("variables", "level", "said"),
    [
        ({}, Level.NOTE, "KINETO_USE_DAEMON is not set"),
        ({"USE": "1"}, Level.BAD, "abstract namespace"),
        ({"USE": "1", "IPC_SOCKET_DIR": "/somewhere"}, Level.BAD, "another directory"),
        ({"USE": "1", "IPC_SOCKET_DIR": "/some where"}, Level.BAD, "not a plain absolute path"),
        ({"USE": "1", "IPC_SOCKET_DIR": "/" + "x" * 60}, Level.BAD, "more than the 54"),
        ({"USE": "1", "IPC_SOCKET_DIR": None}, Level.BAD, "KINETO_ONDEMAND_TRACE_DIR is not set"),
        ({"USE": "1", "IPC_SOCKET_DIR": None, "ONDEMAND_TRACE_DIR": "/var"}, Level.BAD, "is /var"),
        ({"USE": "1", "IPC_SOCKET_DIR": None, "ONDEMAND_TRACE_DIR": "/dev/shm/"}, Level.GOOD, "can be taken"),
    ],
)
def test_every_wrong_variable_has_its_finding(
    node: Node, variables: dict[str, str | None], level: Level, said: str
) -> None:
    node.given(**variables)
    check = node.scheduler()
    assert check.level is level
    assert said in check.finding
    assert bool(check.mend) == (level is not Level.GOOD)
    assert "hidden" not in check.finding + check.mend


def test_another_spelling_is_known_for_what_it_would_do(node: Node) -> None:
    link = node.directory.with_name(f"{node.directory.name}-link")
    link.symlink_to(node.directory)
    node.given(USE="1", IPC_SOCKET_DIR=str(link), ONDEMAND_TRACE_DIR=None)
    try:
        assert "another spelling" in node.scheduler().finding
    finally:
        link.unlink()


def test_an_environment_that_may_not_be_read_is_a_note(node: Node) -> None:
    (node.proc.proc / "400/environ").unlink()
    assert node.scheduler().level is Level.NOTE
    node.proc.end(PID)
    assert node.scheduler().level is Level.NOTE


def test_a_directory_that_is_wrong_is_bad_and_one_that_is_missing_is_none_wanted(node: Node) -> None:
    node.directory.chmod(0o777)
    (check, _) = node.checks()
    assert (check.level, check.finding) == (Level.BAD, "is open to every user of this host")
    assert check.mend == f"chmod o-rwx {node.directory}"
    node.directory.rmdir()
    (check, _) = node.checks()
    assert check.level is Level.NOTE
    assert "install -d -m 2770" in check.mend
    node.directory.mkdir(mode=0o700)


def test_a_disk_is_a_note(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cyclewatch.daemon.profiling.checks.file_system", lambda _: "ext4")
    (check, _) = node.checks()
    assert (check.level, check.finding) == (Level.NOTE, "is on ext4")


def test_a_user_that_does_not_exist_is_bad(node: Node) -> None:
    (check, _) = node.checks(users=("nobody-of-that-name",))
    assert check.level is Level.BAD
    assert "nobody-of-that-name" in check.finding


def test_switched_off_there_is_nothing_to_look_at(node: Node) -> None:
    (check,) = node.checks(enabled=False)
    assert check.level is Level.NOTE


def test_only_what_was_asked_for_is_read(node: Node) -> None:
    node.given(USE="1")
    assert environment(PID, {"KINETO_USE_DAEMON"}, node.proc.proc) == {"KINETO_USE_DAEMON": "1"}
    assert environment(400, {"NOT_THERE"}, node.proc.proc) == {}
    node.proc.process(300, "bash", 400)
    (node.proc.proc / "300/environ").write_bytes(b"")
    assert environment(300, {"KINETO_USE_DAEMON"}, node.proc.proc) is None  # no server: its parent is nobody's
