"""Start, question, slow down and stop a real SGLang server on the CPU.

A server is four processes (HTTP server, scheduler, detokenizer, Python's resource tracker). They run in a
session of their own, so that stopping finds all of them and nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sglang_cpu.processes import Process, session_processes, sglang_shared_memory
from sglang_cpu.tiny_model import CONTEXT_LENGTH, write_model

HOST: Final = "127.0.0.1"
CPU_ENVIRONMENT: Final = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    # Compiling three tiny functions needs a C++ compiler and 20 s, and makes no step faster here.
    "TORCH_COMPILE_DISABLE": "1",
    # SGLang warms itself up over HTTP: never through a proxy.
    "NO_PROXY": f"{HOST},localhost",
    "no_proxy": f"{HOST},localhost",
}
CPU_ARGUMENTS: Final = (
    *("--load-format", "dummy"),
    *("--device", "cpu"),
    *("--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch"),
    *("--grammar-backend", "none"),
    *("--max-total-tokens", "16384"),
    *("--mem-fraction-static", "0.1"),
    *("--max-running-requests", "16"),
    *("--context-length", str(CONTEXT_LENGTH)),
    "--enable-metrics",
    "--sleep-on-idle",  # an idle scheduler would otherwise spin on one of the few cores
)
SERVER_INFO_PATHS: Final = {"0.5.4": "/get_server_info"}
"""Where a version describes itself, if not at `/server_info`."""

POLL_SECONDS: Final = 0.2
KILL_SECONDS: Final = 10.0
LOG_TAIL_LINES: Final = 30


class SGLangServerError(RuntimeError):
    """The server did not start, or refused a request."""


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def server_command(
    python: Path, model: Path, port: int, *, overlap: bool = True, extra_args: Sequence[str] = ()
) -> list[str]:
    """Return the command line; of an argument given twice SGLang takes the last, so `extra_args` win."""
    command = [str(python), "-m", "sglang.launch_server", "--model-path", str(model)]
    command += ["--host", HOST, "--port", str(port), *CPU_ARGUMENTS]
    if not overlap:
        command.append("--disable-overlap-schedule")
    return [*command, *extra_args]


def server_environment(
    base: Mapping[str, str], temporary: Path, extra_env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment: the caller's, without its import path, and what SGLang needs on a CPU."""
    inherited = {name: value for name, value in base.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    return inherited | CPU_ENVIRONMENT | {"TMPDIR": str(temporary)} | dict(extra_env or {})


def tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of a text file, or the empty string where there is none yet."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


class SGLangServer:
    """A context manager that runs one SGLang server.

    Args:
        venv: environment made by `build_env.py`.
        version: the SGLang version in it.
        workdir: folder for the model and the log; made if missing.
        extra_env: environment variables on top of those a CPU needs.
        extra_args: server arguments on top of those a CPU needs.
        port: loopback port; a free one is taken by default.
        overlap: whether the scheduler prepares a batch while the one before runs.
        start_timeout: seconds until the server must answer `/health`.
        stop_timeout: seconds until a server asked to stop is killed.
    """

    def __init__(
        self,
        venv: Path,
        version: str,
        workdir: Path,
        *,
        extra_env: Mapping[str, str] | None = None,
        extra_args: Sequence[str] = (),
        port: int | None = None,
        overlap: bool = True,
        start_timeout: float = 180.0,
        stop_timeout: float = 20.0,
    ) -> None:
        self.venv = venv
        self.version = version
        self.workdir = workdir.absolute()  # the server runs in it
        self.port = free_port() if port is None else port
        self.log_path = self.workdir / "sglang.log"
        self._python = venv.absolute() / "bin" / "python"
        self._extra_env = dict(extra_env or {})
        self._extra_args = tuple(extra_args)
        self._overlap = overlap
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._shared_memory: set[Path] = set()

    @property
    def base_url(self) -> str:
        """The address of the server, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the HTTP server's process, which is also its session and process group."""
        if self._process is None:
            raise SGLangServerError("the SGLang server is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return once the server answers `/health`; if it does not, raise with the end of its log."""
        if self._process is not None:
            raise SGLangServerError("the SGLang server is already running")
        self.workdir.mkdir(parents=True, exist_ok=True)
        model = write_model(self.workdir / "model")
        # SGLang leaves its sockets behind; in a folder of ours they go with the server. Not in `workdir`: its
        # path may be too long for a socket's name.
        self._temporary = tempfile.TemporaryDirectory(prefix="sglang-")
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    server_command(self._python, model, self.port, overlap=self._overlap, extra_args=self._extra_args),
                    env=server_environment(os.environ, Path(self._temporary.name), self._extra_env),
                    cwd=self.workdir,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._wait_until_healthy(self._process)
        except BaseException:  # also when the test run is interrupted: never leave a server behind
            self._end(grace_seconds=0.0)
            raise
        self._shared_memory = sglang_shared_memory(self._process.pid)

    def stop(self) -> None:
        """Ask the server to end, wait, and kill what is left of its process group, if it runs at all."""
        self._end(self._stop_timeout)

    def _end(self, grace_seconds: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._shared_memory |= sglang_shared_memory(process.pid)
            if process.poll() is None:
                # To the first process alone: it ends the others. A signal to the whole group looks to SGLang
                # like a crash of the scheduler, and it takes 5 s more for its diagnosis.
                process.terminate()
            if not _wait_until_gone(process, grace_seconds):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not _wait_until_gone(process, KILL_SECONDS):
                    raise SGLangServerError(f"processes are left: {session_processes(process.pid)}")
        for file in self._shared_memory:  # 0.5.23 leaves one behind
            file.unlink(missing_ok=True)
        self._shared_memory.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def restart(self, extra_args: Sequence[str] | None = None) -> None:
        """Stop and start again on the same port, with other extra arguments if given."""
        self.stop()
        if extra_args is not None:
            self._extra_args = tuple(extra_args)
        self.start()

    def processes(self) -> list[Process]:
        """Return all processes of the server."""
        return session_processes(self.pid)

    def scheduler_pid(self) -> int:
        """Return the pid of the scheduler process."""
        for process in self.processes():
            if process.title.startswith("sglang::scheduler"):
                return process.pid
        raise SGLangServerError("the SGLang server has no scheduler process")

    def get(self, path: str) -> str:
        """Return the text the server answers to a GET; raise unless the status is 200."""
        return self._request("GET", path, None)

    def post(self, path: str, json_body: object = None) -> Any:
        """Return the JSON the server answers to a POST, or its plain text; raise unless the status is 200."""
        text = self._request("POST", path, json.dumps(json_body))
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text

    def server_info(self) -> dict[str, Any]:
        """Return the server's arguments and state, from wherever this version has them."""
        info: dict[str, Any] = json.loads(self.get(SERVER_INFO_PATHS.get(self.version, "/server_info")))
        return info

    def slow_down(self, seconds: float | None) -> None:
        """Make every forward pass longer by a sleep of so many seconds; `None` ends it."""
        self.post("/slow_down", {"forward_sleep_time": seconds})

    def _request(self, method: str, path: str, body: str | None, timeout: float = 60.0) -> str:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise SGLangServerError(f"{method} {path} answered {response.status}: {text[:200]}")
        return text

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise SGLangServerError(
                    f"SGLang {self.version} ended with code {process.returncode} while starting:\n{tail(self.log_path)}"
                )
            try:
                self._request("GET", "/health", None, timeout=5.0)
            except (OSError, http.client.HTTPException, SGLangServerError):
                time.sleep(POLL_SECONDS)
            else:
                return
        raise SGLangServerError(
            f"SGLang {self.version} was not healthy after {self._start_timeout:.0f} s:\n{tail(self.log_path)}"
        )


def _wait_until_gone(process: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.poll() is None or session_processes(process.pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
