"""Time on a CPU, and time waiting for one, of the threads of a process."""

from pathlib import Path
from typing import NamedTuple

from cyclewatch.collectors.host.held import HeldFile
from cyclewatch.collectors.procfs import FormatError, SchedStat, parse_schedstat


class Shares(NamedTuple):
    """What threads did between two readings, as ratios of that time, added up over the threads."""

    on_cpu: float
    wait: float


def together(first: Shares | None, second: Shares | None) -> Shares | None:
    """Shares of both; None where neither is known."""
    if first is None or second is None:
        return first or second
    return Shares(first.on_cpu + second.on_cpu, first.wait + second.wait)


class _Thread:
    """One thread: its open file, and the last reading of it."""

    __slots__ = ("at_ns", "file", "last")

    def __init__(self, path: Path) -> None:
        self.file = HeldFile(path)
        self.at_ns = 0
        self.last: SchedStat | None = None

    def advance(self, now_ns: int) -> Shares | None:
        """What the thread did since the last reading; None at the first and where a counter went backwards."""
        stat = parse_schedstat(self.file.read())
        last, self.last = self.last, stat
        elapsed, self.at_ns = now_ns - self.at_ns, now_ns
        if last is None or elapsed <= 0:
            return None
        on_cpu, wait = stat.on_cpu_ns - last.on_cpu_ns, stat.wait_ns - last.wait_ns
        return None if on_cpu < 0 or wait < 0 else Shares(on_cpu / elapsed, wait / elapsed)


class ProcessThreads:
    """The threads of one process, whose main thread has the number `pid`."""

    def __init__(self, proc: Path, pid: int) -> None:
        self._directory = proc / str(pid) / "task"
        self._pid = pid
        self._threads: dict[int, _Thread] = {}

    def __len__(self) -> int:
        return len(self._threads)

    def refresh(self, thread_ids: list[int], limit: int, now_ns: int) -> int:
        """Take over the present list of threads, but hold at most `limit`; gives how many had to be left out.

        Threads that are new are read for the first time. The main thread is never left out for another.
        """
        for gone in self._threads.keys() - set(thread_ids):
            self._forget(gone)
        left_out = 0
        for thread_id in sorted(thread_ids, key=lambda number: (number != self._pid, number)):
            if thread_id in self._threads:
                continue
            if len(self._threads) >= limit:
                left_out += 1
                continue
            try:
                thread = self._threads[thread_id] = _Thread(self._directory / str(thread_id) / "schedstat")
            except OSError:
                continue  # ended since it was listed, or not ours to see
            self._read(thread_id, thread, now_ns)
        return left_out

    def advance(self, now_ns: int) -> tuple[Shares | None, Shares | None, bool]:
        """Shares of the main thread and of all others together, and whether any thread has vanished.

        None where no thread has two readings to compare.
        """
        main: Shares | None = None
        others: Shares | None = None
        vanished = False
        for thread_id, thread in list(self._threads.items()):
            shares = self._read(thread_id, thread, now_ns)
            if shares is None:
                vanished = vanished or thread_id not in self._threads
            elif thread_id == self._pid:
                main = shares
            else:
                others = together(others, shares)
        return main, others, vanished

    def close(self) -> None:
        """Close all files."""
        for thread_id in list(self._threads):
            self._forget(thread_id)

    def _read(self, thread_id: int, thread: _Thread, now_ns: int) -> Shares | None:
        try:
            return thread.advance(now_ns)
        except FormatError:
            thread.last = None
        except OSError:
            self._forget(thread_id)
        return None

    def _forget(self, thread_id: int) -> None:
        self._threads.pop(thread_id).file.close()
