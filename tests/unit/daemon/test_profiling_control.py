"""The command line asks the running daemon: over a socket, one line there and one back."""

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cyclewatch.config.settings import Engine, Host, Profiling, Rings, Settings
from cyclewatch.config.web import Web
from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.control import ControlError, ControlServer, asked
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.profile_records import ProfileState
from cyclewatch.daemon.store.transactions import Transactions
from fake_kineto import Torch
from units import profile, unit

ME = os.getpid()


def echo(question: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"error": question["error"]} if "error" in question else {"question": dict(question)}


@pytest.fixture(name="directory")
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(name="done")
def _done() -> list[Mapping[str, Any]]:
    return []


@pytest.fixture(name="control")
def _control(directory: Path, done: list[Mapping[str, Any]]) -> Iterator[ControlServer]:
    def slowly(answer: Mapping[str, Any]) -> None:
        time.sleep(0.2)
        done.append(answer)

    control = ControlServer(directory, echo, slowly)
    control.start()
    yield control
    control.stop()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_question_is_answered_and_what_it_gave_is_kept_until_the_asker_is_done(
    directory: Path, control: ControlServer, done: list[Mapping[str, Any]]
) -> None:
    with asked(directory, {"do": "x"}) as answer:
        assert answer == {"question": {"do": "x"}}
        assert done == []
    assert done == [answer]


def test_a_refusal_is_an_error(directory: Path, control: ControlServer) -> None:
    with pytest.raises(ControlError, match="too late"), asked(directory, {"error": "too late"}):
        pass


def test_without_a_daemon_it_says_so_at_once(directory: Path) -> None:
    """Also where a killed one left its socket."""
    for _ in range(2):
        with pytest.raises(ControlError, match="no daemon runs"), asked(directory, {}):
            pass
        with socket.socket(socket.AF_UNIX) as left_over:
            if not (directory / "control.sock").exists():
                left_over.bind(f"{directory}/control.sock")
    with pytest.raises(ControlError, match="no daemon runs"), asked(directory / "missing", {}):
        pass


def test_a_socket_that_was_left_over_is_replaced_and_the_own_one_removed(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(f"{directory}/control.sock")
    control = ControlServer(directory, echo, lambda _: None)
    control.start()
    assert (directory / "control.sock").stat().st_mode & 0o777 == 0o600
    with asked(directory, {"a": 1}) as answer:
        assert answer == {"question": {"a": 1}}
    control.stop()
    assert list(directory.iterdir()) == []


def test_a_state_directory_may_have_a_name_longer_than_a_sockets_may_be(directory: Path) -> None:
    long = directory / ("x" * 100) / ("y" * 100)
    long.mkdir(parents=True)
    control = ControlServer(long, echo, lambda _: None)
    control.start()
    with asked(long, {"a": 1}) as answer:
        assert answer == {"question": {"a": 1}}
    control.stop()


LINES = st.one_of(st.binary(max_size=64), st.sampled_from([b"[" * 4000, b"null", b"[]", b"1e999", b"\xff{}"]))


@settings(max_examples=3)
@given(lines=st.lists(LINES, min_size=10, max_size=30))
def test_whatever_is_sent_is_answered(lines: list[bytes]) -> None:
    """And the next one is served."""
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as name:
        control = ControlServer(Path(name), echo, lambda _: None)
        control.start()
        try:
            for line in lines:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(5)
                    connection.connect(f"{name}/control.sock")
                    connection.sendall(line.replace(b"\n", b"") + b"\n")
                    answer = json.loads(connection.makefile("rb").readline())
                    assert "error" in answer or "question" in answer
            with asked(Path(name), {"a": 1}) as answer:
                assert answer == {"question": {"a": 1}}
        finally:
            control.stop()


class Daemon:
    """A daemon in this process with a channel, and its command line."""

    def __init__(self, directory: Path, channel: Path) -> None:
        self.config = directory / "cyclewatch.toml"
        self.config.write_text(f'state_dir = "{directory}/state"\n[profiling]\nsocket_dir = "{channel}"\n')
        self.server = Server(
            Settings(
                state_dir=directory / "state",
                rings=Rings(directory=directory / "rings"),
                engine=Engine(enabled=False),
                host=Host(enabled=False),
                profiling=Profiling(socket_dir=channel),
                web=Web(enabled=False),
            )
        )
        self.thread = threading.Thread(target=self.server.run)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "-c", str(self.config)])


@pytest.fixture(name="daemon")
def _daemon(tmp_path: Path, directory: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, directory)
    daemon.thread.start()
    torch = Torch(directory)
    until(daemon.server.profiling.sampler.channel.processes)
    until(lambda: daemon.server._turns)  # it answers questions by then
    yield daemon
    torch.close()
    daemon.server.stop()
    daemon.thread.join(20)
    assert not daemon.thread.is_alive()


def test_a_profile_is_asked_for_shown_kept_listed_and_shown_again(
    daemon: Daemon, directory: Path, tmp_path: Path
) -> None:
    out = tmp_path / "trace.json"
    result = daemon.run("profile", "--pid", str(ME), "--duration-ms", "50", "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["state"], document["pid"], document["method"]) == ("kept", ME, "kineto")
    assert {kernel["name"] for kernel in document["kernels"]} == {"aten::mm", "aten::softmax"}
    assert sum(kernel["share"] for kernel in document["kernels"]) == pytest.approx(1)
    assert "traceEvents" in json.loads(out.read_text())
    until(lambda: not list(directory.glob("cyclewatch-*")))
    until(lambda: json.loads(daemon.run("profiles", "list", "--json").stdout))
    (listed,) = json.loads(daemon.run("profiles", "list", "--json").stdout)
    assert "kernels" not in listed
    shown = json.loads(daemon.run("profiles", "show", str(listed["id"]), "--json").stdout)
    assert shown["kernels"] == document["kernels"]
    text = daemon.run("profile", "--pid", str(ME)).stdout
    assert "aten::mm" in text
    assert "asked" in text


def test_profiling_is_switched_off_and_on_by_hand(daemon: Daemon) -> None:
    assert "profiling is off" in daemon.run("profiles", "off").stdout
    refused = daemon.run("profile", "--pid", str(ME))
    assert refused.exit_code == 1
    assert "switched off by hand" in refused.stderr
    until(lambda: "profiling is off" in daemon.run("status").stdout or not daemon.server._turns)
    assert "profiling is on" in daemon.run("profiles", "on").stdout
    assert daemon.run("profile", "--pid", str(ME)).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("profile",), "no server to profile: none is being watched"),
        (("profile", "x"), "no server x"),
        (("profile", "--pid", "1"), "KINETO_USE_DAEMON=1"),
        (("profile", "--pid", str(ME), "--out", "/missing/file"), "/missing/file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(daemon: Daemon, words: tuple[str, ...], said: str) -> None:
    result = daemon.run(*words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_question_of_another_release_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    for question in ({"do": "dance"}, {"do": "profile", "target": 5}, {}, {"do": "switch", "on": "yes"}):
        with pytest.raises(ControlError, match="another release"), asked(tmp_path / "state", question):
            pass


def test_stored_profiles_are_shown_without_a_daemon(tmp_path: Path) -> None:
    """Those whose kernels were given up too, and one that was refused."""
    config = tmp_path / "cyclewatch.toml"
    config.write_text(f'state_dir = "{tmp_path}"\n')

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "-c", str(config)], env={"COLUMNS": "200"})

    engine = open_database(f"sqlite:///{tmp_path}/cyclewatch.db", create=True)
    assert "no profile was taken yet" in run("profiles", "list").stdout
    cost = {
        "stall_ns": 8_000_000,
        "longest_during_ns": 20_000_000,
        "longest_before_ns": 12_000_000,
        "during_ratio": 1.2,
        "after_ratio": 1.01,
    }
    gone = profile("old", began_at_ns=1, cost=cost, kernels=())
    refused = profile(
        "bad", began_at_ns=2, state=ProfileState.REFUSED, detail="the trace holds no kernel", cost={}, kernels=None
    )
    Transactions(engine, "node").write(
        unit(profiles=[gone, refused, profile("good", cost=cost, warnings=("rounded",))])
    )
    engine.dispose()
    listed = run("profiles", "list").stdout
    assert "8.0 ms" in listed
    assert "the trace holds no kernel" in listed
    numbers = {one["state"] + one["detail"]: one["id"] for one in json.loads(run("profiles", "list", "--json").stdout)}
    assert len(numbers) == 2
    texts = [run("profiles", "show", str(number)).stdout for number in (1, 2, 3)]
    assert "given up with age" in texts[0]
    assert "stall 8.0 ms; median cycle +20.0% during it; +1.0% after it" in texts[0]
    assert "refused: the trace holds no kernel" in texts[1]
    assert "note: rounded" in texts[2]
    assert "gemm" in texts[2]
    missing = run("profiles", "show", "9")
    assert (missing.exit_code, missing.stderr) == (1, "cyclewatch: no profile 9; see `cyclewatch profiles list`\n")
    nobody = run("profiles", "on")
    assert nobody.exit_code == 1
    assert "no daemon runs" in nobody.stderr
