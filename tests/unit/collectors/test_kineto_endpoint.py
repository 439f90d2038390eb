"""The endpoint of Kineto's daemon channel, asked by a client written after libkineto's, and by hostile ones."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.kineto.directory import (
    DIRECTORY_BYTES_MAX,
    EndpointError,
    check_directory,
    check_name,
)
from cyclewatch.collectors.kineto.endpoint import Endpoint
from cyclewatch.collectors.kineto.peers import (
    PROCESSES_MAX,
    SILENT_NS,
    Credentials,
    KinetoProcess,
    Peers,
    RefusedError,
)
from cyclewatch.collectors.kineto.protocol import ContextMessage, RequestMessage
from cyclewatch.collectors.processes import namespace_numbers, process_status
from fake_kineto import EndedError, FakeProcess, context, request

PROC = Path("/proc")
ME = os.getpid()


class Says:
    """Gives a process the same text at each poll."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.polls: list[KinetoProcess] = []

    def poll(self, process: KinetoProcess) -> str:
        self.polls.append(process)
        return self.text


@pytest.fixture(name="directory")
def _directory() -> Iterator[Path]:
    """Short, as the names of sockets must be, and closed to others."""
    with tempfile.TemporaryDirectory(prefix="kineto-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(name="endpoint")
def _endpoint(directory: Path) -> Iterator[Endpoint]:
    endpoint = Endpoint(directory, {os.geteuid()}, PROC)
    endpoint.start()
    yield endpoint
    endpoint.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def refusal(endpoint: Endpoint, kind: str) -> str:
    """The sentence on what was refused; waits for it."""
    deadline = time.monotonic() + 5
    while kind not in endpoint.refusals():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return endpoint.refusals()[kind].latest


def test_a_process_is_known_by_its_question_and_told_that_there_is_nothing_to_do(
    directory: Path, endpoint: Endpoint
) -> None:
    with FakeProcess(directory) as process:
        assert process.poll() == ""
        (known,) = endpoint.processes()
    assert (known.pid, known.own_pid, known.user, known.free) == (ME, ME, os.geteuid(), True)
    assert endpoint.refusals() == {}


def test_an_attached_client_says_what_to_do(directory: Path, endpoint: Endpoint) -> None:
    """Until it is detached."""
    says = Says("A=1")
    endpoint.attach(ME, says)
    with FakeProcess(directory) as process:
        assert process.poll() == "A=1"
        assert process.poll(free=False) == "A=1"
        endpoint.detach(ME)
        assert process.poll() == ""
    assert [one.free for one in says.polls] == [True, False]


def test_a_context_is_counted(directory: Path, endpoint: Endpoint) -> None:
    """Older libkineto registers so."""
    with FakeProcess(directory) as process:
        process.send(context(ME))
        assert process.receive() == b"\x01\0\0\0"
    (known,) = endpoint.processes()
    assert not known.free  # only a request tells that


def test_a_process_that_claims_to_be_another_one_gets_no_answer(directory: Path, endpoint: Endpoint) -> None:
    with FakeProcess(directory) as process:
        process.send(request((1,)))
        assert refusal(endpoint, "claim") == f"process {ME} claims to be process 1"
        assert process.hears_nothing()
    assert endpoint.processes() == ()


def test_a_user_that_may_not_ask_gets_no_answer(directory: Path) -> None:
    endpoint = Endpoint(directory, set(), PROC)
    endpoint.start()
    with FakeProcess(directory) as process:
        process.send(request((ME,)))
        assert "profiling.users" in refusal(endpoint, "user")
        assert process.hears_nothing()
    endpoint.close()


def test_a_process_that_spells_the_directory_otherwise_is_left_alone(directory: Path, endpoint: Endpoint) -> None:
    """An answer would end it: libkineto throws on an address that does not begin with its own spelling."""
    spelling = directory.parent / f"{directory.name}-link"
    spelling.symlink_to(directory)
    try:
        for spelled in (str(spelling), f"{directory}/", f"{directory}/.", f"/{directory}"):
            with FakeProcess(directory, spelled) as process:
                process.send(request((ME,)))
                assert process.hears_nothing()
    finally:
        spelling.unlink()
    assert endpoint.refusals()["address"].count == 4
    assert f"it must be {directory}, letter by letter" in refusal(endpoint, "address")


def test_the_fake_client_would_notice(directory: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would fail without the check."""
    monkeypatch.setattr(Endpoint, "_checked", lambda _self, address: address)
    with FakeProcess(directory, f"{directory}/") as process, pytest.raises(EndedError):
        process.poll()


@pytest.mark.parametrize(
    "datagram",
    [b"", b"x", request((ME,))[:-1], request((ME,)) + b"x", b"\xff" * 4000, b"\0" * 60_000],
    ids=["empty", "a letter", "too short", "too long", "ones", "zeros"],
)
def test_hostile_datagrams_get_no_answer_and_harm_nobody(directory: Path, endpoint: Endpoint, datagram: bytes) -> None:
    with FakeProcess(directory) as process:
        process.send(datagram)
        assert "none of libkineto's" in refusal(endpoint, "format")
        assert process.poll() == ""


def test_senders_without_a_name_of_libkinetos_get_no_answer(directory: Path, endpoint: Endpoint) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nameless:
        nameless.sendto(b"", f"{directory}/dynolog")
        nameless.sendto(request((ME,)), f"{directory}/dynolog")
        assert "without a name" in refusal(endpoint, "address")
    with FakeProcess(directory, name="somebody") as process:
        process.send(request((ME,)))
        assert process.hears_nothing()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        abstract.bind("\0dynoconfigclient-test")
        abstract.sendto(request((ME,)), f"{directory}/dynolog")
        while endpoint.refusals()["address"].count < 4:
            time.sleep(0.005)


def test_a_name_that_has_become_something_else_gets_no_answer(directory: Path, endpoint: Endpoint) -> None:
    """A link in its place could lead out of the directory."""
    with FakeProcess(directory) as process, FakeProcess(directory) as other:
        path = Path(process.socket.getsockname())
        path.unlink()
        path.symlink_to(other.socket.getsockname())
        process.send(request((ME,)))
        assert other.hears_nothing()
        path.unlink()
        process.send(request((ME,)))
        assert "gone" in refusal(endpoint, "address") or "not a socket" in refusal(endpoint, "address")


def test_a_question_that_had_to_wait_too_long_gets_no_answer(
    directory: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process would read it at its next question, and be one answer behind from then on."""
    says = Says("A=1")
    endpoint.attach(ME, says)
    monkeypatch.setattr("cyclewatch.collectors.kineto.endpoint._LATE_NS", -1)
    with FakeProcess(directory) as process:
        process.send(request((ME,)))
        assert "does cyclewatch get CPU" in refusal(endpoint, "late")
        assert process.hears_nothing()
        assert says.polls == []  # nothing was handed out
        monkeypatch.undo()
        assert process.poll() == "A=1"


def test_a_process_that_is_behind_catches_up_by_one_answer_left_out(directory: Path, endpoint: Endpoint) -> None:
    endpoint.catch_up(ME)
    with FakeProcess(directory) as process:
        process.send(request((ME,)))
        assert process.hears_nothing()
        assert process.poll() == ""


def test_one_that_does_not_read_its_answers_holds_nobody_up(directory: Path, endpoint: Endpoint) -> None:
    with FakeProcess(directory) as deaf, FakeProcess(directory) as process:
        for _ in range(600):
            deaf.send(request((ME,)))
        assert process.poll() == ""
        refusal(endpoint, "unreachable")


def test_a_second_daemon_does_not_take_the_place_of_the_first(directory: Path, endpoint: Endpoint) -> None:
    with pytest.raises(EndpointError, match="another daemon serves it"):
        Endpoint(directory, {0}, PROC).start()
    with FakeProcess(directory) as process:
        assert process.poll() == ""


def test_dynolog_itself_is_not_pushed_aside(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dynolog:
        dynolog.bind(f"{directory}/dynolog")
        with pytest.raises(EndpointError, match="another daemon serves it"):
            Endpoint(directory, {0}, PROC).start()


def test_what_ended_processes_left_is_cleared_away(directory: Path) -> None:
    """The socket of a killed daemon, those of ended processes, traces nobody read; nothing else."""
    for name in ("dynolog", "dynoconfigclient1"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ended:
            ended.bind(f"{directory}/{name}")
    (directory / "cyclewatch-old_7.json.tmp").touch()
    (directory / "somebody's").touch()
    (directory / "dynoconfigclient2").touch()
    with FakeProcess(directory) as process:
        endpoint = Endpoint(directory, {os.geteuid()}, PROC)
        endpoint.start()
        assert process.poll() == ""
        left = {path.name for path in directory.iterdir()}
        endpoint.close()
        mine = Path(process.socket.getsockname()).name
    assert left == {"dynolog", mine, "somebody's", "dynoconfigclient2"}
    assert not (directory / "dynolog").exists()


def test_it_closes_twice_and_leaves_nothing(directory: Path) -> None:
    threads, files = threading.active_count(), open_files()
    endpoint = Endpoint(directory, {0}, PROC)
    endpoint.close()
    endpoint.start()
    endpoint.close()
    endpoint.close()
    assert (threading.active_count(), open_files()) == (threads, files)


def test_a_socket_that_has_lost_its_name_is_known(directory: Path, endpoint: Endpoint) -> None:
    """And a name that has become another's is left to them."""
    path = directory / "dynolog"
    assert endpoint.is_reachable()
    path.unlink()
    assert not endpoint.is_reachable()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
        another.bind(str(path))
        assert not endpoint.is_reachable()
        endpoint.close()
        assert path.is_socket()


@pytest.mark.parametrize("mode", [0o2777, 0o2771, 0o2775, 0o701])
def test_a_directory_that_is_open_to_others_is_refused(directory: Path, mode: int) -> None:
    """Libkineto's own sockets take datagrams from everybody who reaches them."""
    directory.chmod(mode)
    with pytest.raises(EndpointError, match="chmod o-rwx"):
        check_directory(directory)


def test_a_directory_that_is_none_is_refused_with_the_mend(directory: Path) -> None:
    (directory / "file").touch()
    (directory / "link").symlink_to(directory)
    for name in ("missing", "file", "link"):
        with pytest.raises(EndpointError, match="install -d -m 2770"):
            check_directory(directory / name)


@pytest.mark.parametrize(
    "name", ["relative", "/a b", "/a#b", "/a=b", "/a\nb", "/a/../b", "/a/", "//a", "/a/./b", "/.", "/", "/ä", ""]
)
def test_names_that_libkineto_would_misread_are_refused(name: str) -> None:
    with pytest.raises(EndpointError, match="not a plain absolute path"):
        check_name(name)


def test_a_name_that_libkineto_has_no_room_for_is_refused() -> None:
    """It copies without looking: a longer one writes over its memory."""
    check_name("/" + "x" * (DIRECTORY_BYTES_MAX - 1))
    client = f"/{'x' * (DIRECTORY_BYTES_MAX - 1)}/dynoconfigclient60fcfbef-9ada-4799-9b09-afaff5074646"
    assert len(client) == 107
    with pytest.raises(EndpointError, match="54"):
        check_name("/" + "x" * DIRECTORY_BYTES_MAX)


def asks(pid: int) -> RequestMessage:
    return RequestMessage(free=True, job=0, pids=(pid, 1))


def test_a_process_in_a_container_is_known_by_both_of_its_numbers() -> None:
    peers = Peers({0}, lambda pid: {500: (500, 7)}.get(pid, ()))
    known = peers.admit(Credentials(500, 0), asks(7), 1)
    assert (known.pid, known.own_pid) == (500, 7)
    with pytest.raises(RefusedError, match="claims to be process 8"):
        peers.admit(Credentials(500, 0), asks(8), 2)
    with pytest.raises(RefusedError, match="claims to be process 7"):
        peers.admit(Credentials(501, 0), asks(7), 2)


def test_a_sender_the_kernel_cannot_name_is_refused() -> None:
    """Pid 0: in a namespace beside the daemon's."""
    peers = Peers({0}, lambda _: ())
    for sender in (None, Credentials(0, 0)):
        with pytest.raises(RefusedError, match="hostPID"):
            peers.admit(sender, asks(0), 1)


def test_silent_processes_are_forgotten() -> None:
    peers = Peers({0}, lambda _: ())
    peers.admit(Credentials(5, 0), asks(5), 10)
    assert [one.pid for one in peers.known(10 + SILENT_NS - 1)] == [5]
    assert peers.known(10 + SILENT_NS) == ()


def test_there_is_an_end_to_how_many_processes_are_known() -> None:
    peers = Peers({0}, lambda _: ())
    for pid in range(1, PROCESSES_MAX + 1):
        peers.admit(Credentials(pid, 0), asks(pid), pid)
    with pytest.raises(RefusedError, match="more than"):
        peers.admit(Credentials(PROCESSES_MAX + 1, 0), asks(PROCESSES_MAX + 1), PROCESSES_MAX)
    peers.admit(Credentials(PROCESSES_MAX + 1, 0), asks(PROCESSES_MAX + 1), SILENT_NS + 2)


@given(
    sender=st.builds(Credentials, st.integers(-1, 5), st.integers(0, 2)),
    message=st.one_of(
        st.builds(ContextMessage, st.integers(), st.integers(-1, 5), st.integers()),
        st.builds(RequestMessage, st.booleans(), st.integers(), st.lists(st.integers(-1, 5), min_size=1).map(tuple)),
    ),
)
def test_only_who_is_what_it_claims_is_admitted(sender: Credentials, message: ContextMessage | RequestMessage) -> None:
    peers = Peers({0}, lambda pid: (pid, pid + 1))
    claimed = message.pid if isinstance(message, ContextMessage) else message.pids[0]
    try:
        known = peers.admit(sender, message, 1)
    except RefusedError:
        assert peers.known(1) == ()
        assert sender.user != 0 or sender.pid <= 0 or claimed not in {sender.pid, sender.pid + 1}
    else:
        assert sender.user == 0
        assert known.own_pid == claimed


def test_numbers_in_namespaces_are_read_from_proc(tmp_path: Path) -> None:
    assert namespace_numbers(process_status(PROC, ME))[-1] == ME
    (tmp_path / "5").mkdir()
    (tmp_path / "5/status").write_text("Name:\tx\nNSpid:\t5\t2\nUid:\t0\n")
    assert namespace_numbers(process_status(tmp_path, 5)) == (5, 2)
    (tmp_path / "5/status").write_text("NSpid:\tx y\n")
    assert namespace_numbers(process_status(tmp_path, 5)) == ()
    assert namespace_numbers(process_status(tmp_path, 6)) == ()
