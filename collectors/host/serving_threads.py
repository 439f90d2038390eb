"""On-CPU time and run-queue wait of the serving threads.

The scheduler of SGLang spins while it waits, so that its CPU use says nothing. What tells of a host that got
slower is the time its threads wait for a CPU.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cyclewatch.collectors.host.labels import PROCESS_LABELS, Series, series
from cyclewatch.collectors.host.problems import unreadable
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.host.threads import Thread, ThreadTimes
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Failure, NoData, Reading, Sample

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
        self._threads: ThreadTimes[tuple[Series, str]] = ThreadTimes(proc)

    @property
    def vanished(self) -> bool:
        """Whether a thread is gone."""
        return self._threads.vanished

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Take over the present threads, at most `THREADS_MAX`; a main thread is never left out for another."""
        del now_ns
        mains: dict[Thread, tuple[Series, str]] = {}
        others: dict[Thread, tuple[Series, str]] = {}
        for process in scene.processes:
            try:
                thread_ids = scene.tree.threads(process.pid)
            except PermissionError as error:
                yield unreadable(self._proc / str(process.pid) / "task", error)
                continue
            except OSError:
                continue  # it has ended since it was found
            for thread_id in thread_ids:
                thread = Thread(process.pid, process.start_ticks, thread_id)
                if thread_id == process.pid:
                    mains[thread] = series(process), "main"
                else:
                    others[thread] = series(process), "others"
        left_out = len(mains) + len(others) - THREADS_MAX
        if left_out > 0:
            yield Failure(str(self._proc), f"{left_out} threads beyond {THREADS_MAX} are not watched")
        failed = self._threads.refresh(dict(islice((mains | others).items(), THREADS_MAX)))
        if failed is not None:
            yield unreadable(self._proc, failed)
        elif mains and not self._threads:
            yield NoData(f"no thread under {self._proc} has schedstat: the kernel was built without CONFIG_SCHED_INFO")

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares since the last reading, processes of the same role and rank added up."""
        for ((target, labels), thread), shares in self._threads.advance(now_ns).items():
            with_thread = (*labels, ("thread", thread))
            yield Reading(target, "host.on_cpu_ratio", shares.on_cpu, with_thread)
            yield Reading(target, "host.run_queue_wait_ratio", shares.wait, with_thread)

    def close(self) -> None:
        """Close all files."""
        self._threads.close()
