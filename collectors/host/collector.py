"""The host collector: what Linux did to the serving processes.

The scheduler of SGLang spins while it waits, so that its CPU use says nothing. What tells of a host that got
slower is the time its threads wait for a CPU, and the time its control group is held back by a CPU limit.
"""

from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery, SchedulerProcess
from cyclewatch.collectors.host.cgroup import cpu_directories, parse_groups, parse_mounts
from cyclewatch.collectors.host.threads import ProcessThreads, Shares, together
from cyclewatch.collectors.host.throttling import GroupThrottling
from cyclewatch.collectors.processes import ProcessTree, ServerProcess, server_processes
from cyclewatch.collectors.procfs import FormatError
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Failure, NoData, Reading, Sample
from cyclewatch.config.settings import Host

RESCAN_NS = 15_000_000_000
THREADS_MAX = 512

_THREADS = ("process", "rank", "thread")
QUANTITIES = (
    Quantity(
        "host.on_cpu_ratio",
        "Share of the time that serving threads were on a CPU.",
        "/proc/PID/task/TID/schedstat",
        "host.interval_s",
        _THREADS,
        cost="1.1 us a thread, with the file held open",
    ),
    Quantity(
        "host.run_queue_wait_ratio",
        "Share of the time that serving threads were ready to run and waited for a CPU.",
        "/proc/PID/task/TID/schedstat",
        "host.interval_s",
        _THREADS,
        cost="in the reading of on_cpu_ratio",
    ),
    Quantity(
        "host.cgroup_throttled_ratio",
        "Share of the time that the scheduler's control group was held back by its CPU limit.",
        "cpu.stat of the control group and those above it",
        "host.interval_s",
        ("process", "rank"),
        cost="1.3 us a group, with the file held open",
    ),
)

_Labels = tuple[tuple[str, str], ...]


class HostCollector:
    """Reads scheduling statistics of the serving threads, and CPU throttling of the schedulers' groups.

    All values are differences between two readings, so that the first call gives none. Processes and threads
    are looked for every 15 s, when the schedulers change, and when one of them is gone; a thread that lives
    for less than that may be missed.
    """

    name = "host"
    quantities = QUANTITIES

    def __init__(self, settings: Host, discovery: Discovery) -> None:
        self.interval_s = settings.interval_s
        self._proc = settings.proc
        self._cgroup = settings.cgroup
        self._discovery = discovery
        self._schedulers: tuple[SchedulerProcess, ...] = ()
        self._threads: dict[ServerProcess, ProcessThreads] = {}
        self._directories: dict[ServerProcess, tuple[Path, ...]] = {}
        self._throttling = GroupThrottling()
        self._scanned_ns = 0

    def collect(self, now: Now) -> list[Sample]:
        """Readings of every serving process; `NoData` for schedulers that cannot be seen from here."""
        now_ns = now.monotonic_ns
        schedulers = self._discovery.schedulers()
        if not schedulers:
            self.close()
            return [
                NoData(
                    "no scheduler process known yet: they are found from their rings, "
                    "which need cyclewatch-sglang installed and CYCLEWATCH_RING_DIR set"
                )
            ]
        samples: list[Sample] = []
        shares, vanished = self._advance(now_ns)
        for (target, labels), share in shares.items():
            samples.append(Reading(target, "host.on_cpu_ratio", share.on_cpu, labels))
            samples.append(Reading(target, "host.run_queue_wait_ratio", share.wait, labels))
        vanished = self._throttling.advance(now_ns) or vanished
        for process, directories in self._directories.items():
            throttled = self._throttling.share(directories)
            if throttled is not None:
                labels = (("process", process.role), ("rank", process.rank))
                samples.append(Reading(process.target, "host.cgroup_throttled_ratio", throttled, labels))
        if vanished or schedulers != self._schedulers or now_ns - self._scanned_ns >= RESCAN_NS:
            self._schedulers, self._scanned_ns = schedulers, now_ns
            samples += self._rescan(now_ns)
        return samples

    def close(self) -> None:
        """Close all files; the next call starts anew."""
        for threads in self._threads.values():
            threads.close()
        self._throttling.close()
        self._threads, self._directories, self._schedulers = {}, {}, ()

    def _advance(self, now_ns: int) -> tuple[dict[tuple[str, _Labels], Shares], bool]:
        """Shares by target and labels, processes of the same role together; whether a thread has vanished."""
        total: dict[tuple[str, _Labels], Shares] = {}
        any_vanished = False
        for process, threads in self._threads.items():
            main, others, vanished = threads.advance(now_ns)
            any_vanished = any_vanished or vanished
            rank = (("rank", process.rank),) if process.rank else ()
            for thread, shares in (("main", main), ("others", others)):
                key = (process.target, (("process", process.role), *rank, ("thread", thread)))
                sum_ = together(total.get(key), shares)
                if sum_ is not None:
                    total[key] = sum_
        return total, any_vanished

    def _rescan(self, now_ns: int) -> list[Sample]:
        """Find processes, threads and groups anew; tells what is not visible."""
        tree = ProcessTree(self._proc)
        found = list(server_processes(self._schedulers, tree))
        for gone in self._threads.keys() - set(found):
            self._threads.pop(gone).close()
        problems: list[Sample] = []
        left_out = 0
        for process in found:
            try:
                thread_ids = tree.threads(process.pid)
            except PermissionError:
                path = self._proc / str(process.pid) / "task"
                problems.append(Failure(str(path), f"{path}: permission denied: is {self._proc} mounted with hidepid?"))
                continue
            except OSError:
                continue
            threads = self._threads.setdefault(process, ProcessThreads(self._proc, process.pid))
            held = sum(map(len, self._threads.values())) - len(threads)
            left_out += threads.refresh(thread_ids, THREADS_MAX - held, now_ns)
        if left_out:
            problems.append(Failure(str(self._proc), f"{left_out} threads beyond {THREADS_MAX} are not watched"))
        problems += self._unseen(found)
        self._find_groups([process for process in found if process.role == "scheduler"], now_ns)
        return problems

    def _unseen(self, found: list[ServerProcess]) -> list[Sample]:
        seen = {process.pid for process in found}
        return [
            NoData(
                f"scheduler process {scheduler.pid} of {scheduler.target} is not visible under {self._proc}: it "
                "has ended, or runs in another pid namespace, which cyclewatch must share"
            )
            for scheduler in self._schedulers
            if scheduler.pid not in seen
        ]

    def _find_groups(self, schedulers: list[ServerProcess], now_ns: int) -> None:
        try:
            mounts = parse_mounts((self._proc / "self/mountinfo").read_bytes())
        except (OSError, FormatError):
            mounts = ()
        self._directories = {}
        for process in schedulers:
            try:
                groups = parse_groups((self._proc / str(process.pid) / "cgroup").read_bytes())
            except (OSError, FormatError):
                continue
            self._directories[process] = cpu_directories(groups, mounts, self._cgroup)
        # Own groups come before those above them, and are the ones that stay where there are too many.
        directories = dict.fromkeys(path for paths in self._directories.values() for path in paths)
        self._throttling.refresh(list(directories), now_ns)
