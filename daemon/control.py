"""Asking the running daemon for something: a unix socket in the state directory, for its owner alone.

A question is one line of JSON, and so is the answer. A socket rather than a table of requests: it says at once when no
daemon runs, nothing is left over that would be carried out later, and the answer comes while the database is away.
"""

import contextlib
import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_NAME = "control.sock"
_QUESTION_BYTES_MAX = 4096
_ANSWER_WAIT_S = 300.0
_TAKE_BACK_WAIT_S = 5.0
_MODE = 0o600

Answer = Mapping[str, Any]


class ControlError(Exception):
    """The daemon cannot be asked, or refuses; one sentence."""


class NoDaemonError(ControlError):
    """There is none to ask."""


class ControlServer:
    """Answers questions with `answer`, each connection in a thread of its own.

    `done` is called with the answer when the asker has hung up, for what it was given the use of.
    """

    def __init__(
        self, directory: Path, answer: Callable[[Mapping[str, Any]], Answer], done: Callable[[Answer], None]
    ) -> None:
        self._directory = directory
        self._answer = answer
        self._done = done
        self._server: socketserver.BaseServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen from now on. The state directory is this daemon's alone, so an old socket there is left over.

        Raises:
            ControlError: the socket cannot be made.
        """
        path = self._directory / _NAME
        answer, done = self._answer, self._done

        class Handler(socketserver.StreamRequestHandler):
            timeout = _ANSWER_WAIT_S

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # whoever asked has gone
                    reply = _replied(self.rfile.readline(_QUESTION_BYTES_MAX), answer)
                    try:
                        self.wfile.write(json.dumps(reply).encode() + b"\n")
                        self.rfile.read(1)  # until it hangs up
                    finally:
                        done(reply)

        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            with _short(self._directory) as directory:
                self._server = _Server(f"{directory}/{_NAME}", Handler)
            path.chmod(_MODE)
        except OSError as error:
            raise ControlError(f"{path}: cannot be made: {error.strerror}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            (self._directory / _NAME).unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


def _replied(line: bytes, answer: Callable[[Mapping[str, Any]], Answer]) -> Answer:
    try:
        question = json.loads(line)
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict):
        return {"error": "the question is not one line of JSON"}
    return answer(question)


@contextlib.contextmanager
def asked(directory: Path, question: Mapping[str, Any]) -> Iterator[Answer]:
    """The daemon's answer to a question; what it names may be used inside the context, and is given back at its end.

    Raises:
        NoDaemonError: no daemon runs with this state directory.
        ControlError: it may not be asked by this user, or it refuses.
    """
    path = directory / _NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_WAIT_S)
        try:
            with _short(directory) as short:
                connection.connect(f"{short}/{_NAME}")
            connection.sendall(json.dumps(question).encode() + b"\n")
            line = connection.makefile("rb").readline()
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoDaemonError(f"{path}: no daemon runs with this state_dir: start it: cyclewatch run") from None
        except OSError as error:
            raise ControlError(f"{path}: {error.strerror or 'no answer'}: ask as the daemon's own user") from None
        if not line:
            raise ControlError(f"{path}: the daemon hung up: see its log")
        answer = json.loads(line)
        if "error" in answer:
            raise ControlError(answer["error"])
        try:
            yield answer
        finally:
            with contextlib.suppress(OSError):  # gone with the daemon
                connection.settimeout(_TAKE_BACK_WAIT_S)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # it ends when what was given has been taken back


@contextlib.contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A short name of a directory: addresses of sockets hold 107 bytes, and a state directory may be longer."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
