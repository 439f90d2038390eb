"""Counters that the kernel keeps in files, and how fast they grow."""

import errno
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from cyclewatch.collectors.host.held import HeldFile
from cyclewatch.collectors.host.problems import unreadable
from cyclewatch.collectors.host.source import OnlyAtLooks
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.records import Failure

K = TypeVar("K", bound=Hashable)
F = TypeVar("F", bound=Hashable)

_GONE = {errno.ENOENT, errno.ESRCH, errno.ENODEV}
"""No such file, process, or control group: nothing that anybody could mend."""


SINGLE = ""
"""The name of the number in a file that holds nothing else."""


def parse_single(content: bytes) -> dict[str, int]:
    """A file with one number, as most of /sys are.

    Raises:
        FormatError: it is none.
    """
    return {SINGLE: counter(content.strip())}


class Counts(Generic[F]):
    """One reading of a file: its numbers `now`, and what each grew by in a second since the reading before.

    A number that is new, has wrapped or went backwards is missing from `per_s`, and all are where the clock
    did not go forward.
    """

    __slots__ = ("at_ns", "now", "per_s")

    def __init__(self, now: Mapping[F, int], at_ns: int, before: "Counts[F] | None") -> None:
        self.at_ns = at_ns
        self.now = now
        self.per_s: Mapping[F, float] = {}
        if before is not None and at_ns > before.at_ns:
            scale = 1e9 / (at_ns - before.at_ns)
            last = before.now
            self.per_s = {
                name: (count - last[name]) * scale
                for name, count in now.items()
                if name in last and count >= last[name]
            }


class _Watched(Generic[F]):
    """One held file and the last reading of it."""

    __slots__ = ("counts", "file", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = HeldFile(path)
        self.counts: Counts[F] | None = None


class CounterFiles(Generic[K, F]):
    """Files of one form, each under a key, held open between readings.

    `parse` turns a file's content into named numbers and raises `FormatError` where it has another form; `whole`
    is for the tables that the kernel does not give in one read. A file that cannot be read or understood is among
    the `problems`; one that does not exist only where the files are `required`, since many kernels lack many files.
    """

    def __init__(
        self, parse: Callable[[bytes], Mapping[F, int]], *, whole: bool = False, required: bool = False
    ) -> None:
        self._parse = parse
        self._required = required
        self._content = HeldFile.read_whole if whole else HeldFile.read
        self._files: dict[K, _Watched[F]] = {}
        self._problems: dict[K, Failure] = {}
        self.vanished = False

    def __len__(self) -> int:
        return len(self._files)

    @property
    def problems(self) -> list[Failure]:
        """What could not be read when it was last tried."""
        return list(self._problems.values())

    def refresh(self, paths: Mapping[K, Path], now_ns: int) -> None:
        """Hold these files open and no others; new ones are read for the first time."""
        for gone in self._files.keys() - paths.keys():
            self._forget(gone)
        for gone in self._problems.keys() - paths.keys():
            del self._problems[gone]
        for key, path in paths.items():
            self.hold(key, path, now_ns)
        self.vanished = False

    def hold(self, key: K, path: Path, now_ns: int) -> None:
        """Hold this file open too."""
        held = self._files.get(key)
        if held is not None and held.path == path:
            return
        if held is not None:
            self._forget(key)
        self._problems.pop(key, None)
        try:
            watched = self._files[key] = _Watched(path)
        except OSError as error:
            self._note(key, path, error)
            return
        self._read(key, watched, now_ns)

    def advance(self, now_ns: int) -> dict[K, Counts[F]]:
        """Read all files; those that could be read and understood."""
        found = {}
        for key, watched in list(self._files.items()):
            counts = self._read(key, watched, now_ns)
            if counts is not None:
                found[key] = counts
        return found

    def close(self) -> None:
        """Close all files."""
        self.refresh({}, 0)

    def _read(self, key: K, watched: _Watched[F], now_ns: int) -> Counts[F] | None:
        before, watched.counts = watched.counts, None
        try:
            watched.counts = Counts(self._parse(self._content(watched.file)), now_ns, before)
        except FormatError as error:
            self._problems[key] = unreadable(watched.path, error)
        except OSError as error:
            self._forget(key)
            self.vanished = True
            self._note(key, watched.path, error)
        else:
            if self._problems:
                self._problems.pop(key, None)
        return watched.counts

    def _note(self, key: K, path: Path, error: OSError) -> None:
        if self._required or error.errno not in _GONE:
            self._problems[key] = unreadable(path, error)

    def _forget(self, key: K) -> None:
        self._files.pop(key).file.close()


class ReadAtLooks(OnlyAtLooks, Generic[K, F]):
    """What sources have in common that read one kind of `files`, and only at looks."""

    def __init__(self, files: CounterFiles[K, F]) -> None:
        self._files = files

    def close(self) -> None:
        """Close all files."""
        self._files.close()
