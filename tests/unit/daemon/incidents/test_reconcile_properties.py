"""What holds for any story of regressions and people."""

import contextlib
import math
import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.daemon.alerts.message import OVER, FirstCause, State
from cyclewatch.daemon.incidents.acting import ActError
from cyclewatch.daemon.incidents.incident import ENDED, Act, Expectation, Finding, Silence
from cyclewatch.daemon.incidents.reconcile import reconcile
from cyclewatch.daemon.incidents.telling import is_silenced
from incident_world import POLICY, World
from made_incidents import HEAT, POWER, SECOND, START_NS, finding

HOUR_S = 3600
CAUSES = (POWER, HEAT, FirstCause("unexplained", ""), FirstCause("gpu_xid", "XID 79"), None)

series = st.integers(0, 7)
effects = st.sampled_from([0.01, 0.04, 0.1, 0.12, 0.3, 1.0])
causes = st.sampled_from(CAUSES)
steps = st.one_of(
    st.tuples(st.just("begin"), series, st.integers(0, 600), effects, causes),
    st.tuples(st.just("end"), series),
    st.tuples(st.just("measure"), series, effects, causes),
    st.tuples(st.just("wait"), st.sampled_from([5, 60, 600, HOUR_S, 6 * HOUR_S])),
    st.tuples(st.just("act"), st.integers(0, 5), st.sampled_from(list(Act))),
    st.tuples(st.just("silence"), st.sampled_from(["*", "t0", "t[12]"]), st.sampled_from([60, 2 * HOUR_S])),
    st.tuples(st.just("expect"), st.sampled_from(["*", "t1"]), st.sampled_from([60, 2 * HOUR_S])),
    st.tuples(st.just("lose"), series),
)
stories = st.lists(steps, max_size=25)


class Story:
    """Plays steps in a world; after each a pass is made, and what must always hold is looked at."""

    def __init__(self) -> None:
        self.world = World()
        self._open: dict[int, str] = {}
        self._begun = 0

    def play(self, step: tuple[object, ...]) -> None:
        before = len(self.world.told)
        match step:
            case ("begin", int(number), int(age_s), float(effect), FirstCause() | None as cause):
                if number not in self._open:
                    self._begun += 1
                    key = self._open[number] = f"r{self._begun}"
                    self.world.put(self._finding(key, number, age_s, effect, cause))
            case ("end", int(number)) if number in self._open:
                self.world.end(self._open.pop(number))
            case ("measure", int(number), float(effect), FirstCause() | None as cause) if number in self._open:
                old = self.world.findings[self._open[number]]
                sized = replace(old, effect=effect, ci=(effect * 0.9, effect * 1.1), cause=cause)
                self.world.put(sized)
            case ("lose", int(number)) if number in self._open:
                self.world.findings.pop(self._open.pop(number))
            case ("wait", int(seconds)):
                self.world.wait(seconds, max(5, seconds / 20))
            case ("act", int(number), Act() as act):
                self._act(number, act)
            case ("silence", str(target), int(seconds)):
                until_ns = self.world.now_ns + seconds * SECOND
                self.world.silences.append(Silence(1, target, "*", self.world.now_ns, until_ns, "ada", ""))
            case ("expect", str(target), int(seconds)):
                until_ns, number = self.world.now_ns + seconds * SECOND, len(self.world.expectations) + 1
                self.world.expectations.insert(0, Expectation(number, target, self.world.now_ns, until_ns, "ada", ""))
        self.world.look()
        self.check(before)

    def _finding(self, key: str, number: int, age_s: int, effect: float, cause: FirstCause | None) -> Finding:
        """Of one of four targets on two nodes, two phases each."""
        return finding(
            key,
            node=f"n{number % 2}",
            target=f"t{number // 2}",
            phase="decode" if number % 4 < 2 else "extend",
            started_at_ns=self.world.now_ns - age_s * SECOND,
            effect=effect,
            ci=(effect * 0.9, effect * 1.1),
            cause=cause,
        )

    def _act(self, number: int, act: Act) -> None:
        keys = list(self.world.incidents)
        if number >= len(keys):
            return
        one = self.world.incidents[keys[number]]
        elsewhere = {member.series for other in self.world.standing for member in other.members}
        if act is Act.REOPEN and any(member.series in elsewhere for member in one.members):
            return  # the store refuses it
        with contextlib.suppress(ActError):
            self.world.act(keys[number], act)

    def check(self, told_before: int) -> None:
        world = self.world
        assert reconcile(world.view(), POLICY, world.now_ns) == (), "a second pass finds something to do"
        standing = Counter(
            member.regression for one in world.standing for member in one.members if member.ended_at_ns is None
        )
        assert all(count == 1 for count in standing.values()), "a regression counts in two incidents"
        at_rest = {
            member.regression for one in world.incidents.values() if one.state in ENDED for member in one.members
        }
        for key in self._open.values():
            assert key in standing or key in at_rest, "a regression is in no incident"
        series_standing = Counter(member.series for one in world.standing for member in one.members)
        assert all(count == 1 for count in series_standing.values()), "a series stands in two incidents"
        for key, state, at_ns in world.told[told_before:]:
            if at_ns == world.now_ns and state not in OVER:
                assert not is_silenced(world.incidents[key], world.silences, at_ns), "told while it was silenced"

    def check_messages(self) -> None:
        """What is told of an incident makes sense in its order, and is not much."""
        for key, one in self.world.incidents.items():
            states = [state for told, state, _ in self.world.told if told == key]
            last: State | None = None
            for state in states:
                if state in OVER or state in {State.GROWN, State.ACKNOWLEDGED}:
                    assert last is not None, f"{state} before it was opened"
                    assert last not in OVER, f"{state} after {last}"
                if state is State.OPENED:
                    assert last in {None, State.ACKNOWLEDGED, State.EXPECTED, *OVER}, f"opened after {last}"
                last = state
            # Severity rises twice at most, the cause is found once, and targets grow fourfold.
            assert states.count(State.GROWN) + states.count(State.EXPECTED) <= 4 + math.log(max(one.targets, 1), 4)
            assert one.told is None or one.told.number == len(states)


@settings(max_examples=150)
@given(stories)
def test_whatever_happens_passes_come_to_rest_and_messages_make_sense(story: list[tuple[object, ...]]) -> None:
    played = Story()
    for step in story:
        played.play(step)
    played.check_messages()


@settings(max_examples=60)
@given(stories)
def test_when_all_is_over_everything_that_was_told_was_told_to_its_end(story: list[tuple[object, ...]]) -> None:
    played = Story()
    for step in story:
        played.play(step)
    world = played.world
    for key, one in world.findings.items():
        if one.ended_at_ns is None:
            world.end(key)
    world.wait(12 * HOUR_S, 600)
    assert world.standing == []
    for key in world.incidents:
        states = [state for told, state, _ in world.told if told == key]
        assert not states or states[-1] in {*OVER, State.EXPECTED}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(series, st.integers(0, 900), effects, causes), max_size=8, unique_by=lambda one: one[0]),
    st.randoms(),
)
def test_in_what_order_regressions_are_listed_does_not_matter(
    begun: list[tuple[int, int, float, FirstCause | None]], chance: random.Random
) -> None:
    """Of those that come in together. Over several passes the first decides, see `Homes`."""
    story, other = Story(), Story()
    findings = [story._finding(f"r{one[0]}", *one) for one in begun]
    story.world.put(*findings)
    chance.shuffle(findings)
    other.world.put(*findings)
    story.world.look()
    other.world.look()
    assert story.world.incidents == other.world.incidents


@settings(max_examples=60)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_of_one_cause_and_time_the_order_over_passes_does_not_matter_either(
    ages_s: list[int], chance: random.Random
) -> None:
    """As long as all are near to each other: then whatever comes first, the others join it."""
    findings = [
        finding(f"r{number}", target=f"t{number}", started_at_ns=START_NS - age_s * SECOND)
        for number, age_s in enumerate(ages_s)
    ]
    chance.shuffle(findings)
    world = World()
    for one in findings:
        world.put(one)
        world.wait(5)
    (incident,) = world.standing
    assert len(incident.members) == len(findings)
