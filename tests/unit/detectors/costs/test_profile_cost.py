"""What a capture cost, from cycles whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.records import RECORD, CycleFlag, ForwardMode, RecordKind, Records
from cyclewatch.detectors.costs.profile_cost import STRETCH_NS, cycles_by_phase, profile_cost, touched

SECOND = 10**9
MS = 10**6
BEGAN, ENDED = 40 * SECOND, 43 * SECOND


def stream(
    *,
    usual_ms: float = 10.0,
    during_ms: float | None = None,
    after_ms: float | None = None,
    stall_ms: float = 0.0,
    noise: float = 0.02,
    until_s: int = 80,
    seed: int = 1,
) -> Records:
    """Decode cycles back to back over 80 s, with a capture from 40 s to 43 s."""
    random = np.random.default_rng(seed)
    end_ns, rows = 0, []
    stalled = False
    while end_ns < until_s * SECOND:
        level = usual_ms
        if BEGAN <= end_ns < ENDED:
            level = during_ms or usual_ms
        elif end_ns >= ENDED:
            level = after_ms or usual_ms
        cycle_ns = int(level * MS * random.normal(1, noise))
        if end_ns >= BEGAN + SECOND and not stalled and stall_ms:
            cycle_ns, stalled = cycle_ns + int(stall_ms * MS), True
        end_ns += cycle_ns
        rows.append((end_ns, cycle_ns))
    records = np.zeros(len(rows), RECORD)
    records["end_ns"], records["cycle_ns"] = zip(*rows, strict=True)
    records["kind"] = RecordKind.CYCLE
    records["mode"] = ForwardMode.DECODE
    records["batch_size"] = 8
    inside = touched(records, BEGAN, ENDED)
    records["flags"][inside] = int(CycleFlag.PROFILED)
    return records


def test_a_capture_that_costs_nothing() -> None:
    cost = profile_cost(stream(), BEGAN, ENDED)
    assert cost.stall_ns is not None
    assert cost.stall_ns < MS
    assert cost.during_ratio == pytest.approx(1, abs=0.01)
    assert cost.after_ratio == pytest.approx(1, abs=0.01)
    assert cost.after_effect == 0
    assert cost.cycles_before > 2900
    assert cost.cycles_after > 2900


def test_a_stall_is_what_the_longest_cycle_has_beyond_the_longest_before() -> None:
    cost = profile_cost(stream(stall_ms=200), BEGAN, ENDED)
    assert cost.stall_ns == pytest.approx(200 * MS, rel=0.02)
    assert cost.longest_during_ns == pytest.approx(210 * MS, rel=0.02)
    assert cost.longest_before_ns == pytest.approx(10.7 * MS, rel=0.05)
    assert cost.after_effect == 0


def test_a_server_that_has_not_gone_on_since_stalls_for_as_long_as_was_seen() -> None:
    records = stream()
    hung = records[records["end_ns"] <= BEGAN + SECOND]
    assert profile_cost(hung, BEGAN, ENDED, 35 * SECOND).stall_ns == 35 * SECOND
    assert profile_cost(hung[:0], BEGAN, ENDED, 35 * SECOND).stall_ns == 35 * SECOND


def test_a_server_that_has_gone_on_stalled_for_as_long_as_its_cycle_says() -> None:
    cost = profile_cost(stream(stall_ms=90_000, until_s=140), BEGAN, ENDED, 35 * SECOND)
    assert cost.stall_ns == pytest.approx(90 * SECOND, rel=0.01)


def test_slower_during_and_after_are_told_apart() -> None:
    cost = profile_cost(stream(during_ms=13, after_ms=11), BEGAN, ENDED)
    assert cost.during_ratio == pytest.approx(1.3, rel=0.02)
    assert cost.after_ratio == pytest.approx(1.1, rel=0.02)
    assert cost.after_effect == pytest.approx(0.1, abs=0.02)


def test_what_the_server_does_by_itself_is_no_effect() -> None:
    """Its pace wanders by a tenth: a tenth after the capture proves nothing."""
    records = stream(after_ms=11)
    slow = (records["end_ns"] > 20 * SECOND) & (records["end_ns"] < 26 * SECOND)
    records["cycle_ns"][slow] = records["cycle_ns"][slow] * 11 // 10
    cost = profile_cost(records, BEGAN, ENDED)
    assert cost.after_ratio == pytest.approx(1.1, rel=0.02)
    assert cost.noise_ratio == pytest.approx(0.1, abs=0.02)
    assert cost.after_effect is not None
    assert cost.after_effect < 0.02


def test_a_change_of_the_load_is_no_effect() -> None:
    """Twice the requests, half as fast again: compared with the same load before."""
    records = stream()
    heavy = (np.arange(len(records)) // 200 % 2 == 1) | (records["end_ns"] > ENDED)
    records["batch_size"][heavy] = 16
    records["cycle_ns"][heavy] = records["cycle_ns"][heavy] * 3 // 2
    cost = profile_cost(records, BEGAN, ENDED)
    assert cost.after_ratio == pytest.approx(1, abs=0.01)
    assert cost.during_ratio == pytest.approx(1, abs=0.01)


def test_a_long_prefill_is_no_stall() -> None:
    """Each phase has its own longest cycle."""
    records = stream()
    records["mode"][::50] = ForwardMode.EXTEND
    records["new_tokens"][::50] = 512
    records["cycle_ns"][::50] = 400 * MS
    cost = profile_cost(records, BEGAN, ENDED)
    assert cost.stall_ns is not None
    assert cost.stall_ns < MS


def test_an_earlier_capture_is_no_reference() -> None:
    records = stream()
    earlier = (records["end_ns"] > 15 * SECOND) & (records["end_ns"] < 18 * SECOND)
    records["flags"][earlier] = int(CycleFlag.PROFILED)
    records["cycle_ns"][earlier] = 500 * MS
    cost = profile_cost(records, BEGAN, ENDED)
    assert cost.longest_before_ns is not None
    assert cost.longest_before_ns < 20 * MS


@pytest.mark.parametrize("flag", [CycleFlag.WARMUP, CycleFlag.PAUSED, CycleFlag.AFTER_BREAK])
def test_cycles_that_say_nothing_are_left_out(flag: CycleFlag) -> None:
    records = stream()
    records["flags"] |= int(flag)
    cost = profile_cost(records, BEGAN, ENDED)
    assert (cost.cycles_before, cost.cycles_during, cost.cycles_after) == (0, 0, 0)
    assert (cost.stall_ns, cost.during_ratio, cost.after_ratio, cost.after_effect) == (None, None, None, None)


def test_too_few_cycles_give_no_figure() -> None:
    few = stream()[::100]
    cost = profile_cost(few, BEGAN, ENDED)
    assert (cost.stall_ns, cost.after_effect) == (None, None)
    assert profile_cost(few[:0], BEGAN, ENDED).longest_before_ns is None


def test_only_the_stretches_count() -> None:
    """What was long ago, or is long after, does not."""
    records = stream(until_s=120)
    records["cycle_ns"][records["end_ns"] < BEGAN - STRETCH_NS] = 900 * MS
    records["cycle_ns"][records["end_ns"] > ENDED + STRETCH_NS + SECOND] = 1 * MS
    cost = profile_cost(records, BEGAN, ENDED)
    assert cost.longest_before_ns is not None
    assert cost.longest_before_ns < 20 * MS
    assert cost.after_ratio == pytest.approx(1, abs=0.01)


def test_cycles_are_counted_by_phase() -> None:
    records = stream()[:100]
    records["end_ns"] = np.arange(1, 101) * MS
    records["mode"][:30] = ForwardMode.EXTEND
    records["kind"][99] = RecordKind.STALL
    assert cycles_by_phase(records, 20 * MS, 200 * MS) == {"extend": 10, "decode": 69}
    assert cycles_by_phase(records, -5, 0) == {}


@given(shift_s=st.integers(0, 10**6))
def test_the_hour_does_not_matter(shift_s: int) -> None:
    records = stream(during_ms=12, until_s=60)
    moved = records.copy()
    moved["end_ns"] += np.uint64(shift_s * SECOND)
    shift_ns = shift_s * SECOND
    assert profile_cost(moved, BEGAN + shift_ns, ENDED + shift_ns) == profile_cost(records, BEGAN, ENDED)


@given(st.data())
def test_any_records_have_a_cost(data: st.DataObject) -> None:
    """Nothing raises, and what is told is finite."""
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    records = np.frombuffer(random.bytes(128 * 200), RECORD).copy()
    records["end_ns"] = random.integers(0, 90 * SECOND, 200)
    records["cycle_ns"] = random.integers(0, SECOND, 200)
    records["kind"] = RecordKind.CYCLE
    records["flags"] = random.choice([0, 0, 0, 4], 200)
    cost = profile_cost(records, BEGAN, ENDED)
    for value in vars(cost).values():
        assert value is None or np.isfinite(value)
