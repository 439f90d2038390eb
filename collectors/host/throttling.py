"""How long CPU limits of control groups held processes back."""

from collections.abc import Collection, Sequence
from pathlib import Path

from cyclewatch.collectors.host.cgroup import parse_cpu_stat
from cyclewatch.collectors.host.held import HeldFile
from cyclewatch.collectors.procfs import FormatError

GROUPS_MAX = 128


class _Group:
    """One group: its open `cpu.stat`, and the last reading of it."""

    __slots__ = ("at_ns", "file", "last_ns", "share")

    def __init__(self, directory: Path) -> None:
        self.file = HeldFile(directory / "cpu.stat")
        self.at_ns = 0
        self.last_ns: int | None = None
        self.share: float | None = None

    def advance(self, now_ns: int) -> None:
        """Set `share`: throttled over elapsed time; None at the first reading and where it went backwards."""
        stat = parse_cpu_stat(self.file.read())
        last_ns, self.last_ns = self.last_ns, None if stat is None else stat.throttled_ns
        elapsed, self.at_ns = now_ns - self.at_ns, now_ns
        self.share = None
        if last_ns is not None and self.last_ns is not None and self.last_ns >= last_ns and elapsed > 0:
            self.share = (self.last_ns - last_ns) / elapsed


class GroupThrottling:
    """The groups that matter to some processes, each read once a call however many processes are in it."""

    def __init__(self) -> None:
        self._groups: dict[Path, _Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def refresh(self, directories: Collection[Path], now_ns: int) -> None:
        """Hold the groups of `directories` open, and no others; new ones are read for the first time."""
        for gone in self._groups.keys() - set(directories):
            self._forget(gone)
        for directory in directories:
            if directory in self._groups or len(self._groups) >= GROUPS_MAX:
                continue
            try:
                group = self._groups[directory] = _Group(directory)
            except OSError:
                continue  # a root group has no such file in version 2, a group may be gone
            self._read(directory, group, now_ns)

    def advance(self, now_ns: int) -> bool:
        """Read all groups; whether one has vanished."""
        before = len(self._groups)
        for directory, group in list(self._groups.items()):
            self._read(directory, group, now_ns)
        return len(self._groups) < before

    def share(self, directories: Sequence[Path]) -> float | None:
        """Throttled over elapsed time in the worst of `directories`; above 1 where several CPUs were held back.

        None where none of them has two readings to compare.
        """
        groups = [self._groups[directory] for directory in directories if directory in self._groups]
        return max((group.share for group in groups if group.share is not None), default=None)

    def close(self) -> None:
        """Close all files."""
        for directory in list(self._groups):
            self._forget(directory)

    def _read(self, directory: Path, group: _Group, now_ns: int) -> None:
        try:
            group.advance(now_ns)
        except FormatError:
            group.last_ns = group.share = None
        except OSError:
            self._forget(directory)

    def _forget(self, directory: Path) -> None:
        self._groups.pop(directory).file.close()
