"""What the workload model is fitted to: load and time of parts of windows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.phases import Floats, Phase, load_buckets
from cyclewatch.detectors.windows import CellWindow

FEATURES = {
    "fixed": "cycle",
    "batch_size": "request",
    "new_tokens": "new token",
    "kv_tokens": "cached token",
    "attended_pairs": "pair of new and attended token",
}
"""What costs time, and what one of it is, in the order of coefficients; the last one outside decodes only."""

_PART_CYCLES_MIN = 4
_PARTS_MAX = 4


@dataclass(frozen=True)
class Row:
    """One cell, or a part of one, of one reference window: what the fit is made of.

    `attended_pairs` are those of a new token and one it attends to, the requests of a batch taken to be alike: new *
    (all - new / 2) / requests. `window` numbers windows in order of time; rows that do not know it (-1) are taken to
    be of one each.
    """

    bucket: int
    count: int
    log_ns: float
    batch_size: float
    new_tokens: float
    kv_tokens: float
    attended_pairs: float = 0.0
    window: int = -1

    @classmethod
    def of(cls, cell: CellWindow, window: int = -1) -> "Row":
        """The row of a cell."""
        load = (cell.batch_size, cell.new_tokens, cell.kv_tokens)
        return cls(cell.bucket, cell.count, float(np.log(cell.p50_ns)), *load, float(attended_pairs(*load)), window)


def rows_of(phase: Phase, records: Records, window: int) -> list[Row]:
    """The rows of one window's judged cycles of a phase.

    Cells with many cycles are cut by cached tokens into parts: their differences tell what a token costs
    whatever noise the window had.
    """
    buckets = load_buckets(phase, records)
    log_ns = np.log(records["cycle_ns"].astype(np.float64))
    load = load_of(records)
    load = np.concatenate([load, attended_pairs(*load)[None]])
    rows = []
    for bucket in np.unique(buckets):
        cell = np.flatnonzero(buckets == bucket)
        cell = cell[np.argsort(load[2, cell], kind="stable")]
        for part in np.array_split(cell, min(max(len(cell) // _PART_CYCLES_MIN, 1), _PARTS_MAX)):
            requests, new, kv_tokens, pairs = load[:, part].mean(axis=1).tolist()
            log = float(np.median(log_ns[part]))
            rows.append(Row(int(bucket), len(part), log, requests, new, kv_tokens, pairs, window))
    return rows


def load_of(records: Records) -> Floats:
    """Requests, new tokens and cached tokens of each record, shape (3, n)."""
    load: Floats = np.stack([records[name].astype(np.float64) for name in ("batch_size", "new_tokens", "kv_tokens")])
    return load


def attended_pairs(batch_size: Any, new_tokens: Any, kv_tokens: Any) -> Any:  # noqa: ANN401 (scalar or array)
    """Pairs of a new token and one it attends to, the requests of a batch taken to be alike."""
    return new_tokens * np.maximum(kv_tokens - new_tokens / 2, 0) / np.maximum(batch_size, 1)
