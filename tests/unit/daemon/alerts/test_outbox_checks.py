"""What the doctor says of the outbox."""

from cyclewatch.daemon.alerts.checks import outbox_checks
from cyclewatch.daemon.alerts.outbox import Load
from cyclewatch.daemon.check import Level

MINUTE_NS = 60 * 10**9
NOW_NS = 1_800_000_000 * 10**9


def found(load: Load) -> list[str]:
    checks = list(outbox_checks([load], NOW_NS))
    assert all(check.level is Level.BAD and check.subject == "sink oncall" and check.mend for check in checks)
    return [check.finding for check in checks]


def test_what_is_just_being_sent_is_no_finding() -> None:
    assert found(Load("oncall", 3, NOW_NS - MINUTE_NS, 0)) == []


def test_what_was_given_up_and_what_waits_for_long_is() -> None:
    assert found(Load("oncall", 3, NOW_NS - 90 * MINUTE_NS, 2)) == [
        "2 messages were given up",
        "3 messages wait, the oldest for 90 minutes",
    ]
