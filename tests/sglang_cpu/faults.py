"""Faults of a running server and of its machine: context managers, each of which undoes what it did.

    with ControlGroup() as group:
        group.adopt(server)
        with group.hogs(2):
            ...

Only processes that were started here, or belong to the server that was handed over, are touched. A hog ends by itself
when the process that started it is gone. What this machine does not allow raises `NotInjectableError`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sglang_cpu.server import SGLangServer

CGROUPS: Final = Path("/sys/fs/cgroup")
WEIGHT: Final = 4
"""How many times the usual share of the CPUs a server's group gets: other work on the machine is no fault.

With much more than that, hogs in the group would leave nothing to the daemon that watches.
"""

# The parent's number changes when the parent ends.
_HOG: Final = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""

_MEMORY_HOG: Final = """
import os
import numpy as np
parent = os.getppid()
source, target = np.ones(1 << 25), np.empty(1 << 25)
while os.getppid() == parent:
    target[:] = source
"""

_BURSTS: Final = """
import os, signal, sys, time
pid, stop_s, every_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
parent = os.getppid()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
while os.getppid() == parent and not asked:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(stop_s)
    os.kill(pid, signal.SIGCONT)
    time.sleep(every_s - stop_s)
"""


class NotInjectableError(RuntimeError):
    """This machine does not let the fault be injected; the message says why."""


@contextmanager
def slow_down(server: SGLangServer, seconds: float) -> Iterator[None]:
    """SGLang's own `/slow_down`: every forward pass sleeps so long first."""
    server.slow_down(seconds)
    try:
        yield
    finally:
        server.slow_down(None)


@contextmanager
def stopped_in_bursts(server: SGLangServer, stop_s: float, every_s: float) -> Iterator[None]:
    """The scheduler is stopped by a signal and goes on, over and over."""
    pid = server.scheduler_pid()
    process = _python(_BURSTS, str(pid), str(stop_s), str(every_s))
    try:
        yield
    finally:
        _end(process)
        with contextlib.suppress(ProcessLookupError):  # the server may have ended meanwhile
            os.kill(pid, signal.SIGCONT)


@contextmanager
def memory_hogs(count: int) -> Iterator[None]:
    """So many processes copy 256 MiB to and fro; they belong to no control group of the server's."""
    hogs = [_python(_MEMORY_HOG) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            _end(hog)


class ControlGroup:
    """A control group of its own for servers and what shall compete with them.

    Raises:
        NotInjectableError: neither version 1 nor 2 of control groups lets one be made here.
    """

    def __init__(self) -> None:
        self._unified = (CGROUPS / "cgroup.controllers").exists()
        hierarchy = CGROUPS if self._unified else CGROUPS / "cpu"
        self._home = hierarchy / _own_group(self._unified).relative_to("/")
        # Under version 2 a group that has processes may have none with a controller below it, but for the root.
        self._group = (hierarchy if self._unified else self._home) / f"cyclewatch-test-{os.getpid()}"

    def __enter__(self) -> Self:
        try:
            if self._unified:
                (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
            self._group.mkdir()
            weight = ("cpu.weight", 100) if self._unified else ("cpu.shares", 1024)
            self._write(weight[0], str(weight[1] * WEIGHT))
        except OSError as error:
            raise NotInjectableError(f"no control group can be made in {self._group.parent}: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in (self._group / "cgroup.procs").read_text().split():
            _move(int(pid), self._home)
        self._group.rmdir()

    def adopt(self, server: SGLangServer) -> None:
        """Take in all processes of a server; those that they start later come along."""
        for process in server.processes():
            _move(process.pid, self._group)

    @contextmanager
    def hogs(self, count: int) -> Iterator[None]:
        """So many processes that do nothing but compute compete with the server inside its group."""
        hogs = [_python(_HOG) for _ in range(count)]
        try:
            for hog in hogs:
                _move(hog.pid, self._group)
            yield
        finally:
            for hog in hogs:
                _end(hog)

    @contextmanager
    def quota(self, cpus: float, period_s: float = 0.01) -> Iterator[None]:
        """The group may use so many CPUs, counted anew every period."""
        period_us = round(period_s * 1e6)
        quota_us = round(cpus * period_us)
        if self._unified:
            self._write("cpu.max", f"{quota_us} {period_us}")
        else:
            self._write("cpu.cfs_period_us", str(period_us))
            self._write("cpu.cfs_quota_us", str(quota_us))
        try:
            yield
        finally:
            if self._unified:
                self._write("cpu.max", "max")
            else:
                self._write("cpu.cfs_quota_us", "-1")

    def _write(self, name: str, text: str) -> None:
        (self._group / name).write_text(text)


def _own_group(unified: bool) -> Path:
    """The control group of this process, as /proc names it."""
    wanted = "" if unified else "cpu"
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if wanted in controllers.split(","):
            return Path(path)
    raise NotInjectableError("this process is in no control group for CPUs")


def _move(pid: int, group: Path) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        (group / "cgroup.procs").write_text(str(pid))


def _python(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
