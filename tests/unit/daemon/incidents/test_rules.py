"""How incidents are formed, told and ended: the rules, one by one."""

from dataclasses import replace
from typing import Any

import pytest

from cyclewatch.daemon.alerts.message import FirstCause, Severity, State
from cyclewatch.daemon.incidents.change import Change
from cyclewatch.daemon.incidents.incident import Act, Expectation, Finding, IncidentState, Silence
from incident_world import POLICY, World
from made_incidents import HEAT, MINUTE, POWER, SECOND, START_NS, finding

UNKNOWN = FirstCause("unexplained", "nothing that was read explains it")
HOUR_S = 3600.0


def after(*findings: Finding) -> World:
    """These regressions, and two minutes of passes."""
    world = World()
    world.put(*findings)
    world.wait(120)
    return world


def test_one_regression_is_one_incident_and_one_message() -> None:
    world = after(finding())
    (one,) = world.standing
    assert (one.state, one.severity, one.effect, one.cause) == (IncidentState.OPEN, Severity.WARNING, 0.12, POWER)
    assert world.states_told == [State.OPENED]


@pytest.mark.parametrize(
    ("other", "count"),
    [
        (finding("r2", rank="tp1"), 1),
        (finding("r2", phase="extend", cause=HEAT), 1),
        (finding("r2", kind="tail"), 1),
        (finding("r2", phase="extend", started_at_ns=START_NS - 301 * SECOND, cause=HEAT), 2),
        (finding("r2", target="b"), 1),
        (finding("r2", node="other", target="b"), 1),
        (finding("r2", node="other", target="b", started_at_ns=START_NS + 301 * SECOND), 2),
        (finding("r2", target="b", cause=HEAT), 2),
        (finding("r2", target="b", cause=UNKNOWN), 2),
        (finding("r2", node="other", cause=UNKNOWN), 2),
    ],
)
def test_what_is_of_one_target_or_one_cause_and_of_one_time_is_one_incident(other: Finding, count: int) -> None:
    assert len(after(finding(), other).standing) == count


def test_what_nothing_explains_is_one_incident_of_its_node() -> None:
    """On another node it is another one: nothing says that they have to do with each other."""
    unknown = finding(cause=UNKNOWN)
    same, other = finding("r2", target="b", cause=None), finding("r3", node="other", target="b", cause=UNKNOWN)
    assert len(after(unknown, same).standing) == 1
    assert len(after(unknown, other).standing) == 2


def test_a_series_stays_with_its_incident_however_much_later() -> None:
    world = after(finding())
    world.wait(2 * HOUR_S, 60)
    world.end("r1")
    world.wait(20 * 60, 60)
    world.put(finding("r2", started_at_ns=world.now_ns))
    world.wait(60)
    (one,) = world.incidents.values()
    assert [member.regression for member in one.members] == ["r2"]
    assert one.returns == 1
    assert world.states_told == [State.OPENED]


def test_it_is_over_after_quiet_and_the_end_is_when_it_became_fast() -> None:
    world = after(finding())
    world.end("r1")
    ended_ns = world.now_ns
    world.wait(29 * 60, 60)
    assert world.states_told == [State.OPENED]
    world.wait(2 * 60, 60)
    (one,) = world.incidents.values()
    assert (one.state, one.ended_at_ns) == (IncidentState.RESOLVED, ended_ns)
    assert world.states_told == [State.OPENED, State.RESOLVED]


def test_a_clock_that_is_put_back_lets_nothing_wait_to_be_told_or_to_grow() -> None:
    world = World()
    world.put(finding())
    world.look()
    world.now_ns -= 8 * 3600 * SECOND
    world.wait(5)
    assert world.states_told == [State.OPENED]
    world.wait(120)
    world.now_ns -= 8 * 3600 * SECOND
    world.put(finding(effect=0.4, ci=(0.3, 0.5)))
    world.wait(120)
    assert world.states_told == [State.OPENED, State.GROWN]


def test_a_clock_that_is_put_back_lets_what_is_quiet_be_over_in_time() -> None:
    world = after(finding())
    world.end("r1")
    world.wait(60)
    world.now_ns -= 8 * 3600 * SECOND
    put_back_ns = world.now_ns
    world.wait(29 * 60, 60)
    assert world.states_told == [State.OPENED]
    world.wait(3 * 60, 60)
    (one,) = world.incidents.values()
    assert one.state is IncidentState.RESOLVED
    assert one.ended_at_ns == put_back_ns + MINUTE
    assert world.states_told == [State.OPENED, State.RESOLVED]


def test_what_comes_back_after_the_end_reopens_it_and_must_be_quiet_for_longer() -> None:
    world = after(finding())
    world.end("r1")
    world.wait(HOUR_S, 60)
    world.put(finding("r2", started_at_ns=world.now_ns))
    world.wait(10 * 60, 10)
    world.end("r2")
    world.wait(50 * 60, 60)
    (one,) = world.incidents.values()
    assert (one.state, one.returns) == (IncidentState.OPEN, 1)
    world.wait(20 * 60, 60)
    assert world.states_told == [State.OPENED, State.RESOLVED, State.OPENED, State.RESOLVED]


def test_what_comes_back_long_after_is_another_incident() -> None:
    world = after(finding())
    world.end("r1")
    world.wait(6 * HOUR_S, 60)
    world.put(finding("r2", started_at_ns=world.now_ns))
    world.wait(60)
    assert len(world.incidents) == 2


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"effect": 0.04}, Severity.INFO),
        ({"effect": 0.05}, Severity.WARNING),
        ({"effect": 0.25}, Severity.CRITICAL),
        ({"effect": 0.01, "cause": FirstCause("gpu_xid", "XID 79")}, Severity.CRITICAL),
    ],
)
def test_severity_is_that_of_the_worst_and_of_failing_hardware(changes: dict[str, Any], severity: Severity) -> None:
    (one,) = after(finding("r0", rank="tp7", effect=0.01), finding(**changes)).standing
    assert one.severity is severity


def test_growth_in_kind_is_told_once_and_severity_never_falls() -> None:
    world = after(finding())
    world.put(finding(effect=0.4, ci=(0.3, 0.5)))
    world.wait(60)
    world.put(finding(effect=0.06, ci=(0.05, 0.07)))
    world.wait(60)
    assert world.standing[0].severity is Severity.CRITICAL
    world.put(finding(effect=0.4, ci=(0.3, 0.5)))
    world.wait(60)
    assert world.standing[0].severity is Severity.CRITICAL
    assert world.states_told == [State.OPENED, State.GROWN]


def test_a_cause_that_is_found_later_is_told_once() -> None:
    world = after(finding(cause=UNKNOWN))
    world.put(finding(cause=POWER))
    world.wait(60)
    world.put(finding(cause=HEAT))
    world.wait(60)
    world.put(finding(cause=UNKNOWN))
    world.wait(60)
    (one,) = world.standing
    assert one.cause == HEAT
    assert world.states_told == [State.OPENED, State.GROWN]


def test_four_times_as_many_targets_are_told_again() -> None:
    world = after(finding())
    world.put(*(finding(f"s{number}", target=f"t{number}") for number in range(2)))
    world.wait(120)
    assert world.states_told == [State.OPENED]
    world.put(finding("s3", target="t3"))
    world.wait(120)
    assert world.states_told == [State.OPENED, State.GROWN]


def test_an_acknowledged_one_is_told_as_such_once() -> None:
    world = after(finding())
    (key,) = world.incidents
    world.act(key, Act.ACKNOWLEDGE)
    world.wait(120)
    assert world.states_told == [State.OPENED, State.ACKNOWLEDGED]
    world.end("r1")
    world.wait(HOUR_S, 60)
    assert world.states_told[-1] is State.RESOLVED


def test_what_is_accepted_is_told_so_and_only_what_it_grows_by_is_new() -> None:
    world = after(finding())
    (first,) = world.incidents
    world.act(first, Act.REBASE)
    world.wait(HOUR_S, 60)
    world.put(finding(effect=0.15, ci=(0.11, 0.19)))
    world.wait(60)
    assert len(world.incidents) == 1
    world.put(finding(effect=0.232, ci=(0.2, 0.26)))
    world.wait(120)
    _, second = world.incidents.values()
    assert second.effect == pytest.approx(0.1)
    assert second.started_at_ns > START_NS + HOUR_S * SECOND
    assert world.states_told == [State.OPENED, State.ACCEPTED, State.OPENED]
    world.put(finding(effect=0.24, ci=(0.2, 0.26)))
    world.wait(120)
    assert len(world.incidents) == 2


def test_one_that_a_person_ended_rests_until_it_grows() -> None:
    world = after(finding())
    (key,) = world.incidents
    world.act(key, Act.RESOLVE)
    world.wait(HOUR_S, 60)
    assert world.states_told == [State.OPENED, State.RESOLVED]
    world.put(finding(effect=0.4, ci=(0.3, 0.5)))
    world.wait(120)
    assert world.states_told[-1] is State.OPENED


def test_what_comes_back_of_one_that_a_person_ended_while_it_lasted_is_another() -> None:
    """Else it would not be over before that is over which was accepted."""
    world = after(finding(), finding("r2", rank="tp1"))
    (key,) = world.incidents
    world.end("r2")
    world.act(key, Act.RESOLVE)
    world.wait(600)
    world.put(finding("r3", rank="tp1", started_at_ns=world.now_ns))
    world.wait(600)
    assert [one.members[0].regression for one in world.standing] == ["r3"]
    world.end("r3")
    world.wait(HOUR_S, 60)
    assert world.standing == []
    assert world.states_told == [State.OPENED, State.RESOLVED, State.OPENED, State.RESOLVED]


def test_one_that_is_reopened_is_told_again() -> None:
    world = after(finding())
    (key,) = world.incidents
    world.act(key, Act.REBASE)
    world.wait(60)
    world.act(key, Act.REOPEN)
    world.wait(60)
    assert world.states_told == [State.OPENED, State.ACCEPTED, State.OPENED]
    assert world.standing[0].members[0].accepted_effect is None


def silence(until_s: float, target: str = "*", cause: str = "*") -> Silence:
    return Silence(1, target, cause, START_NS, START_NS + int(until_s * SECOND), "ada", "")


@pytest.mark.parametrize(
    ("target", "cause", "told"),
    [("*", "*", 0), ("serv*", "gpu_*", 0), ("other", "*", 1), ("*", "cpu_*", 1), ("server", "gpu_power_cap", 0)],
)
def test_a_silence_holds_by_target_and_cause(target: str, cause: str, told: int) -> None:
    world = World(silences=[silence(HOUR_S, target, cause)])
    world.put(finding())
    world.wait(600)
    assert len(world.told) == told
    assert world.standing[0].state is (IncidentState.OPEN if told else IncidentState.SILENCED)


def test_what_still_lasts_after_a_silence_is_told_then() -> None:
    world = World(silences=[silence(600)])
    world.put(finding())
    world.wait(900)
    assert [(state, at_ns) for _, state, at_ns in world.told] == [(State.OPENED, START_NS + 600 * SECOND)]


def test_what_came_and_went_within_a_silence_is_never_told() -> None:
    world = World(silences=[silence(4 * HOUR_S)])
    world.put(finding())
    world.wait(600)
    world.end("r1")
    world.wait(5 * HOUR_S, 60)
    assert world.told == []
    assert world.standing == []


def test_the_end_of_what_was_told_waits_for_the_end_of_a_silence() -> None:
    world = World()
    world.put(finding())
    world.wait(120)
    world.silences.append(silence(5 * HOUR_S))
    world.end("r1")
    world.wait(4 * HOUR_S, 60)
    assert world.states_told == [State.OPENED]
    world.wait(2 * HOUR_S, 60)
    assert world.states_told == [State.OPENED, State.RESOLVED]


def test_a_silence_of_one_target_does_not_hide_the_others() -> None:
    world = World(silences=[silence(HOUR_S, "server")])
    world.put(finding(), finding("r2", target="other"))
    world.wait(120)
    assert world.states_told == [State.OPENED]


def expectation(from_s: float = 0, until_s: float = HOUR_S, target: str = "*") -> Expectation:
    return Expectation(
        3, target, START_NS + int(from_s * SECOND), START_NS + int(until_s * SECOND), "ada", "SGLang 0.5.24"
    )


def test_what_was_announced_is_told_as_its_effect_and_is_no_alarm() -> None:
    world = World(expectations=[expectation()])
    world.put(finding(effect=0.4))
    world.wait(120)
    (one,) = world.incidents.values()
    assert (one.state, one.expectation, one.effect) == (IncidentState.REBASED, 3, 0.4)
    assert world.states_told == [State.EXPECTED]
    world.wait(2 * HOUR_S, 60)
    assert world.states_told == [State.EXPECTED]


@pytest.mark.parametrize(
    "other", [expectation(target="other"), expectation(from_s=90), expectation(from_s=-600, until_s=0)]
)
def test_what_was_not_announced_is_an_alarm(other: Expectation) -> None:
    world = World(expectations=[other])
    world.put(finding())
    world.wait(120)
    assert world.states_told == [State.OPENED]


def test_what_was_announced_may_be_found_later_and_grow_until_its_time_is_over() -> None:
    world = World(expectations=[expectation(until_s=300)])
    world.wait(400)
    world.put(finding(started_at_ns=START_NS + 290 * SECOND))
    world.wait(120)
    assert world.states_told == [State.EXPECTED]
    world.put(finding(started_at_ns=START_NS + 290 * SECOND, effect=0.4, ci=(0.3, 0.5)))
    world.wait(120)
    assert world.states_told == [State.EXPECTED, State.OPENED]


def test_it_says_what_was_changed_right_before() -> None:
    world = World()
    told = Change("node", "server", START_NS - MINUTE, "version", "sglang", "0.5.22", "0.5.23")
    driver = Change("node", "node", START_NS - 2 * MINUTE, "environment", "driver", "580.1", "580.2")
    world.changes = [
        told,
        driver,
        replace(told, node="other", before="1"),
        replace(told, target="other", before="2"),
        replace(told, at_ns=START_NS - 31 * MINUTE, before="3"),
        replace(told, at_ns=START_NS + 2 * MINUTE, before="4"),
        replace(told, kind="xid", before="5"),
    ]
    world.put(finding())
    world.look()
    assert world.standing[0].change == "SGLang 0.5.22 to 0.5.23; driver 580.1 to 580.2"


def test_one_that_ended_before_anybody_looked_is_told_and_ends() -> None:
    world = World(now_ns=START_NS + 30 * MINUTE)
    world.put(finding(ended_at_ns=START_NS + 20 * MINUTE))
    world.wait(HOUR_S, 30)
    assert world.states_told == [State.OPENED, State.RESOLVED]


def test_one_whose_daemon_was_killed_before_it_was_told_is_told_however_late() -> None:
    world = World()
    world.put(finding())
    world.wait(10)
    assert world.told == []
    world.end("r1")
    world.now_ns += 5 * 60 * MINUTE
    world.wait(60)
    assert world.states_told == [State.OPENED, State.RESOLVED]


def test_a_regression_that_is_gone_from_the_store_is_over() -> None:
    world = after(finding())
    world.findings.clear()
    world.wait(HOUR_S, 60)
    assert world.states_told == [State.OPENED, State.RESOLVED]


def test_what_ended_before_the_latest_of_its_series_is_never_taken_for_new() -> None:
    """It is of no incident any more, since the latest took its place there."""
    world = after(finding("a"))
    world.end("a")
    world.wait(60)
    world.put(finding("b", started_at_ns=world.now_ns))
    world.wait(60)
    world.end("b")
    world.wait(60)
    (one,) = world.standing
    assert [member.regression for member in one.members] == ["b"]
    assert world.look() == ()


def test_of_two_open_regressions_of_a_series_the_later_counts() -> None:
    """An old configuration whose end was not noticed must not take the place of the new one, again and again."""
    world = after(finding("a"), finding("b", started_at_ns=START_NS + SECOND))
    (one,) = world.standing
    assert [member.regression for member in one.members] == ["b"]
    assert world.look() == ()


def test_a_configuration_that_came_back_has_its_regression_again() -> None:
    world = after(finding("a"))
    world.end("a")
    world.wait(10)
    world.put(finding("b", started_at_ns=world.now_ns))
    world.wait(10)
    world.end("b")
    world.put(finding("a"))
    world.wait(60)
    (one,) = world.standing
    assert [member.regression for member in one.members] == ["a"]
    assert world.look() == ()


def test_the_longest_quiet_is_eight_times_the_shortest() -> None:
    assert [POLICY.quiet_ns(returns) // MINUTE for returns in range(6)] == [30, 60, 120, 240, 240, 240]
