"""Cutting the stream of cycles into windows of fixed length, per ring."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cyclewatch.collectors.records import STAGES, RecordKind, Records
from cyclewatch.detectors.phases import Floats, Phase, judged, load_buckets, phase_by_number, phases_of


@dataclass(frozen=True)
class CellWindow:
    """The cycles of one window, phase and load bucket.

    Times in nanoseconds; `stages_ns` are means in the order of `STAGES`; `on_cpu_ratio` is the scheduler
    thread's CPU time over the cycle time, over the cycles where it was sampled, and NaN where it never was.
    """

    phase: Phase
    bucket: int
    count: int
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    max_ns: float
    stages_ns: tuple[float, ...]
    on_cpu_ratio: float
    batch_size: float
    new_tokens: float
    kv_tokens: float
    queue_length: float


@dataclass(frozen=True)
class Window:
    """One closed window of one ring.

    `index` counts window lengths on the monotonic clock. `cycles` holds the judged cycles by phase; `cells`
    their summaries. Stalls and garbage collections are sums of nanoseconds within the window.
    """

    index: int
    cycles: dict[Phase, Records] = field(compare=False)
    cells: tuple[CellWindow, ...]
    records: int
    set_aside: int
    stalled_ns: int
    collected_ns: int


class WindowCutter:
    """Collects the records of one ring and closes windows in order.

    Windows up to `last_closed` are done with: their records, read again after a restart, are dropped.
    """

    def __init__(self, length_ns: int, last_closed: int = -1) -> None:
        self._length_ns = length_ns
        self._open: dict[int, list[Records]] = {}
        self.last_closed = last_closed

    def add(self, records: Records) -> int:
        """Take records in any order; gives how many came too late for their window."""
        indexes = (records["end_ns"] // np.uint64(self._length_ns)).astype(np.int64)
        fresh = indexes > self.last_closed
        for index in np.unique(indexes[fresh]):
            self._open.setdefault(int(index), []).append(records[indexes == index])
        return int(len(records) - fresh.sum())

    def close_until(self, now_ns: int) -> Iterator[Window]:
        """Close every window that ended at or before `now_ns`, oldest first; empty ones are left out."""
        end = now_ns // self._length_ns
        for index in sorted(index for index in self._open if index < end):
            parts = self._open.pop(index)
            self.last_closed = index
            yield summarise(index, np.concatenate(parts))
        self.last_closed = max(self.last_closed, end - 1)

    @property
    def has_open(self) -> bool:
        """Whether records wait in a window that is not closed."""
        return bool(self._open)

    def first_open_sequence(self) -> int | None:
        """Smallest sequence that is in an open window; None where none is open."""
        return min((int(part["sequence"].min()) for parts in self._open.values() for part in parts), default=None)


def summarise(index: int, records: Records) -> Window:
    """The window made of these records."""
    usable = judged(records)
    kind = records["kind"]
    numbers = phases_of(records)
    cycles: dict[Phase, Records] = {}
    cells: list[CellWindow] = []
    for number in np.unique(numbers[usable]):
        phase = phase_by_number(int(number))
        chosen = records[usable & (numbers == number)]
        cycles[phase] = chosen
        cells.extend(cells_of(phase, chosen))
    is_cycle = (kind == RecordKind.CYCLE) | (kind == RecordKind.FLAGGED)
    return Window(
        index=index,
        cycles=cycles,
        cells=tuple(cells),
        records=len(records),
        set_aside=int((is_cycle & ~usable).sum()),
        stalled_ns=int(records["cycle_ns"][kind == RecordKind.STALL].sum()),
        collected_ns=int(records["cycle_ns"][kind == RecordKind.GARBAGE_COLLECTION].sum()),
    )


def cells_of(phase: Phase, records: Records) -> Iterator[CellWindow]:
    """Summaries of the records of one phase, one a load bucket."""
    buckets = load_buckets(phase, records)
    for bucket in np.unique(buckets):
        chosen = records[buckets == bucket]
        cycle = chosen["cycle_ns"].astype(np.float64)
        p50, p90, p99 = np.quantile(cycle, (0.5, 0.9, 0.99))
        yield CellWindow(
            phase=phase,
            bucket=int(bucket),
            count=len(chosen),
            mean_ns=float(cycle.mean()),
            p50_ns=float(p50),
            p90_ns=float(p90),
            p99_ns=float(p99),
            max_ns=float(cycle.max()),
            stages_ns=tuple(float(chosen[f"{stage}_ns"].mean()) for stage in STAGES),
            on_cpu_ratio=_on_cpu_ratio(chosen, cycle),
            batch_size=float(chosen["batch_size"].mean()),
            new_tokens=float(chosen["new_tokens"].mean()),
            kv_tokens=float(chosen["kv_tokens"].mean()),
            queue_length=float(chosen["queue_length"].mean()),
        )


def _on_cpu_ratio(records: Records, cycle_ns: Floats) -> float:
    sampled = records["on_cpu_ns"] >= 0
    if not sampled.any():
        return float("nan")
    return float(records["on_cpu_ns"][sampled].sum() / cycle_ns[sampled].sum())
