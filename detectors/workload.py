"""The workload model: what a cycle of this load should take.

A cycle's time is close to a sum of what the hardware must do: a fixed part (weights to read, kernels to
launch), a part for each request, each new token and each cached token. Those coefficients are fitted, none
negative, with robust weights on the cells (load buckets) of the reference windows. On top, every cell keeps
its own offset, learned from its first windows and then pinned: the model compares like with like where it has
seen the load, and says nothing where it has not.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.phases import Bools, Floats, Phase, load_buckets
from cyclewatch.detectors.robust import nonnegative_least_squares, robust_sigma
from cyclewatch.detectors.windows import CellWindow

VERSION = 1
_ROUNDS = 3
_CELLS_MAX = 512
_CELL_WINDOWS_MIN = 3


@dataclass(frozen=True)
class Row:
    """One cell of one reference window: what the fit is made of."""

    bucket: int
    count: int
    log_ns: float
    batch_size: float
    new_tokens: float
    kv_tokens: float

    @classmethod
    def of(cls, cell: CellWindow) -> "Row":
        """The row of a cell."""
        log_ns = float(np.log(cell.p50_ns))
        return cls(cell.bucket, cell.count, log_ns, cell.batch_size, cell.new_tokens, cell.kv_tokens)


@dataclass
class WorkloadModel:
    """Expected log cycle time of one phase, from load.

    `coefficients` are nanoseconds for each of `features`; `offsets` are by load bucket, in log time.
    """

    phase: Phase
    coefficients: tuple[float, ...] = ()
    offsets: dict[int, float] = field(default_factory=dict)
    learning: dict[int, list[float]] = field(default_factory=dict)

    @property
    def fitted(self) -> bool:
        """Whether a reference has been fitted."""
        return bool(self.coefficients)

    def fit(self, rows: Iterable[Row]) -> None:
        """Fit coefficients and offsets to the reference; buckets seen too rarely are left to `learn`.

        Raises:
            ValueError: no rows.
        """
        rows = list(rows)
        if not rows:
            raise ValueError("the reference has no cycles")
        design = _design(
            np.array([row.batch_size for row in rows]),
            np.array([row.new_tokens for row in rows]),
            np.array([row.kv_tokens for row in rows]),
        )
        log_ns = np.array([row.log_ns for row in rows])
        weight = np.sqrt(np.array([float(min(row.count, 100)) for row in rows]))
        coefficients, residual = fit_coefficients(design, log_ns, weight)
        self.coefficients = tuple(float(value) for value in coefficients)
        by_bucket: dict[int, list[float]] = defaultdict(list)
        for row, value in zip(rows, residual, strict=True):
            by_bucket[row.bucket].append(float(value))
        self.offsets = {}
        self.learning = {}
        for bucket, values in by_bucket.items():
            if len(values) >= _CELL_WINDOWS_MIN:
                self.offsets[bucket] = float(np.median(values))
            else:
                self.learning[bucket] = values

    def residual(self, row: Row) -> float:
        """Log of measured over expected of a row whose bucket is known."""
        bound = self._log_bound(row.batch_size, row.new_tokens, row.kv_tokens)
        return row.log_ns - float(bound) - self.offsets[row.bucket]

    def learn(self, cells: Iterable[CellWindow], windows: int, level: float) -> None:
        """Learn the offset of load buckets that were not in the reference, from their first `windows` windows.

        `level` is how far the series runs from its reference at present (a log): it must not go into the
        offset.
        """
        for row in map(Row.of, cells):
            if row.bucket in self.offsets or len(self.offsets) >= _CELLS_MAX:
                continue
            seen = self.learning.setdefault(row.bucket, [])
            bound = float(self._log_bound(row.batch_size, row.new_tokens, row.kv_tokens))
            seen.append(row.log_ns - bound - level)
            if len(seen) >= max(windows, _CELL_WINDOWS_MIN):
                self.offsets[row.bucket] = float(np.median(self.learning.pop(row.bucket)))

    def log_ratio(self, records: Records) -> tuple[Floats, Bools]:
        """log(measured / expected) of each record and whether its load is known, both of shape (n,)."""
        buckets = load_buckets(self.phase, records)
        known, position = np.unique(buckets, return_inverse=True)
        offsets = np.array([self.offsets.get(int(bucket), np.nan) for bucket in known])[position]
        expected = offsets + self._log_bound(records["batch_size"], records["new_tokens"], records["kv_tokens"])
        ratio: Floats = np.log(records["cycle_ns"].astype(np.float64)) - expected
        return ratio, np.isfinite(ratio)

    def _log_bound(self, batch_size: Any, new_tokens: Any, kv_tokens: Any) -> Floats:  # noqa: ANN401 (scalar or array)
        design = _design(np.atleast_1d(batch_size), np.atleast_1d(new_tokens), np.atleast_1d(kv_tokens))
        bound: Floats = np.log(np.maximum(design @ np.array(self.coefficients), 1.0))
        return bound if np.ndim(batch_size) else bound[0]

    def state(self) -> dict[str, Any]:
        """All that `from_state` needs, as JSON values."""
        return {
            "version": VERSION,
            "phase": self.phase.value,
            "coefficients": list(self.coefficients),
            "offsets": {str(bucket): value for bucket, value in self.offsets.items()},
            "learning": {str(bucket): values for bucket, values in self.learning.items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "WorkloadModel":
        """The model that `state` came from.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        if state["version"] != VERSION:
            raise ValueError(f"workload model of version {state['version']}, this release reads {VERSION}")
        return cls(
            phase=Phase(state["phase"]),
            coefficients=tuple(state["coefficients"]),
            offsets={int(bucket): value for bucket, value in state["offsets"].items()},
            learning={int(bucket): list(values) for bucket, values in state["learning"].items()},
        )


def fit_coefficients(design: Floats, log_times: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Cost of each feature, shape (p,), none negative, and what it leaves of `log_times`, shape (n,).

    `design`, shape (n, p), are the features of each row; times are well above 1, as nanoseconds are.
    """
    residual = np.zeros(len(log_times))
    trust = np.ones(len(log_times))
    for _ in range(_ROUNDS):
        # Relative errors: each equation is divided by its time. Rows far off get less weight (Huber).
        scale = weight * trust / np.exp(log_times)
        coefficients = nonnegative_least_squares(design * scale[:, None], weight * trust)
        residual = log_times - np.log(np.maximum(design @ coefficients, 1.0))
        sigma = max(robust_sigma(residual), 1e-6)
        trust = np.minimum(1.0, 1.5 * sigma / np.maximum(np.abs(residual), 1e-12))
    return coefficients, residual


def _design(batch_size: Any, new_tokens: Any, kv_tokens: Any) -> Floats:  # noqa: ANN401 (any numeric array)
    """Features, shape (n, 4): one, requests, new tokens, cached tokens."""
    columns = (np.ones(len(batch_size)), batch_size, new_tokens, kv_tokens)
    design: Floats = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    return design
