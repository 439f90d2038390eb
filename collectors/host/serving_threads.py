"""On-CPU time and run-queue wait of the serving threads.

The scheduler of SGLang spins while it waits, so that its CPU use says nothing. What tells of a host that got
slower is the time its threads wait for a CPU.
"""

from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.source import PROCESS_LABELS, Scene, Series, series, unreadable
from cyclewatch.collectors.host.threads import ProcessThreads, Shares, together
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Failure, Reading, Sample

THREADS_MAX = 512
THREAD_LABELS = (*PROCESS_LABELS, "thread")


class ServingThreads:
    """The threads of all serving processes: shares by process, for its main thread and for all others together."""

    quantities = (
        Quantity(
            "host.on_cpu_ratio",
            "Share of the time that serving threads were on a CPU.",
            "/proc/PID/task/TID/schedstat",
            "host.interval_s",
            THREAD_LABELS,
            cost="1.1 us a thread, with the file held open",
        ),
        Quantity(
            "host.run_queue_wait_ratio",
            "Share of the time that serving threads were ready to run and waited for a CPU.",
            "/proc/PID/task/TID/schedstat",
            "host.interval_s",
            THREAD_LABELS,
            cost="in the reading of on_cpu_ratio",
        ),
    )

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._processes: dict[ServerProcess, ProcessThreads] = {}
        self.vanished = False

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Take over the present processes and threads, at most `THREADS_MAX`."""
        self.vanished = False
        for gone in self._processes.keys() - set(scene.processes):
            self._processes.pop(gone).close()
        left_out = 0
        for process in scene.processes:
            try:
                thread_ids = scene.tree.threads(process.pid)
            except PermissionError as error:
                yield unreadable(self._proc / str(process.pid) / "task", error)
                continue
            except OSError:
                continue  # it has ended since it was found
            threads = self._processes.setdefault(process, ProcessThreads(self._proc, process.pid))
            held = sum(map(len, self._processes.values())) - len(threads)
            left_out += threads.refresh(thread_ids, THREADS_MAX - held, now_ns)
        if left_out:
            yield Failure(str(self._proc), f"{left_out} threads beyond {THREADS_MAX} are not watched")

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares since the last reading, processes of the same role and rank added up."""
        total: dict[tuple[Series, str], Shares] = {}
        for process, threads in self._processes.items():
            main, others, vanished = threads.advance(now_ns)
            self.vanished = self.vanished or vanished
            for thread, shares in (("main", main), ("others", others)):
                key = series(process), thread
                sum_ = together(total.get(key), shares)
                if sum_ is not None:
                    total[key] = sum_
        for ((target, labels), thread), shares in total.items():
            with_thread = (*labels, ("thread", thread))
            yield Reading(target, "host.on_cpu_ratio", shares.on_cpu, with_thread)
            yield Reading(target, "host.run_queue_wait_ratio", shares.wait, with_thread)

    def close(self) -> None:
        """Close all files."""
        for threads in self._processes.values():
            threads.close()
        self._processes.clear()
