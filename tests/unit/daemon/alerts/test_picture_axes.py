"""Ticks are round, few, and on the axis."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.alerts.picture.axes import digits, time_ticks, value_range
from cyclewatch.daemon.ticks import value_ticks

MINUTE = 60 * 10**9


@given(low=st.floats(0, 1e12), span=st.floats(1e-6, 1e12), most=st.integers(1, 10))
def test_ticks_of_values(low: float, span: float, most: int) -> None:
    high = low + span
    if high <= low * (1 + 1e-9):
        return
    ticks = value_ticks(low, high, most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks)
    assert len({f"{tick:.{digits(ticks)}f}" for tick in ticks}) == len(ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(20.1, 28.9, [22, 24, 26, 28]), (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (995, 1305, [1000, 1100, 1200, 1300])],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert value_ticks(low, high, 6) == pytest.approx(ticks)


@given(
    from_ns=st.integers(0, 2 * 10**18), span_ns=st.integers(MINUTE, 3 * 365 * 1440 * MINUTE), most=st.integers(2, 10)
)
def test_ticks_of_time(from_ns: int, span_ns: int, most: int) -> None:
    ticks = time_ticks(from_ns, from_ns + span_ns, most)
    assert len(ticks) <= most + 1
    assert all(from_ns <= tick <= from_ns + span_ns and tick % MINUTE == 0 for tick in ticks)


@given(values=st.lists(st.floats(1e-6, 1e12), min_size=2))
def test_the_range_shows_nearly_all_of_it(values: list[float]) -> None:
    """Nothing is below it, and at most the uppermost tenth above."""
    low, high = value_range(values)
    assert 0 <= low <= min(values)
    assert math.isfinite(high)
    assert high > low
    assert sum(value > high for value in values) <= max(1, len(values) / 10)
