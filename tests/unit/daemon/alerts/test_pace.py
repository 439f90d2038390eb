"""How soon a sink may be asked again."""

from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.delivery.pace import backoff_ns, wait_ns
from cyclewatch.daemon.alerts.outbox import Attempt
from cyclewatch.daemon.alerts.senders.sender import Rate

S = 10**9
HOUR = 3600 * S


def attempt(at_s: float, boot: str = "here", wait_s: float = 0.0, put_back_ns: int = 0) -> Attempt:
    return Attempt(int(at_s * S) + HOUR + put_back_ns, boot, int(at_s * S), int(wait_s * S))


def now(at_s: float) -> Now:
    return Now(int(at_s * S), int(at_s * S) + HOUR)


def test_without_a_rate_nothing_waits() -> None:
    assert wait_ns([attempt(10)] * 50, (), now(10), "here") == 0


def test_a_full_window_waits_for_its_oldest() -> None:
    attempts = [attempt(9), attempt(8), attempt(2)]
    assert wait_ns(attempts, (Rate(3, 10.0),), now(10), "here") == 2 * S
    assert wait_ns(attempts, (Rate(4, 10.0),), now(10), "here") == 0
    assert wait_ns(attempts, (Rate(3, 10.0), Rate(1, 5.0)), now(10), "here") == 4 * S


def test_what_a_service_asked_for_is_kept_after_a_restart() -> None:
    assert wait_ns([attempt(5, wait_s=600)], (), now(10), "here") == 595 * S
    assert wait_ns([attempt(5, boot="before", wait_s=600)], (), now(10), "here") == 595 * S


def test_a_wall_clock_that_jumps_changes_nothing_within_a_boot() -> None:
    for jump in (-HOUR, HOUR):
        assert wait_ns([attempt(9)], (Rate(1, 10.0),), Now(10 * S, 10 * S + HOUR + jump), "here") == 9 * S


def test_an_attempt_in_the_future_of_another_boot_is_new() -> None:
    later = attempt(9, boot="before", put_back_ns=HOUR)
    assert wait_ns([later], (Rate(1, 10.0),), now(10), "here") == 10 * S


@given(
    gaps_ms=st.lists(st.integers(0, 3000), max_size=60),
    rates=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=3),
    jumps=st.lists(st.integers(-HOUR, HOUR), min_size=60, max_size=60),
)
def test_who_waits_as_long_never_exceeds_a_rate(
    gaps_ms: list[int], rates: list[tuple[int, int]], jumps: list[int]
) -> None:
    """Whatever the wall clock does meanwhile: checked against all windows, the slow way."""
    limits = [Rate(count, seconds) for count, seconds in rates]
    attempts: list[Attempt] = []
    at_ns = 0
    for gap_ms, jump in zip(gaps_ms, jumps, strict=False):
        at_ns += gap_ms * 10**6
        at_ns += wait_ns(attempts[:8], limits, Now(at_ns, at_ns + jump), "here")
        attempts.insert(0, Attempt(at_ns + jump, "here", at_ns))
    times_ns = [one.monotonic_ns for one in attempts]
    for limit in limits:
        for end_ns in times_ns:
            within = [one for one in times_ns if end_ns - limit.seconds * S < one <= end_ns]
            assert len(within) <= limit.count


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_backoff_is_bounded(failures: int, chance: float) -> None:
    assert 0 <= backoff_ns(failures, 300.0, chance) <= 300 * S


def test_backoff_doubles() -> None:
    assert [backoff_ns(failures, 300.0, 1.0) // S for failures in range(1, 10)] == [2, 4, 8, 16, 32, 64, 128, 256, 300]
