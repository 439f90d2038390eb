"""The endpoint that PyTorch processes ask: a datagram socket, answered from a thread of its own.

A process asks every five seconds and waits less than 0.1 s for the answer, so nothing slow happens here. Who asks is
known from the kernel (`SCM_CREDENTIALS` of each datagram), never from what the message claims.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cyclewatch.collectors.kineto.directory import (
    CLIENT_PREFIX,
    SOCKET_NAME,
    EndpointError,
    check_directory,
    is_abandoned,
    remove_left_over,
)
from cyclewatch.collectors.kineto.peers import Credentials, KinetoProcess, Peers, RefusedError
from cyclewatch.collectors.kineto.protocol import (
    DATAGRAM_BYTES_MAX,
    ContextMessage,
    ProtocolError,
    configuration_answer,
    count_answer,
    parse,
)
from cyclewatch.collectors.processes import namespace_numbers, process_status

_CREDENTIALS = struct.Struct("=3i")
_TIMESTAMP = struct.Struct("@2l")
_SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; its control message has the same number
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIMESTAMP.size)
"""Room for both, and for no descriptors that somebody sends along."""

_SOCKET_MODE = 0o660
_LATE_NS = 40 * 10**6
"""From this age on a question is not answered. The process has given up (after 60 to 120 ms, tried) or is about to: it
would find the answer at its next question, and be one answer behind from then on."""


@dataclass(frozen=True)
class Refusals:
    """Datagrams of one kind that got no answer: how many, and a sentence on the latest."""

    count: int
    latest: str


class Client(Protocol):
    """What is to be done with one process."""

    def poll(self, process: KinetoProcess) -> str:
        """The process asks: a configuration for it, empty for "nothing to do". Called from the endpoint's thread."""
        ...


class Endpoint:
    """Serves the channel in `directory` to processes of `users`.

    Raises (start):
        EndpointError: the directory cannot be used, or another daemon serves it.
    """

    def __init__(self, directory: Path, users: Collection[int], proc: Path) -> None:
        self.directory = directory
        self._peers = Peers(users, lambda pid: namespace_numbers(process_status(proc, pid)))
        self._lock = threading.Lock()
        self._clients: dict[int, Client] = {}
        self._behind: set[int] = set()
        self._refusals: dict[str, Refusals] = {}
        self._closing = threading.Event()
        self._directory_fd = -1
        self._name: tuple[int, int] | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Bind the socket, and answer from now on."""
        check_directory(self.directory)
        self._directory_fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket = self._bind()
        except BaseException:
            os.close(self._directory_fd)
            raise
        remove_left_over(self.directory)
        self._thread = threading.Thread(target=self._serve, args=[self._socket], name="kineto-endpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and take the socket's name away: asking nobody is quicker for a process than waiting."""
        if self._socket is None or self._thread is None:
            return
        if self.is_reachable():
            with contextlib.suppress(OSError):
                (self.directory / SOCKET_NAME).unlink()
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._socket.close()
        os.close(self._directory_fd)
        self._socket = None

    def is_reachable(self) -> bool:
        """Whether the socket still has its name: it goes with a directory that is removed, or becomes another's."""
        try:
            return self._name == _file_number(self.directory / SOCKET_NAME)
        except OSError:
            return False

    def processes(self) -> tuple[KinetoProcess, ...]:
        """The processes that asked in the last minute."""
        with self._lock:
            return self._peers.known(time.monotonic_ns())

    def attach(self, pid: int, client: Client) -> None:
        """Let `client` say what a process is to do, from its next question on."""
        with self._lock:
            self._clients[pid] = client

    def detach(self, pid: int) -> None:
        """Nothing more is to be done with a process."""
        with self._lock:
            self._clients.pop(pid, None)

    def catch_up(self, pid: int) -> None:
        """A process is one answer behind, since one came too late for it: leave out the next."""
        with self._lock:
            self._behind.add(pid)

    def refusals(self) -> Mapping[str, Refusals]:
        """Datagrams that got no answer since the start, by kind."""
        with self._lock:
            return dict(self._refusals)

    def _bind(self) -> socket.socket:
        path = self.directory / SOCKET_NAME
        taken = EndpointError(f"{path}: another daemon serves it: stop that one, or set profiling.socket_dir")
        try:
            # Held until the end, so that of two that start at once only one replaces what was left over.
            fcntl.flock(self._directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise taken from None
        if is_abandoned(path):
            path.unlink(missing_ok=True)
        endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # Before it has a name, or the first datagrams would come without credentials.
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            endpoint.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            endpoint.bind(str(path))
            path.chmod(_SOCKET_MODE)
            self._name = _file_number(path)
        except OSError as error:
            endpoint.close()
            if error.errno == errno.EADDRINUSE:
                raise taken from None
            raise EndpointError(f"{path}: cannot be served: {error.strerror}") from None
        return endpoint

    def _serve(self, endpoint: socket.socket) -> None:
        while True:
            try:
                datagram, ancillary, flags, address = endpoint.recvmsg(DATAGRAM_BYTES_MAX, _ANCILLARY_BYTES)
            except OSError as error:
                self._refuse(RefusedError("socket", f"the socket gives an error: {error.strerror}"))
                time.sleep(1.0)
                continue
            if self._closing.is_set():
                return
            try:
                where = self._checked(address)
                sender, sent_ns = _told_by_kernel(ancillary)
                answer = self._answer(datagram, sender, sent_ns, whole=not flags & socket.MSG_TRUNC)
                endpoint.sendto(answer, socket.MSG_DONTWAIT, where)
            except RefusedError as error:
                self._refuse(error)
            except ProtocolError as error:
                self._refuse(RefusedError("format", f"a datagram that is none of libkineto's: {error}"))
            except OSError as error:  # it has ended, or does not read its answers
                self._refuse(RefusedError("unreachable", f"an answer could not be sent: {error.strerror}"))
            except Exception as error:  # noqa: BLE001 (one question must not end the answers to all others)
                self._refuse(RefusedError("internal", f"a question could not be answered: {error!r}"))

    def _answer(self, datagram: bytes, sender: Credentials | None, sent_ns: int, *, whole: bool) -> bytes:
        if not whole:
            raise ProtocolError(f"more than {DATAGRAM_BYTES_MAX} bytes")
        message = parse(datagram)
        with self._lock:
            process = self._peers.admit(sender, message, time.monotonic_ns())
            client = self._clients.get(process.pid)
            behind = process.pid in self._behind
            self._behind.discard(process.pid)
        if isinstance(message, ContextMessage):
            return count_answer(1)
        if behind:
            raise RefusedError("behind", f"process {process.pid} was one answer behind")
        age_ns = time.time_ns() - sent_ns
        if age_ns > _LATE_NS:
            raise RefusedError(
                "late", f"process {process.pid} asked {age_ns / 1e6:.0f} ms ago: does cyclewatch get CPU?"
            )
        return configuration_answer(client.poll(process) if client else "")

    def _checked(self, address: object) -> str:
        """The address to answer to: a socket of libkineto's, in our directory, named as we name it.

        An answer to a process that spells the directory in another way would end that process: see `directory.py`.
        """
        if not isinstance(address, str):
            raise RefusedError("address", "a datagram from a socket without a name in the file system")
        directory, _, name = address.rpartition("/")
        if directory != str(self.directory):
            raise RefusedError(
                "address",
                f"a process has KINETO_IPC_SOCKET_DIR={directory!a}: it must be {self.directory}, letter by letter",
            )
        if not name.startswith(CLIENT_PREFIX):
            raise RefusedError("address", f"a socket named {name[:64]!a}: libkineto's begin with {CLIENT_PREFIX}")
        try:
            if not stat.S_ISSOCK(os.lstat(address).st_mode):
                raise RefusedError("address", f"{name[:64]!a} is not a socket")
        except (OSError, ValueError):
            raise RefusedError("address", f"{name[:64]!a} is gone") from None
        return address

    def _refuse(self, error: RefusedError) -> None:
        with self._lock:
            before = self._refusals.get(error.kind)
            self._refusals[error.kind] = Refusals(before.count + 1 if before else 1, str(error))


def _file_number(path: Path) -> tuple[int, int]:
    """What tells a file from all others for as long as it is open: its device, and its number there."""
    status = path.lstat()
    return status.st_dev, status.st_ino


def _told_by_kernel(ancillary: list[tuple[int, int, bytes]]) -> tuple[Credentials | None, int]:
    """Who sent a datagram, and when (UTC nanoseconds)."""
    sender, sent_ns = None, time.time_ns()
    for level, kind, data in ancillary:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _CREDENTIALS.size):
            pid, user, _ = _CREDENTIALS.unpack(data)
            sender = Credentials(pid, user)
        elif (level, kind, len(data)) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS, _TIMESTAMP.size):
            seconds, nanoseconds = _TIMESTAMP.unpack(data)
            sent_ns = seconds * 10**9 + nanoseconds
    return sender, sent_ns
