"""Which sinks a message goes to, and when."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alert_messages import MESSAGE
from cyclewatch.config.alerts import Alerts
from cyclewatch.daemon.alerts.message import Message, Severity, State
from cyclewatch.daemon.alerts.outbox import Entry, Standing
from cyclewatch.daemon.alerts.routing import entries

SINKS = {
    "team": {"type": "slack", "url": "env:TEAM"},
    "oncall": {"type": "pagerduty", "key": "env:ONCALL"},
    "cluster": {"type": "alertmanager", "url": "http://127.0.0.1:9093"},
}
NIGHT = {"quiet_from": "22:00", "quiet_until": "07:00"}


def ns(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp()) * 10**9


DAY_NS, NIGHT_NS = ns("2026-11-20T15:00"), ns("2026-11-20T23:00")
MORNING_NS, DIGEST_NS = ns("2026-11-21T07:00"), ns("2026-11-21T09:00")


def alerts(*routes: dict[str, Any], **others: Any) -> Alerts:
    return Alerts.model_validate({"sinks": SINKS, "routes": routes, **others})


def of(severity: str, state: State = State.OPENED, **changes: Any) -> Message:
    return replace(MESSAGE, severity=Severity(severity), state=state, **changes)


def routed(
    message: Message, settings: Alerts, now_ns: int = DAY_NS, cause: str = "unexplained", told: tuple[str, ...] = ()
) -> dict[str, Entry]:
    return {one.sink: one for one in entries(message, cause, 2, settings, now_ns, frozenset(told))}


@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_without_routes_all_are_told_at_once(severity: str) -> None:
    found = routed(of(severity), alerts())
    assert set(found) == set(SINKS)
    assert {(one.standing, one.not_before_ns) for one in found.values()} == {(Standing.PENDING, DAY_NS)}
    assert found["team"].key == f"{MESSAGE.key}:2:team"
    assert found["team"].thread == MESSAGE.key


def test_without_routes_info_waits_for_the_digest_and_pages_nobody() -> None:
    found = routed(of("info"), alerts())
    assert {name: (one.standing, one.not_before_ns) for name, one in found.items()} == {
        "team": (Standing.HELD, DIGEST_NS)
    }


def test_the_first_route_that_fits_decides() -> None:
    settings = alerts(
        {"severities": ["critical"], "sinks": ["oncall", "team"]},
        {"cause": "gpu_*", "target": "10.0.*", "sinks": ["cluster"]},
        {"cause": "unexplained", "sinks": []},
    )
    assert set(routed(of("critical"), settings)) == {"oncall", "team"}
    assert set(routed(of("warning", target="10.0.0.1:30000"), settings, cause="gpu_xid")) == {"cluster"}
    assert routed(of("warning"), settings) == {}
    assert set(routed(of("warning"), settings, cause="host_cpu")) == set(SINKS)


def test_quiet_hours_hold_what_is_not_critical() -> None:
    settings = alerts({"sinks": ["team", "oncall"], **NIGHT})
    held = routed(of("warning"), settings, NIGHT_NS)
    assert {(one.standing, one.not_before_ns) for one in held.values()} == {(Standing.HELD, MORNING_NS)}
    through = routed(of("critical"), settings, NIGHT_NS)
    assert {one.standing for one in through.values()} == {Standing.PENDING}
    assert {one.standing for one in routed(of("warning"), settings).values()} == {Standing.PENDING}


def test_a_pager_hears_at_once_that_it_is_over() -> None:
    settings = alerts({"sinks": ["team", "oncall"], **NIGHT})
    for state in (State.ACKNOWLEDGED, State.RESOLVED, State.ACCEPTED):
        found = routed(of("warning", state), settings, NIGHT_NS, told=("team", "oncall"))
        assert found["oncall"].standing is Standing.PENDING
        assert found["team"].standing is Standing.HELD


def test_the_quiet_hours_are_those_of_the_time_zone() -> None:
    settings = alerts({"sinks": ["team"], **NIGHT}, time_zone="Asia/Tokyo")
    assert routed(of("warning"), settings, DAY_NS)["team"].not_before_ns == ns("2026-11-20T22:00")


def test_what_was_announced_pages_nobody() -> None:
    assert set(routed(of("info", State.EXPECTED), alerts({"sinks": list(SINKS), "digest": []}))) == {"team"}


def test_who_was_told_is_told_how_it_goes_on() -> None:
    """The severity has risen, and with it the route is another."""
    settings = alerts({"severities": ["critical"], "sinks": ["oncall"]}, {"sinks": ["team"]})
    assert set(routed(of("critical", State.RESOLVED), settings, told=("team",))) == {"oncall", "team"}


def test_a_sink_that_is_gone_is_told_nothing() -> None:
    assert set(routed(of("critical"), alerts({"sinks": ["oncall"]}), told=("gone",))) == {"oncall"}


@given(
    severity=st.sampled_from(["info", "warning", "critical"]),
    state=st.sampled_from([state for state in State if state not in {State.TEST, State.DIGEST}]),
    now_s=st.integers(1_700_000_000, 1_900_000_000),
    digest=st.sets(st.sampled_from(["info", "warning"])),
    quiet=st.booleans(),
)
def test_critical_is_never_held_and_no_pager_gets_a_digest(
    severity: str, state: State, now_s: int, digest: set[str], quiet: bool
) -> None:
    settings = alerts({"sinks": list(SINKS), "digest": list(digest), **(NIGHT if quiet else {})})
    found = routed(of(severity, state), settings, now_s * 10**9)
    for name, one in found.items():
        assert (one.standing is Standing.HELD) == (one.not_before_ns > now_s * 10**9)
        assert severity != "critical" or one.standing is Standing.PENDING
        assert name == "team" or severity not in digest
    assert "team" in found
