"""Quiet hours and the time of the digest, where clocks are put forward and back."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.alerts.hours import next_at_ns, quiet_until_ns

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = (time(22), time(7))


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-20T22:00+01:00", "2026-11-21T07:00+01:00"),
        ("2026-11-21T06:59+01:00", "2026-11-21T07:00+01:00"),
        ("2026-11-21T07:00+01:00", None),
        ("2026-11-21T21:59+01:00", None),
        ("2026-03-28T23:00+01:00", "2026-03-29T07:00+02:00"),  # the clocks are put forward in this night
        ("2026-10-24T23:00+02:00", "2026-10-25T07:00+01:00"),  # and back in this one
    ],
)
def test_a_night_in_berlin(now: str, until: str | None) -> None:
    assert quiet_until_ns(ns(now), *NIGHT, BERLIN) == (None if until is None else ns(until))


def test_quiet_hours_at_noon() -> None:
    noon = (time(12), time(13))
    assert quiet_until_ns(ns("2026-11-20T12:30+00:00"), *noon, UTC) == ns("2026-11-20T13:00+00:00")
    assert quiet_until_ns(ns("2026-11-20T13:00+00:00"), *noon, UTC) is None


@given(
    now_s=st.integers(1_700_000_000, 1_900_000_000),
    begin=st.times(),
    end=st.times(),
    name=st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]),
)
def test_quiet_hours_end_within_a_day(now_s: int, begin: time, end: time, name: str) -> None:
    """And a day may have 25 hours."""
    begin, end = begin.replace(second=0, microsecond=0), end.replace(second=0, microsecond=0)
    zone = ZoneInfo(name)
    until_ns = quiet_until_ns(now_s * 10**9, begin, end, zone)
    if until_ns is not None:
        assert 0 < until_ns - now_s * 10**9 <= 25 * 3600 * 10**9
    next_ns = next_at_ns(now_s * 10**9, end, zone)
    assert 0 < next_ns - now_s * 10**9 <= 25 * 3600 * 10**9
