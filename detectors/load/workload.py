"""The workload model: what a cycle of this load should take.

A cycle's time is close to a sum of what the hardware must do: a fixed part (weights to read, kernels to launch), a part
for each request, each new token and each cached token, and in a prefill for each pair of a new token and one that it
attends to. Those costs are fitted to the reference, none negative, so that noise which all cycles of a window share is
not taken for a cost of the load that happened to go with it (see `random_effects.py`). On top, every load bucket has an
offset, as large as the windows that it was seen in bear out, and then pinned: CUDA graphs make real steps there. The
model compares like with like where it has seen the load, and says nothing where it has not: a bucket never seen, or
far longer or shorter contexts than ever, until that load too has been learned.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.load.load_rows import FEATURES, Row, attended_pairs, load_of, rows_of
from cyclewatch.detectors.load.random_effects import fit_costs
from cyclewatch.detectors.phases import Bools, Floats, Integers, Phase, load_buckets
from cyclewatch.detectors.statistics.robust import long_run_sigma, nonnegative_least_squares, robust_sigma
from cyclewatch.detectors.watching.saved import check_version
from cyclewatch.detectors.windows import CellWindow

__all__ = ["FEATURES", "Coefficient", "Explanation", "Offset", "Row", "WorkloadModel", "fit_coefficients", "rows_of"]

VERSION = 2

_ROUNDS = 3
_CELLS_MAX = 512
_CELL_WINDOWS_MIN = 3
_FAR = 1.5
"""So many times the longest context of the reference is another load, and so is a half of it less than the shortest."""

_BAND = 1 << 40
"""Loads with contexts beyond those of the reference have cells of their own, so far from those within."""


@dataclass(frozen=True)
class Coefficient:
    """What one `unit` of a feature costs in nanoseconds, and how much of it was in the reference, a row's mean."""

    feature: str
    unit: str
    ns: float
    standard_error_ns: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Offset:
    """What cycles of a load bucket take beyond the sum of costs, as a log, learned from so many windows.

    `beyond` counts how many times contexts have grown by a half over the longest of the reference; -1 is below them.
    """

    bucket: int
    beyond: int
    log_ratio: float
    windows: int


@dataclass(frozen=True)
class Explanation:
    """What a model knows, for people to read."""

    coefficients: tuple[Coefficient, ...]
    offsets: tuple[Offset, ...]


@dataclass
class WorkloadModel:
    """Expected log cycle time of one phase, from load.

    `coefficients` are nanoseconds for each of `FEATURES`, with their `covariance`; `offsets` are by cell (the load
    bucket, where contexts are as in the reference), in log time, each from `offset_windows` windows, and
    spread by `offset_sigma`; `seen` are the lowest and highest of each feature, `contexts` the shortest and longest, in
    cached tokens of a request.
    """

    phase: Phase
    coefficients: tuple[float, ...] = ()
    covariance: tuple[tuple[float, ...], ...] = ()
    offsets: dict[int, float] = field(default_factory=dict)
    offset_windows: dict[int, int] = field(default_factory=dict)
    learning: dict[int, list[float]] = field(default_factory=dict)
    seen: tuple[tuple[float, float], ...] = ()
    contexts: tuple[float, float] = (0.0, 0.0)
    offset_sigma: float = 0.0

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
        design = self._design(*(np.array([getattr(row, name) for row in rows]) for name in list(FEATURES)[1:]))
        log_ns = np.array([row.log_ns for row in rows])
        numbers = np.array([row.window for row in rows])
        unknown = numbers < 0
        numbers[unknown] = numbers.max() + 1 + np.arange(unknown.sum())
        _, window = np.unique(numbers, return_inverse=True)
        buckets, bucket = np.unique([row.bucket for row in rows], return_inverse=True)
        count = np.array([float(row.count) for row in rows])
        costs = fit_costs(design, log_ns, window, bucket, count)
        self.coefficients = tuple(costs.cost.tolist())
        self.covariance = tuple(tuple(line) for line in costs.covariance.tolist())
        self.seen = tuple(zip(design.min(axis=0).tolist(), design.max(axis=0).tolist(), strict=True))
        contexts = [_context(row) for row in rows]
        self.contexts = (min(contexts), max(contexts))
        self.offset_sigma = costs.offset_sigma
        residual = log_ns - self._log_bound(design) - costs.window[window]
        self.offsets, self.offset_windows, self.learning = {}, {}, {}
        for number, name in enumerate(buckets.tolist()):
            inside = bucket == number
            seen = np.unique(window[inside])
            if len(seen) >= _CELL_WINDOWS_MIN:
                self.offsets[name], self.offset_windows[name] = float(costs.offset[number]), len(seen)
            else:
                self.learning[name] = [
                    float(np.average(residual[rows], weights=count[rows]))
                    for rows in (inside & (window == one) for one in seen)
                ]

    def residual(self, row: Row) -> float | None:
        """Log of measured over expected of a row; None where its load is not known."""
        offset = self.offsets.get(self._cells_of([row])[0])
        return None if offset is None else row.log_ns - float(self._log_bound(self._design_of(row))[0]) - offset

    def learn(self, cells: Sequence[CellWindow], windows: int, level: float) -> None:
        """Learn the offset of loads that were not in the reference, from their first `windows` windows.

        `level` is how far the series runs from its reference at present (a log): it must not go into the
        offset. It is shrunk by what the windows' noise may have made of it, the less, the less the coefficients are
        sure of this load.
        """
        for key, cell in zip(self._cells_of(cells), cells, strict=True):
            if key in self.offsets or len(self.offsets) >= _CELLS_MAX:
                continue
            row = Row.of(cell)
            seen = self.learning.setdefault(key, [])
            design = self._design_of(row)
            seen.append(row.log_ns - float(self._log_bound(design)[0]) - level)
            if len(seen) < max(windows, _CELL_WINDOWS_MIN):
                continue
            values = np.array(self.learning.pop(key))
            share = design[0] / np.exp(self._log_bound(design)[0])
            prior = self.offset_sigma**2 + float(share @ np.array(self.covariance) @ share)
            noise = long_run_sigma(values - np.median(values)) ** 2 / len(values)
            self.offsets[key] = float(np.median(values)) * prior / (prior + noise)
            self.offset_windows[key] = len(values)

    def log_ratio(self, records: Records) -> tuple[Floats, Bools]:
        """log(measured / expected) of each record and whether its load is known, both of shape (n,)."""
        load = load_of(records)
        known, position = np.unique(
            self._cells(load_buckets(self.phase, records), load[2] / np.maximum(load[0], 1)), return_inverse=True
        )
        offsets = np.array([self.offsets.get(cell, np.nan) for cell in known.tolist()])[position]
        expected = offsets + self._log_bound(self._design(*load, attended_pairs(*load)))
        ratio: Floats = np.log(records["cycle_ns"].astype(np.float64)) - expected
        return ratio, np.isfinite(ratio)

    def doubt(self, load: Floats) -> tuple[float, ...]:
        """How far expected log times move for one standard deviation of each independent error of the costs.

        The mean over cycles of this `load`, shape (3, n), as `load_of` gives it; one for each of `FEATURES`.
        """
        design = self._design(*load, attended_pairs(*load))
        shares = (design / np.exp(self._log_bound(design))[:, None]).mean(axis=0)
        return tuple((shares @ _factor(self.covariance)).tolist())

    def explain(self) -> Explanation:
        """What the model knows: its coefficients and its offsets, the largest offset first."""
        errors = np.sqrt(np.diag(np.array(self.covariance))).tolist() if self.fitted else []
        costs = zip(FEATURES.items(), self.coefficients, errors, self.seen, strict=False)
        offsets = [
            Offset(cell - round(cell / _BAND) * _BAND, round(cell / _BAND), value, self.offset_windows[cell])
            for cell, value in self.offsets.items()
        ]
        return Explanation(
            coefficients=tuple(Coefficient(*names, ns, error, *seen) for names, ns, error, seen in costs),
            offsets=tuple(sorted(offsets, key=lambda offset: -abs(offset.log_ratio))),
        )

    def _cells(self, buckets: Integers, context: Floats) -> Integers:
        """What offsets are kept by, shape (n,): the load bucket, and how far contexts are beyond those seen."""
        shortest, longest = self.contexts
        low, high = shortest - (_FAR - 1) * longest, _FAR * longest
        if longest <= 0 or not len(context) or (context.min() >= low and context.max() <= high):
            return buckets
        beyond = np.floor(np.log(np.maximum(context / longest, 1.0)) / np.log(_FAR)).astype(np.int64)
        cells: Integers = buckets + _BAND * np.where(context < low, -1, np.where(context > high, beyond, 0))
        return cells

    def _cells_of(self, loads: Sequence[Row] | Sequence[CellWindow]) -> list[int]:
        buckets, contexts = np.array([load.bucket for load in loads]), np.array([_context(load) for load in loads])
        cells: list[int] = self._cells(buckets, contexts).tolist()
        return cells

    def _design(self, *load: Floats) -> Floats:
        """Features, shape (n, p), of load in the order of `FEATURES`."""
        pairs = self.phase not in (Phase.DECODE, Phase.DECODE_BESIDE_EXTEND)
        design: Floats = np.stack([np.ones(len(load[0])), *(load if pairs else load[:3])], axis=1)
        return design

    def _design_of(self, row: Row) -> Floats:
        return self._design(*(np.array([getattr(row, name)]) for name in list(FEATURES)[1:]))

    def _log_bound(self, design: Floats) -> Floats:
        bound: Floats = np.log(np.maximum(design @ np.array(self.coefficients), 1.0))
        return bound

    def state(self) -> dict[str, Any]:
        """All that `from_state` needs, as JSON values."""
        return {
            "version": VERSION,
            "phase": self.phase.value,
            "coefficients": list(self.coefficients),
            "covariance": [list(line) for line in self.covariance],
            "offsets": {str(cell): value for cell, value in self.offsets.items()},
            "offset_windows": {str(cell): count for cell, count in self.offset_windows.items()},
            "learning": {str(cell): list(values) for cell, values in self.learning.items()},
            "seen": [list(bounds) for bounds in self.seen],
            "contexts": list(self.contexts),
            "offset_sigma": self.offset_sigma,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "WorkloadModel":
        """The model that `state` came from.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        check_version("workload model", state["version"], VERSION)
        return cls(
            phase=Phase(state["phase"]),
            coefficients=tuple(state["coefficients"]),
            covariance=tuple(tuple(line) for line in state["covariance"]),
            offsets={int(cell): value for cell, value in state["offsets"].items()},
            offset_windows={int(cell): count for cell, count in state["offset_windows"].items()},
            learning={int(cell): list(values) for cell, values in state["learning"].items()},
            seen=tuple((low, high) for low, high in state["seen"]),
            contexts=(state["contexts"][0], state["contexts"][1]),
            offset_sigma=state["offset_sigma"],
        )


def _context(load: Row | CellWindow) -> float:
    """Cached tokens of a request."""
    return load.kv_tokens / max(load.batch_size, 1)


@lru_cache(maxsize=64)
def _factor(covariance: tuple[tuple[float, ...], ...]) -> Floats:
    """Independent errors that make this covariance, shape (p, p): it is the product of the factor and its transpose."""
    matrix = np.array(covariance)
    sigma = np.sqrt(np.diag(matrix))
    # Costs of a cycle and of a token are many orders of magnitude apart: decompose what they correlate.
    scale = np.where(sigma > 0, sigma, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    factor: Floats = sigma[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


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
