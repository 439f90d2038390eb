"""When a profile is taken, and when no more are."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.config.settings import Profiling
from cyclewatch.daemon.profiling.decide import (
    DAY_S,
    Candidate,
    Policy,
    Reason,
    broken_budget,
    choose,
    obstacle,
    reason_for,
)
from cyclewatch.daemon.profiling.ledger import Entry, Ledger
from cyclewatch.daemon.store.profile_records import ProfileState
from cyclewatch.detectors.costs.profile_cost import ProfileCost

POLICY = Policy.of(Profiling(), warmup_s=30)
READY = Candidate(
    target="server",
    rank="tp0",
    reachable=True,
    free=True,
    up_s=1000,
    idle_s=0.1,
    queue=0,
    settled=True,
    suspected=False,
    age_s=math.inf,
    target_age_s=math.inf,
    spent_s=0,
    failures=0,
)
COST = ProfileCost(
    cycles_before=3000,
    cycles_during=300,
    cycles_after=3000,
    longest_before_ns=12 * 10**6,
    longest_during_ns=20 * 10**6,
    stall_ns=8 * 10**6,
    during_ratio=1.2,
    after_ratio=1.01,
    noise_ratio=0.02,
)
SECOND = 10**9

ages = st.one_of(st.floats(0, 1e6), st.just(math.inf))
candidates = st.builds(
    Candidate,
    target=st.sampled_from(["a", "b"]),
    rank=st.sampled_from(["tp0", "tp1"]),
    reachable=st.booleans(),
    free=st.booleans(),
    up_s=st.floats(0, 1e6),
    idle_s=st.floats(0, 20),
    queue=st.integers(0, 20),
    settled=st.booleans(),
    suspected=st.booleans(),
    age_s=ages,
    target_age_s=ages,
    spent_s=st.floats(0, 200),
    failures=st.integers(0, 5),
)


def test_the_first_of_a_settled_server_is_its_baseline() -> None:
    assert choose([READY], POLICY) == (READY, Reason.BASELINE)
    assert choose([replace(READY, settled=False)], POLICY) is None


def test_then_one_an_interval() -> None:
    assert reason_for(replace(READY, age_s=3000, target_age_s=3000), POLICY) is None
    assert reason_for(replace(READY, age_s=3600, target_age_s=3600), POLICY) is Reason.ROUTINE


def test_a_suspicion_does_not_wait_for_the_interval_but_for_the_gap() -> None:
    suspected = replace(READY, suspected=True, age_s=700, target_age_s=700)
    assert choose([suspected], POLICY) == (suspected, Reason.SUSPICION)
    assert choose([replace(suspected, age_s=500, target_age_s=500)], POLICY) is None


def test_the_suspected_goes_before_the_one_that_has_waited_longest() -> None:
    waiting = replace(READY, rank="tp0")
    suspected = replace(READY, rank="tp1", suspected=True, age_s=1000, target_age_s=1000)
    assert choose([waiting, suspected], POLICY) == (suspected, Reason.SUSPICION)
    old, older = (replace(READY, rank=rank, age_s=age, target_age_s=4000) for rank, age in (("a", 5000), ("b", 9000)))
    assert choose([old, older], POLICY) == (older, Reason.ROUTINE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reachable": False}, "doctor"),
        ({"free": False}, "another profile"),
        ({"failures": 3}, "3 attempts"),
        ({"up_s": 29}, "just started"),
        ({"idle_s": 6}, "serves nothing"),
        ({"queue": 9}, "9 requests wait"),
        ({"target_age_s": 599}, "too recent"),
        ({"spent_s": 84}, "spent"),
    ],
)
def test_every_gate_closes_and_says_why(change: dict[str, float], said: str) -> None:
    closed = replace(READY, suspected=True, **change)  # type: ignore[arg-type]
    assert said in obstacle(closed, POLICY)
    assert choose([closed], POLICY) is None
    assert obstacle(READY, POLICY) == ""


@given(st.lists(candidates, max_size=6))
def test_what_is_chosen_passes_every_gate(several: list[Candidate]) -> None:
    """And nothing is chosen only if nothing could be."""
    choice = choose(several, POLICY)
    fit = [one for one in several if reason_for(one, POLICY) and not obstacle(one, POLICY)]
    if choice is None:
        assert not fit
        return
    candidate, reason = choice
    assert candidate in fit
    assert reason is not Reason.ASKED
    assert not candidate.queue > POLICY.max_queue
    assert candidate.spent_s + POLICY.exposure_s <= POLICY.max_duty * DAY_S
    assert all(not one.suspected for one in fit) or candidate.suspected


@settings(max_examples=20)
@given(duration_ms=st.integers(10, 10_000))
def test_the_time_for_a_day_is_never_exceeded(duration_ms: int) -> None:
    """However many are wanted: each costs what it was expected to."""
    policy = Policy.of(Profiling(duration_ms=duration_ms, suspicion_interval_s=1), warmup_s=0)
    spent, now_s, ledger = 0.0, 0.0, Ledger(0, [])
    for number in range(300):
        now_s += 10
        account = ledger.account("server", "tp0", "f", int(now_s * SECOND))
        one = replace(READY, suspected=True, target_age_s=account.target_age_s, spent_s=account.spent_s)
        if choose([one], policy):
            ended_s = now_s + policy.exposure_s
            ledger.note(
                Entry(
                    str(number),
                    "server",
                    "tp0",
                    "f",
                    ProfileState.KEPT,
                    int(now_s * SECOND),
                    int(ended_s * SECOND),
                )
            )
            spent += policy.exposure_s
    assert spent <= policy.max_duty * DAY_S + 1e-6


def test_a_cost_within_its_budget_is_none_to_speak_of() -> None:
    assert broken_budget(COST, POLICY) == ""


def test_a_long_stall_breaks_the_budget() -> None:
    text = broken_budget(replace(COST, stall_ns=101 * 10**6), POLICY)
    assert "101 ms longer" in text
    assert "profiling.max_stall_ms" in text


def test_a_server_that_is_left_slower_breaks_the_budget() -> None:
    text = broken_budget(replace(COST, after_ratio=1.1), POLICY)
    assert "8.0% longer after" in text
    assert broken_budget(replace(COST, after_ratio=1.1, noise_ratio=0.1), POLICY) == ""


def test_what_nobody_can_tell_breaks_no_budget() -> None:
    unknown = replace(COST, stall_ns=None, after_ratio=None, noise_ratio=None)
    assert broken_budget(unknown, POLICY) == ""


def entry(key: str, began_s: int, state: ProfileState = ProfileState.KEPT, **changes: str) -> Entry:
    values = {"target": "server", "rank": "tp0", "fingerprint": "f", **changes}
    return Entry(key, values["target"], values["rank"], values["fingerprint"], state, began_s * SECOND, None)


def test_the_age_of_a_rank_is_that_of_its_last_profile_in_this_configuration() -> None:
    """That of its server is of any attempt: each disturbs all of its ranks."""
    ledger = Ledger(
        0,
        [
            entry("a", 100),
            entry("b", 200, rank="tp1"),
            entry("c", 300, fingerprint="g"),
            entry("d", 400, ProfileState.REFUSED),
            entry("e", 500, target="other"),
        ],
    )
    account = ledger.account("server", "tp0", "f", 1000 * SECOND)
    assert (account.age_s, account.target_age_s) == (900, 600)
    assert ledger.account("server", "tp2", "f", 1000 * SECOND).age_s == math.inf
    assert ledger.account("third", "tp0", "f", 1000 * SECOND).target_age_s == math.inf


def test_an_attempt_is_counted_once_and_for_a_day() -> None:
    ledger = Ledger(0, [])
    ledger.note(entry("a", 100))
    ledger.note(replace(entry("a", 100), ended_ns=104 * SECOND))
    assert ledger.account("server", "tp0", "f", 200 * SECOND).spent_s == 4
    assert ledger.account("server", "tp0", "f", int((101 + DAY_S) * SECOND)).spent_s == 0
    ledger.note(entry("b", int(200 + DAY_S)))
    assert ledger.account("server", "tp0", "f", int((200 + DAY_S) * SECOND)).target_age_s == 0
