"""A small tree of files that looks like /proc and the control groups, for tests."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

_NODE = {
    "stat": "cpu  0 0 0 0 0 0 0 0 0 0\n",
    "loadavg": "0.00 0.00 0.00 1/1 1\n",
    "meminfo": "MemAvailable: 1 kB\n",
    "pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
}
"""Files that every node has."""


class FakeProc:
    """Processes, threads and control groups below `root`; numbers in nanoseconds unless they say otherwise."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.cgroup = self.sys / "fs/cgroup"
        self.mounts: list[str] = []
        (self.proc / "self").mkdir(parents=True)
        (self.sys / "block").mkdir(parents=True)
        self.cgroup.mkdir(parents=True)
        for name, content in _NODE.items():
            path = self.proc / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)

    def process(
        self,
        pid: int,
        name: str,
        parent: int,
        *,
        start: int = 1000,
        threads: Mapping[int, tuple[int, int]] | None = None,
        cgroup: str = "0::/\n",
        children: bool = True,
    ) -> None:
        """Make a process; `threads` gives on-CPU time and wait by thread, with the main thread's as the default."""
        directory = self.proc / str(pid)
        directory.mkdir()
        fields = ["S", str(parent), *["0"] * 17, str(start), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (directory / "cgroup").write_text(cgroup)
        for tid, (on_cpu, wait) in (threads or {pid: (0, 0)}).items():
            self.thread(pid, tid, on_cpu, wait)
        if children:
            (directory / "task" / str(pid) / "children").write_text("")
            of_parent = self.proc / str(parent) / "task" / str(parent) / "children"
            if of_parent.exists():
                of_parent.write_text(f"{of_parent.read_text()}{pid} ")

    def thread(self, pid: int, tid: int, on_cpu: int, wait: int) -> None:
        """Set the counters of a thread, which is made if it is not there."""
        self.garbage(pid, tid, f"{on_cpu} {wait} 17\n")

    def garbage(self, pid: int, tid: int, content: str) -> None:
        """Let a thread's schedstat hold `content`."""
        directory = self.proc / str(pid) / "task" / str(tid)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "schedstat").write_text(content)

    def end_thread(self, pid: int, tid: int) -> None:
        shutil.rmtree(self.proc / str(pid) / "task" / str(tid))

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def mount(self, point: str, *, controllers: str = "", root: str = "/") -> Path:
        """Mount a hierarchy below the cgroup root: of version 1 with `controllers`, of version 2 without."""
        path = self.cgroup / point if point else self.cgroup
        path.mkdir(parents=True, exist_ok=True)
        kind, options = ("cgroup", f"rw,{controllers}") if controllers else ("cgroup2", "rw,nsdelegate")
        escaped = str(path).replace(" ", r"\040")
        self.mounts.append(f"31 23 0:28 {root} {escaped} rw,relatime shared:9 - {kind} {kind} {options}\n")
        mounts = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" + "".join(self.mounts)
        (self.proc / "self/mountinfo").write_text(mounts)
        return path

    def cpu_stat(self, directory: Path, **fields: int) -> None:
        """Write a group's cpu.stat."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpu.stat").write_text("".join(f"{name} {value}\n" for name, value in fields.items()))


def unlinked_files_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let held files of the fake behave like those of the kernel: reading fails once their path is gone."""
    pread = os.pread

    def checked(fd: int, length: int, offset: int) -> bytes:
        if os.fstat(fd).st_nlink == 0:
            raise ProcessLookupError(3, "No such process")
        return pread(fd, length, offset)

    monkeypatch.setattr("os.pread", checked)
