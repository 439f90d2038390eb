"""The daemon's own use of the node, how far it is behind, and what it lost."""

import contextlib
import gc
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.host.counters import Counts
from cyclewatch.collectors.host.labels import Labels
from cyclewatch.collectors.host.problems import unreadable
from cyclewatch.collectors.procfs import FormatError, named_counters, parse_schedstat
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Reading, Sample
from cyclewatch.config.settings import SelfUsage

OWN = Path("/proc/self")
"""Of the daemon's own pid namespace, as the numbers of its threads are: `host.proc` may show those of another one."""

_PACE = "self.interval_s"
_COUNTED = "what the daemon counts"
_STATUS = "/proc/self/status"


_REST = "in the reading of cpu_ratio"


def _own(name: str, text: str, source: str, *labels: str, cost: str = _REST) -> Quantity:
    return Quantity(f"self.{name}", text, source, _PACE, labels, NODE, cost)


def _of_ring(name: str, text: str) -> Quantity:
    return Quantity(f"self.{name}", text, _COUNTED, _PACE, ("rank",), cost=_REST)


QUANTITIES = (
    _own(
        "cpu_ratio",
        "CPU time of the daemon, as a share of one core.",
        "the clock of the process",
        cost="0.5 ms for all of `self`, with 20 threads",
    ),
    _own(
        "thread_cpu_ratio",
        "The same by thread; numbered ones of a name together, those that are not Python's as `other`.",
        "/proc/self/task/TID/schedstat",
        "thread",
    ),
    _own("rss_bytes", "Memory of the daemon.", f"VmRSS in {_STATUS}"),
    _own("rss_peak_bytes", "The most memory that the daemon ever had.", f"VmHWM in {_STATUS}"),
    _own("threads", "Threads of the daemon.", f"Threads in {_STATUS}"),
    _own("open_files", "Descriptors that the daemon holds.", "/proc/self/fd"),
    _own("open_files_limit", "Descriptors that it may hold.", "getrlimit"),
    _own(
        "garbage_collections_per_s",
        "Runs of Python's garbage collector; those of generation 2 look at every object.",
        "gc.get_stats",
        "generation",
    ),
    _own(
        "queue_length",
        "What waits: `samples` for the pipeline, which takes them once a second, and `batches` for the database.",
        _COUNTED,
        "queue",
    ),
    _own("store_busy_ratio", "Share of the time in transactions of the database.", _COUNTED),
    _own("store_rows_per_s", "Rows written to the database.", _COUNTED),
    _of_ring("ring_behind_records", "Records written and not read at the last look; the newest always waits."),
    _of_ring("ring_behind_s", "Age of the newest record read, where more than one waits."),
    _of_ring("ring_lost_per_s", "Records overwritten before they were read."),
)

_Series = tuple[str, str, Labels]
"""Target, name and labels."""

_NUMBERED = re.compile(r"[-_ (]*[0-9].*")
_parse_status = named_counters(
    {b"VmRSS": "self.rss_bytes", b"VmHWM": "self.rss_peak_bytes", b"Threads": "self.threads"}
)
_KIB = 1024


@dataclass(frozen=True)
class RingProgress:
    """How far the reading of one ring has come; see the quantities. `lost` counts since the daemon's start."""

    target: str
    rank: str
    behind_records: int
    behind_s: float
    lost: int


@dataclass(frozen=True)
class Work:
    """What the daemon tells of its own work: queues as they are, counts since its start."""

    queues: Mapping[str, int] = field(default_factory=dict)
    store_busy_ns: int = 0
    store_rows: int = 0
    rings: tuple[RingProgress, ...] = ()


class SelfCollector:
    """Tells what the daemon uses. `work` is asked for the rest, and must be safe to call from any thread.

    `own` stands for the daemon's own directory in /proc.
    """

    name = "self"
    quantities = QUANTITIES

    def __init__(
        self,
        settings: SelfUsage,
        work: Callable[[], Work],
        own: Path = OWN,
        cpu_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self.interval_s = settings.interval_s
        self._own = own
        self._work = work
        self._cpu_ns = cpu_ns
        self._counts: Counts[_Series] | None = None

    def collect(self, now: Now) -> Iterator[Sample]:
        """Everything but rates at the first call, which need two."""
        work = self._work()
        yield from self._memory()
        yield from self._files()
        for queue, length in work.queues.items():
            yield Reading(NODE, "self.queue_length", length, (("queue", queue),))
        for ring in work.rings:
            rank = (("rank", ring.rank),)
            yield Reading(ring.target, "self.ring_behind_records", ring.behind_records, rank)
            yield Reading(ring.target, "self.ring_behind_s", ring.behind_s, rank)
        self._counts = Counts(self._growing(work), now.monotonic_ns, self._counts)
        for (target, name, labels), per_s in self._counts.per_s.items():
            yield Reading(target, name, per_s / 1e9 if name.endswith("_ratio") else per_s, labels)

    def close(self) -> None:
        """Begin anew at the next call."""
        self._counts = None

    def _memory(self) -> Iterator[Sample]:
        path = self._own / "status"
        try:
            values = _parse_status(path.read_bytes())
        except (OSError, FormatError) as error:
            yield unreadable(path, error)
            return
        for name, value in values.items():
            yield Reading(NODE, name, value * _KIB if name.endswith("_bytes") else value)

    def _files(self) -> Iterator[Sample]:
        path = self._own / "fd"
        try:
            held = sum(1 for _ in path.iterdir())
        except OSError as error:
            yield unreadable(path, error)
            return
        yield Reading(NODE, "self.open_files", held)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            yield Reading(NODE, "self.open_files_limit", limit)

    def _growing(self, work: Work) -> dict[_Series, int]:
        """What only goes up: nanoseconds for ratios of the time, numbers of things for all else."""
        counts: dict[_Series, int] = {
            (NODE, "self.cpu_ratio", ()): self._cpu_ns(),
            (NODE, "self.store_busy_ratio", ()): work.store_busy_ns,
            (NODE, "self.store_rows_per_s", ()): work.store_rows,
        }
        for name, on_cpu_ns in self._threads().items():
            counts[NODE, "self.thread_cpu_ratio", (("thread", name),)] = on_cpu_ns
        for generation, stats in enumerate(gc.get_stats()):
            counts[NODE, "self.garbage_collections_per_s", (("generation", str(generation)),)] = stats["collections"]
        for ring in work.rings:
            counts[ring.target, "self.ring_lost_per_s", (("rank", ring.rank),)] = ring.lost
        return counts

    def _threads(self) -> dict[str, int]:
        """Nanoseconds on a CPU by name of the thread; where one of a name has ended, they may go backwards."""
        names = {str(thread.native_id): _NUMBERED.sub("", thread.name) for thread in threading.enumerate()}
        times: dict[str, int] = {}
        with contextlib.suppress(OSError):  # said of the other files
            for task in (self._own / "task").iterdir():
                with contextlib.suppress(OSError, FormatError):  # it has ended, or this kernel does not count
                    on_cpu_ns = parse_schedstat((task / "schedstat").read_bytes()).on_cpu_ns
                    name = names.get(task.name, "other")
                    times[name] = times.get(name, 0) + on_cpu_ns
        return times
