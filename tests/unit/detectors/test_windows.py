"""Windows and their cells, held against plain sums over each cell by itself."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.records import STAGES, ForwardMode, RecordKind, Records
from cyclewatch.detectors.phases import Phase, load_buckets
from cyclewatch.detectors.windows import CellWindow, cells_of, summarise
from simulated import cycles

DAYS_NS = 10**15


@st.composite
def records(draw: st.DrawFn) -> Records:
    """Cycles of one phase with any load, any times and the CPU time known of some."""
    count = draw(st.integers(1, 80))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = cycles(count, random.integers(1, draw(st.sampled_from((2, 10**7, DAYS_NS))), count))
    made["batch_size"] = random.integers(1, draw(st.sampled_from((2, 9, 300))), count)
    for name in (*(f"{stage}_ns" for stage in STAGES), "kv_tokens"):
        made[name] = random.integers(0, DAYS_NS, count)
    made["new_tokens"], made["queue_length"] = random.integers(0, 2**32, (2, count))
    sampled = random.random(count) < draw(st.sampled_from((0.0, 0.3, 1.0)))
    made["on_cpu_ns"] = np.where(sampled, made["cycle_ns"].astype(np.int64) // 3, -1)
    return made


@given(records())
def test_a_cell_is_what_its_cycles_are_by_themselves(made: Records) -> None:
    cells = list(cells_of(Phase.DECODE, made))
    buckets = load_buckets(Phase.DECODE, made)
    assert [cell.bucket for cell in cells] == sorted(set(buckets.tolist()))
    for cell in cells:
        of_cell = made[buckets == cell.bucket]
        cycle = of_cell["cycle_ns"].astype(np.float64)
        sampled = of_cell["on_cpu_ns"] >= 0
        on_cpu = of_cell["on_cpu_ns"][sampled].sum() / cycle[sampled].sum() if sampled.any() else np.nan
        assert cell.count == len(of_cell)
        assert cell.max_ns == cycle.max()
        assert [cell.p50_ns, cell.p90_ns, cell.p99_ns] == pytest.approx(np.quantile(cycle, (0.5, 0.9, 0.99)))
        assert cell.on_cpu_ratio == pytest.approx(on_cpu, nan_ok=True)
        assert cell.mean_ns == pytest.approx(cycle.mean())
        assert list(cell.stages_ns) == pytest.approx([of_cell[f"{stage}_ns"].mean() for stage in STAGES])
        for name in ("batch_size", "new_tokens", "kv_tokens", "queue_length"):
            assert getattr(cell, name) == pytest.approx(of_cell[name].mean()), name


@given(records(), st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(made: Records, random: Random) -> None:
    places = list(range(len(made)))
    random.shuffle(places)
    for one, other in zip(cells_of(Phase.DECODE, made), cells_of(Phase.DECODE, made[places]), strict=True):
        assert one.count == other.count
        assert (one.p50_ns, one.p99_ns, one.max_ns) == (other.p50_ns, other.p99_ns, other.max_ns)
        assert one.mean_ns == pytest.approx(other.mean_ns)


def test_no_cycles_make_no_cells() -> None:
    nothing = cycles(0)
    assert list(cells_of(Phase.EXTEND, nothing)) == []
    window = summarise(7, nothing)
    assert (window.index, window.cycles, window.cells, window.records) == (7, {}, (), 0)


def test_a_window_has_the_cells_of_each_phase_and_counts_the_rest() -> None:
    extends = cycles(3, mode=ForwardMode.EXTEND, batch_size=2)
    stalled, flagged = cycles(2, 7), cycles(1)
    stalled["kind"], flagged["kind"] = RecordKind.STALL, RecordKind.FLAGGED
    window = summarise(0, np.concatenate([extends, cycles(5), stalled, cycles(4, batch_size=1), flagged]))
    shape = [(cell.phase, cell.bucket, cell.count) for cell in window.cells]
    assert shape == [(Phase.EXTEND, 2, 3), (Phase.DECODE, 1, 4), (Phase.DECODE, 8, 5)]
    assert all(type(cell) is CellWindow and type(cell.bucket) is int for cell in window.cells)
    assert (window.records, window.set_aside, window.stalled_ns) == (15, 1, 14)
