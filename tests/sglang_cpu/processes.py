"""Find the processes of a session, and what they share: SGLang's process tree is one session."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One live process of the server: its pid and its title (or its command line)."""

    pid: int
    title: str


def session_processes(session: int, proc: Path = Path("/proc")) -> list[Process]:
    """Return the live processes of a session by pid; dead ones that are not yet reaped do not count."""
    found = []
    for pid in sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit()):
        folder = proc / str(pid)
        try:
            # After the name in parentheses: state, parent, process group, session.
            state, _, _, process_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if int(process_session) == session and state not in "ZX":
            found.append(Process(pid, title))
    return found


def sglang_shared_memory(session: int, proc: Path = Path("/proc")) -> set[Path]:
    """Return the files in `/dev/shm` made by SGLang that processes of a session have mapped."""
    found = set()
    for process in session_processes(session, proc):
        try:
            maps = (proc / str(process.pid) / "maps").read_text()
        except OSError:
            continue  # it ended while we looked
        found |= {Path(line.split()[5]) for line in maps.splitlines() if " /dev/shm/sglang_" in line}
    return found
