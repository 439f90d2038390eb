"""Variables in the environment of a serving process: those asked for by name, since others hold secrets."""

from collections.abc import Collection, Mapping
from pathlib import Path

from cyclewatch.collectors.processes import ProcessTree

_BYTES_MAX = 1 << 20
_SGLANG = "sglang::"
_GENERATIONS = 4


def environment(pid: int, names: Collection[str], proc: Path) -> Mapping[str, str] | None:
    """The variables of these names that a process was started with; None where that cannot be seen.

    SGLang's schedulers write their title over their environment (setproctitle). What they were given is what the server
    process that started them was given.
    """
    tree = ProcessTree(proc)
    for _ in range(_GENERATIONS):
        try:
            with (proc / str(pid) / "environ").open("rb") as file:
                content = file.read(_BYTES_MAX)
        except OSError:
            return None
        if content.strip(b"\0"):
            return _chosen(content, names)
        stat = tree.stat(pid)
        if stat is None or not stat.name.startswith(_SGLANG):
            return None
        pid = stat.parent_pid
    return None


def _chosen(content: bytes, names: Collection[str]) -> dict[str, str]:
    entries = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0"))
    return {name: value for name, _, value in entries if name in names}
