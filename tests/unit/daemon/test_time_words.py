from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.time_words import duration_ns, instant_ns, utc_ns

SECOND = 10**9
NOW_NS = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1.5h", 5400), ("2d", 172_800), ("1w", 604_800), ("0s", 0), ("0.001s", 0.001)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_ns(text) == round(seconds * SECOND)


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1 h", "1h30m", "1y", "1e3s", "9999999s", "१h", "1h\n", "infs"])
def test_what_is_no_duration(text: str) -> None:
    assert duration_ns(text) is None


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("now", NOW_NS),
        ("-2h", NOW_NS - 7200 * SECOND),
        ("+30m", NOW_NS + 1800 * SECOND),
        ("2027-01-15T08:00:00", NOW_NS),
        ("2027-01-15T08:00:00Z", NOW_NS),
        ("2027-01-15T09:00:00+01:00", NOW_NS),
    ],
)
def test_instants(text: str, expected_ns: int) -> None:
    """UTC where no zone is given."""
    assert instant_ns(text, NOW_NS) == expected_ns


@pytest.mark.parametrize("text", ["", "then", "2h", "--2h", "+", "2027-13-01", "2027-01-15T25:00", "now "])
def test_what_is_no_instant(text: str) -> None:
    assert instant_ns(text, NOW_NS) is None


@given(st.text())
def test_any_text_is_one_or_none(text: str) -> None:
    assert isinstance(duration_ns(text), int | None)
    assert isinstance(instant_ns(text, NOW_NS), int | None)


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_are_exact_to_the_microsecond(at: datetime) -> None:
    assert utc_ns(at) % 1000 == 0
    assert instant_ns(at.isoformat(), 0) == utc_ns(at)
