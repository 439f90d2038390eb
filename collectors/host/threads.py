"""Time on a CPU, and time waiting for one, of many threads, read together."""

import contextlib
import errno
from collections.abc import Hashable, Mapping
from itertools import compress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cyclewatch.collectors.host.held import HeldFile, read_each
from cyclewatch.collectors.procfs import FormatError, parse_schedstat

G = TypeVar("G", bound=Hashable)

_NUMBERS = 3
"""In one schedstat: time on a CPU and time waiting for one, in nanoseconds, and the number of timeslices."""
_TIMES = 2
_BYTES_MAX = 64
_INT64_MAX = 2**63 - 1
_TOO_MANY = {errno.EMFILE, errno.ENFILE}

_Counts = npt.NDArray[np.int64]
"""Shape (threads, 3)."""


class Thread(NamedTuple):
    """A thread of a process, whose number may come again: the start tells such processes apart."""

    pid: int
    start_ticks: int
    tid: int


class Shares(NamedTuple):
    """What threads did between two readings, as ratios of that time, added up over the threads."""

    on_cpu: float
    wait: float


class ThreadTimes(Generic[G]):
    """The schedstat files of threads, in groups of the caller's, held open.

    All are parsed at once, by NumPy: for 200 threads that takes an eighth of the time that Python's `int` does.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._files: dict[Thread, HeldFile] = {}
        self._counts = _table([])
        self._at_ns = 0
        self._groups: list[G] = []
        self._begins = np.empty(0, np.intp)
        self.vanished = False

    def __len__(self) -> int:
        return len(self._files)

    def refresh(self, wanted: Mapping[Thread, G]) -> OSError | None:
        """Hold these threads and no others; new ones are read for the first time.

        Follows an `advance` of the same moment, so that all have been read at one time. Gives an error that is none
        of a single thread, if there was one: too many open files.
        """
        failed = None
        rows = dict(zip(self._files, self._counts.tolist(), strict=True))
        for gone in self._files.keys() - wanted.keys():
            self._files.pop(gone).close()
        for thread in wanted:
            if thread in self._files:
                continue
            try:
                file = HeldFile(self._proc / f"{thread.pid}/task/{thread.tid}/schedstat")
            except OSError as error:
                if error.errno in _TOO_MANY:
                    failed = error
                continue  # ended since it was listed, or not ours to see
            self._files[thread] = file
            self._read_row(thread, file, rows)
        numbers = {group: number for number, group in enumerate(dict.fromkeys(wanted.values()))}
        in_groups = sorted(self._files, key=lambda thread: numbers[wanted[thread]])
        self._files = {thread: self._files[thread] for thread in in_groups}
        self._counts = _table([rows[thread] for thread in self._files])
        self._note_groups([wanted[thread] for thread in self._files])
        self.vanished = False
        return failed

    def advance(self, now_ns: int) -> dict[G, Shares]:
        """Shares of each group since the last reading; a group is left out where a thread's times went backwards.

        A thread that cannot be read any more is let go.
        """
        elapsed, self._at_ns = now_ns - self._at_ns, now_ns
        counts = self._read()
        grown = (counts - self._counts)[:, :_TIMES]
        self._counts = counts
        if elapsed <= 0:
            return {}
        groups = [self._groups[begin] for begin in self._begins]
        sums = np.add.reduceat(grown, self._begins, dtype=np.float64).tolist()
        least = np.minimum.reduceat(grown, self._begins).min(axis=1).tolist()
        return {
            group: Shares(on_cpu / elapsed, wait / elapsed)
            for group, (on_cpu, wait), smallest in zip(groups, sums, least, strict=True)
            if smallest >= 0
        }

    def close(self) -> None:
        """Close all files."""
        self.refresh({})

    def _read(self) -> _Counts:
        # NumPy warns of what is no number, and will raise ValueError for it one day.
        with contextlib.suppress(OSError, ValueError, DeprecationWarning):
            content = b"".join(read_each(self._files.values(), _BYTES_MAX))
            numbers = np.fromstring(content, np.int64, sep=" ") if content else np.empty(0, np.int64)
            if len(numbers) == _NUMBERS * len(self._files):
                return numbers.reshape(-1, _NUMBERS)
        return self._read_singly()

    def _read_singly(self) -> _Counts:
        """Read each by itself, and let go of those that fail."""
        rows: dict[Thread, list[int]] = {}
        before = list(self._files)
        for thread, file in list(self._files.items()):
            self._read_row(thread, file, rows)
        kept = [thread in rows for thread in before]
        self._counts = self._counts[kept]
        self._note_groups(list(compress(self._groups, kept)))
        return _table(list(rows.values()))

    def _note_groups(self, groups: list[G]) -> None:
        """The group of each thread held; those of one group are neighbours, and `_begins` has the first of each."""
        self._groups = groups
        begins = [place for place, group in enumerate(groups) if place == 0 or group != groups[place - 1]]
        self._begins = np.array(begins, np.intp)

    def _read_row(self, thread: Thread, file: HeldFile, rows: dict[Thread, list[int]]) -> None:
        try:
            stat = parse_schedstat(file.read())
        except (OSError, FormatError):
            self._files.pop(thread).close()
            self.vanished = True
        else:
            rows[thread] = [min(stat.on_cpu_ns, _INT64_MAX), min(stat.wait_ns, _INT64_MAX), 0]


def _table(rows: list[list[int]]) -> _Counts:
    return np.array(rows, np.int64).reshape(-1, _NUMBERS)
