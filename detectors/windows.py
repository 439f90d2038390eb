"""Cutting the stream of cycles into windows of fixed length, per ring."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from cyclewatch.collectors.records import STAGES, RecordKind, Records, joined
from cyclewatch.detectors.phases import Floats, Integers, Phase, judged, load_buckets, phase_by_number, phases_of
from cyclewatch.detectors.statistics.sketch import sketch_of

_AVERAGED = (
    "cycle_ns",
    *(f"{stage}_ns" for stage in STAGES),
    "batch_size",
    "new_tokens",
    "kv_tokens",
    "queue_length",
)
"""Fields whose mean a cell holds, in the order in which `cells_of` takes them."""
_QUANTILES = np.array([0.5, 0.9, 0.99, 1.0])


@dataclass(frozen=True)
class CellWindow:
    """The cycles of one window, phase and load bucket.

    Times in nanoseconds; `stages_ns` are means in the order of `STAGES`; `on_cpu_ratio` is the scheduler
    thread's CPU time over the cycle time, over the cycles where it was sampled, and NaN where it never was.
    `sketch` has all quantiles, and those of several windows together: see `statistics/sketch.py`.
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
    sketch: bytes | None = None


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
            self._open.setdefault(int(index), []).append(records.compress(indexes == index))
        return int(len(records) - fresh.sum())

    def close_until(self, end_ns: int) -> Iterator[Window]:
        """Close every window that ended at or before `end_ns`, oldest first; empty ones are left out."""
        end = end_ns // self._length_ns
        yield from self._close(index for index in self._open if index < end)
        self.last_closed = max(self.last_closed, end - 1)

    def close_all(self) -> Iterator[Window]:
        """Close every window that has records, oldest first."""
        yield from self._close(self._open)

    def _close(self, indexes: Iterable[int]) -> Iterator[Window]:
        for index in sorted(indexes):
            parts = self._open.pop(index)
            self.last_closed = index
            yield summarise(index, joined(parts))

    def first_open_sequence(self) -> int | None:
        """Smallest sequence that is in an open window; None where none is open."""
        return min((int(part["sequence"].min()) for parts in self._open.values() for part in parts), default=None)


def summarise(index: int, records: Records, *, sketches: bool = True) -> Window:
    """The window made of these records; without sketches it takes half as long."""
    usable = judged(records)
    kind = records["kind"]
    numbers = phases_of(records)
    cycles: dict[Phase, Records] = {}
    cells: list[CellWindow] = []
    for number in np.unique(numbers[usable]):
        phase = phase_by_number(int(number))
        chosen = records.compress(usable & (numbers == number))
        cycles[phase] = chosen
        cells.extend(cells_of(phase, chosen, sketches=sketches))
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


def cells_of(phase: Phase, records: Records, *, sketches: bool = True) -> Iterator[CellWindow]:
    """Summaries of the records of one phase, one a load bucket."""
    if not len(records):
        return
    buckets = load_buckets(phase, records)
    order = np.lexsort((records["cycle_ns"], buckets))
    buckets = buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    counts = np.diff(starts, append=len(order))
    columns = np.stack([records[name][order] for name in _AVERAGED]).astype(np.float64)
    means = np.add.reduceat(columns, starts, axis=1) / counts
    cycle = columns[0]
    for bucket, cycle_ns, quantiles, on_cpu_ratio, (mean_ns, *stages_ns, size, new, cached, queued) in zip(
        buckets[starts].tolist(),
        np.split(cycle, starts[1:]),
        _quantiles(cycle, starts, counts).T.tolist(),
        _on_cpu_ratios(records["on_cpu_ns"][order], cycle, starts).tolist(),
        means.T.tolist(),
        strict=True,
    ):
        p50_ns, p90_ns, p99_ns, max_ns = quantiles
        yield CellWindow(
            phase=phase,
            bucket=bucket,
            count=len(cycle_ns),
            mean_ns=mean_ns,
            p50_ns=p50_ns,
            p90_ns=p90_ns,
            p99_ns=p99_ns,
            max_ns=max_ns,
            stages_ns=tuple(stages_ns),
            on_cpu_ratio=on_cpu_ratio,
            batch_size=size,
            new_tokens=new,
            kv_tokens=cached,
            queue_length=queued,
            sketch=sketch_of(cycle_ns) if sketches else None,
        )


def _quantiles(ordered: Floats, starts: Integers, counts: Integers) -> Floats:
    """The quantiles `_QUANTILES` of each cell, shape (len(_QUANTILES), cells), linear between neighbours.

    A cell's values, in order, are the `counts` values of `ordered` from `starts` on.
    """
    place = (counts - 1) * _QUANTILES[:, None]
    below = place.astype(np.int64)
    low = ordered[starts + below]
    high = ordered[starts + np.minimum(below + 1, counts - 1)]
    between: Floats = low + (high - low) * (place - below)
    return between


def _on_cpu_ratios(on_cpu_ns: Integers, cycle_ns: Floats, starts: Integers) -> Floats:
    """Share of its cycles that each cell was on a CPU, shape (cells,), over those where it was sampled."""
    sampled = on_cpu_ns >= 0
    with np.errstate(invalid="ignore"):  # none sampled: 0 / 0, NaN
        ratios: Floats = np.add.reduceat(np.where(sampled, on_cpu_ns, 0.0), starts) / np.add.reduceat(
            cycle_ns * sampled, starts
        )
    return ratios
