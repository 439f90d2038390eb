import time

import pytest

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.clock import ScaledClock, SystemClock

SECOND = 10**9


class Hands:
    """Both clocks of a machine, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monotonic_ns = 500 * SECOND
        self.wall_ns = 1_800_000_000 * SECOND
        monkeypatch.setattr("time.monotonic_ns", lambda: self.monotonic_ns)
        monkeypatch.setattr("time.time_ns", lambda: self.wall_ns)

    def pass_(self, seconds: float, *, wall_step_s: float = 0.0) -> None:
        self.monotonic_ns += int(seconds * SECOND)
        self.wall_ns += int((seconds + wall_step_s) * SECOND)


@pytest.fixture(name="hands")
def _hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    return Hands(monkeypatch)


def test_the_system_clock_tells_both_times() -> None:
    now = SystemClock().now()
    assert abs(now.monotonic_ns - time.monotonic_ns()) < SECOND
    assert abs(now.wall_ns - time.time_ns()) < SECOND


def test_small_corrections_do_not_move_utc_against_monotonic_time(hands: Hands) -> None:
    """NTP slews by milliseconds: windows keep their places."""
    clock = SystemClock()
    first = clock.now()
    for _ in range(5):
        hands.pass_(10, wall_step_s=0.1)
        now = clock.now()
        assert now.wall_ns - now.monotonic_ns == first.wall_ns - first.monotonic_ns


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 1.5])
def test_a_clock_that_is_set_is_followed(hands: Hands, step_s: float) -> None:
    clock = SystemClock()
    hands.pass_(1, wall_step_s=step_s)
    assert clock.now() == Now(hands.monotonic_ns, hands.wall_ns)


def test_a_scaled_clock_begins_at_its_origin_and_runs_faster(hands: Hands) -> None:
    clock = ScaledClock(Now(7, 11), hands.monotonic_ns, speed=6.0)
    assert clock.now() == Now(7, 11)
    hands.pass_(2)
    assert clock.now() == Now(7 + 12 * SECOND, 11 + 12 * SECOND)


def test_two_processes_can_run_the_same_scaled_clock(hands: Hands) -> None:
    """All it needs are three numbers."""
    first = ScaledClock(Now(7, 11), 100 * SECOND, speed=3.0)
    hands.pass_(5)
    assert ScaledClock(Now(7, 11), 100 * SECOND, speed=3.0).now() == first.now()


def test_real_seconds_of_each_clock() -> None:
    assert SystemClock().real_seconds(3) == 3
    assert ScaledClock(Now(0, 0), 0, speed=6.0).real_seconds(3) == 0.5
