"""Calls that become slow are asked less often; counters give what happened between two readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.gpu.backoff import QUICK_NS, REST_MAX_NS, SHARE, SURELY_SLOW_NS, Pace
from cyclewatch.collectors.gpu.calls import REFUSAL_NS, CallWatch, GpuCalls, GpuGoneError, LibraryGoneError
from cyclewatch.collectors.gpu.capabilities import Support
from cyclewatch.collectors.gpu.counters import Counters
from cyclewatch.collectors.gpu.door import Code, NvmlError
from nvml_lab import SECOND


class Calls:
    """Calls of one GPU that take as long, and end as, the test says."""

    def __init__(self) -> None:
        self.now_ns = SECOND
        self.takes_ns = 0
        self.fails: int | None = None
        self.asked = 0
        self.watch = CallWatch(lambda: self.now_ns)
        self.calls = GpuCalls("GPU 0", self.watch)

    def _answer(self) -> int:
        self.asked += 1
        self.now_ns += self.takes_ns
        if self.fails is not None:
            raise NvmlError(self.fails)
        return 7

    def ask(self) -> int | None:
        return self.calls.ask("call", self._answer)


def test_a_quick_call_never_rests() -> None:
    calls = Calls()
    calls.takes_ns = QUICK_NS
    assert [calls.ask() for _ in range(5)] == [7] * 5


def test_a_call_that_became_slow_takes_its_share_and_no_more() -> None:
    """5 ms at a thousandth of the time is one call in 5 s; one slow call alone is chance."""
    calls = Calls()
    calls.takes_ns = 5_000_000
    began_ns = calls.now_ns
    assert [calls.ask(), calls.ask(), calls.ask()] == [7, 7, None]
    while calls.now_ns - began_ns < 600 * SECOND:
        calls.ask()
        calls.now_ns += 2 * SECOND
    assert 90 <= calls.asked <= 122
    calls.takes_ns = 10_000
    calls.now_ns += 5 * SECOND
    assert [calls.ask() for _ in range(4)] == [7, 7, 7, 7]


def test_a_call_that_is_surely_slow_rests_at_once_but_not_for_ever() -> None:
    calls = Calls()
    calls.takes_ns = 45 * SECOND
    assert calls.ask() == 7
    calls.now_ns += REST_MAX_NS - 1
    assert calls.ask() is None
    calls.now_ns += 1
    assert calls.ask() == 7


@given(st.lists(st.integers(0, 10 * SECOND), min_size=2))
def test_resting_keeps_the_share(durations_ns: list[int]) -> None:
    """However long calls take, from the second on each is followed by a rest that makes up for the shorter of two."""
    pace, now_ns = Pace(), 0
    for before_ns, duration_ns in zip([0, *durations_ns], durations_ns, strict=False):
        now_ns = max(now_ns, pace.due_ns) + duration_ns
        pace.took(duration_ns, now_ns)
        steady_ns = duration_ns if duration_ns >= SURELY_SLOW_NS else min(before_ns, duration_ns)
        rest_ns = pace.due_ns - now_ns
        assert rest_ns <= REST_MAX_NS
        assert steady_ns <= QUICK_NS or steady_ns <= SHARE * rest_ns + 1 or rest_ns == REST_MAX_NS


@pytest.mark.parametrize(
    ("code", "support"),
    [
        (Code.NOT_SUPPORTED, Support.NOT_SUPPORTED),
        (Code.FUNCTION_NOT_FOUND, Support.MISSING_SYMBOL),
        (Code.NO_PERMISSION, Support.NO_PERMISSION),
    ],
)
def test_a_refusal_is_believed_for_an_hour(code: Code, support: Support) -> None:
    calls = Calls()
    calls.fails = code
    assert [calls.ask() for _ in range(3)] == [None] * 3
    assert (calls.asked, calls.calls.capabilities.known, calls.calls.take_problems()) == (1, {"call": support}, [])
    calls.fails = None
    calls.now_ns += REFUSAL_NS
    assert calls.ask() == 7
    assert calls.calls.capabilities.known == {"call": Support.YES}


def test_another_failure_is_told_and_tried_again() -> None:
    calls = Calls()
    calls.fails = Code.TIMEOUT
    assert [calls.ask(), calls.ask()] == [None, None]
    assert calls.asked == 2
    assert calls.calls.take_problems() == ["GPU 0: call failed: timeout (NVML 10)"]
    assert calls.calls.take_problems() == []


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.NOT_FOUND, Code.NO_DATA])
def test_nothing_to_tell_is_no_failure(code: Code) -> None:
    calls = Calls()
    calls.fails = code
    assert calls.ask() is None
    assert calls.calls.take_problems() == []


def test_what_is_gone_is_raised() -> None:
    calls = Calls()
    calls.fails = Code.GPU_IS_LOST
    with pytest.raises(GpuGoneError):
        calls.ask()
    calls.fails = Code.UNINITIALIZED
    with pytest.raises(LibraryGoneError):
        calls.ask()


def test_the_watch_knows_what_calls_took() -> None:
    calls = Calls()
    calls.takes_ns = 1000
    calls.ask()
    calls.ask()
    assert (calls.watch.take(), calls.watch.take()) == ((2000, 1000, "call"), (0, 0, ""))


@given(st.lists(st.tuples(st.floats(), st.integers(0, 10**12))))
def test_an_increase_is_never_negative(readings: list[tuple[float, int]]) -> None:
    """Counters that go backwards, clocks that stand still, and things that are no numbers."""
    counters = Counters()
    for value, at_ns in readings:
        increase = counters.increase("one", value, at_ns)
        assert increase is None or (increase.by >= 0 and increase.elapsed_ns > 0)


@given(st.lists(st.integers(0, 3), min_size=1))
def test_increases_add_up_also_where_nothing_was_told_for_a_while(steps: list[int]) -> None:
    """What a patient counter does not tell at once is in the time of what it tells next."""
    counters, value, total, time_ns = Counters(), 0, 0.0, 0
    counters.increase("one", 0, 0)
    for turn, step in enumerate([*steps, 1], start=1):
        value += step
        told = counters.increase("one", value, turn * SECOND, 30 * SECOND)
        if told is not None:
            total, time_ns = total + told.by, time_ns + told.elapsed_ns
    assert (total, time_ns) == (value, (len(steps) + 1) * SECOND)
