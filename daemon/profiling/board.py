"""Between the pipeline and the sampler: what is known of each rank, and when its server was being profiled.

The pipeline and the sampler run in threads of their own, hence the lock; neither holds it for long.
"""

import threading
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from cyclewatch.collectors.records import RECORD, CycleFlag, RecordKind, Records, RingIdentity, joined
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.costs.profile_cost import HEARD_NS, touched

KEEP_NS = 180 * 10**9
"""How long cycles stay here: the stretch before a capture, a slow capture, and the stretch after it."""

_SUSPECTED_NS = 30 * 10**9
"""How long a window under suspicion makes its rank suspected: windows are 5 s long, and some have too few cycles."""

KEEP_STRETCHES_NS = 900 * 10**9
"""How long it stays known when a server was profiled: longer than a ring reaches back."""

_COLUMNS = ("end_ns", "cycle_ns", "kind", "mode", "launched_mode", "flags", "batch_size", "new_tokens")
_COMPACT = np.dtype([(name, RECORD[name]) for name in _COLUMNS])
"""What the cost is told from: a quarter of a record."""


@dataclass(frozen=True)
class RankView:
    """One rank as the pipeline last saw it. Monotonic nanoseconds; 0 for what was never seen.

    `turned_ns` is when the server's loop last turned, be it idle or not, as was known at `looked_ns`.
    """

    ring: RingIdentity
    run: Run
    last_cycle_ns: int = 0
    queue: int = 0
    settled: bool = False
    suspected_ns: int = 0
    turned_ns: int = 0
    looked_ns: int = 0

    def suspected(self, now_ns: int) -> bool:
        """Whether any of its series is under suspicion."""
        return bool(self.suspected_ns) and now_ns - self.suspected_ns < _SUSPECTED_NS

    def silent_ns(self, began_ns: int, ended_ns: int) -> int:
        """How long the loop had not turned, if it stopped in a stretch and still stood at the last look; else 0."""
        if not began_ns - HEARD_NS < self.turned_ns <= ended_ns < self.looked_ns:
            return 0
        return self.looked_ns - self.turned_ns


@dataclass
class Stretch:
    """A time in which a server was being profiled (monotonic nanoseconds); it has no end while it goes on."""

    target: str
    began_ns: int
    ended_ns: int | None = None


@dataclass
class _Rank:
    view: RankView
    cycles: deque[Records] = field(default_factory=deque)


class Board:
    """What one side notes and the other reads. `stretches` are those before a restart of the daemon."""

    def __init__(self, stretches: tuple[Stretch, ...] = ()) -> None:
        self._lock = threading.Lock()
        self._ranks: dict[str, _Rank] = {}
        self._stretches = list(stretches)

    def take(self, ring: RingIdentity, run: Run, records: Records) -> Records:
        """Note records of a ring; gives them with those marked `PROFILED` that a profile of the server touched."""
        with self._lock:
            rank = self._ranks.setdefault(ring.key, _Rank(RankView(ring, run)))
            rank.view = replace(rank.view, run=run)
            if not len(records):
                return records
            for stretch in self._stretches:
                if stretch.target == run.target:
                    records = _marked(records, stretch)
            cycles = records.compress(records["kind"] == RecordKind.CYCLE)
            if len(cycles):
                newest_ns = int(cycles["end_ns"].max())
                rank.view = replace(rank.view, last_cycle_ns=newest_ns, queue=int(cycles["queue_length"][-1]))
                rank.cycles.append(_compact(cycles))
                while int(rank.cycles[0]["end_ns"].max()) < newest_ns - KEEP_NS:
                    rank.cycles.popleft()
        return records

    def heard(self, key: str, turned_ns: int, looked_ns: int) -> None:
        """Note when the loop of a ring's server last turned, as a look at `looked_ns` found it (monotonic)."""
        with self._lock:
            if (rank := self._ranks.get(key)) is not None:
                rank.view = replace(rank.view, turned_ns=turned_ns, looked_ns=looked_ns)

    def judged(self, key: str, at_ns: int, *, settled: bool, suspected: bool) -> None:
        """Note how the detection of one phase of a ring stands (`at_ns`: monotonic)."""
        with self._lock:
            if (rank := self._ranks.get(key)) is not None:
                rank.view = replace(
                    rank.view,
                    settled=rank.view.settled or settled,
                    suspected_ns=at_ns if suspected else rank.view.suspected_ns,
                )

    def forget(self, key: str) -> None:
        """The ring is gone."""
        with self._lock:
            self._ranks.pop(key, None)

    def silent_ns(self, key: str, began_ns: int, ended_ns: int) -> int:
        """How long a ring's server has been silent since a stretch, see `RankView`; 0 for a ring that is gone."""
        with self._lock:
            rank = self._ranks.get(key)
        return rank.view.silent_ns(began_ns, ended_ns) if rank else 0

    def ranks(self) -> tuple[RankView, ...]:
        """All ranks that are being watched."""
        with self._lock:
            return tuple(rank.view for rank in self._ranks.values())

    def suspected(self, now_ns: int) -> bool:
        """Whether any series of any rank is under suspicion (`now_ns`: monotonic)."""
        return any(rank.suspected(now_ns) for rank in self.ranks())

    def records(self, key: str) -> Records:
        """The cycles of a ring in the last minutes, in the order of their reading; columns as in `RECORD`."""
        with self._lock:
            rank = self._ranks.get(key)
            parts = list(rank.cycles) if rank else []
        return joined(parts) if parts else np.zeros(0, _COMPACT)

    def begin(self, target: str, at_ns: int) -> Stretch:
        """From `at_ns` on a server is being profiled, until `end`."""
        stretch = Stretch(target, at_ns)
        with self._lock:
            self._stretches = [one for one in self._stretches if at_ns - one.began_ns < KEEP_STRETCHES_NS]
            self._stretches.append(stretch)
        return stretch

    def end(self, stretch: Stretch, at_ns: int) -> None:
        """The profiling has ended."""
        with self._lock:
            stretch.ended_ns = at_ns


def _marked(records: Records, stretch: Stretch) -> Records:
    chosen = touched(records, stretch.began_ns, stretch.ended_ns or 2**62)
    if not chosen.any():
        return records
    marked = records.copy()  # what was read is not ours to change
    marked["flags"][chosen] |= int(CycleFlag.PROFILED)
    return marked


def _compact(cycles: Records) -> Records:
    compact = np.empty(len(cycles), _COMPACT)
    for name in _COLUMNS:
        compact[name] = cycles[name]
    return compact
