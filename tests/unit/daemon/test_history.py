import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.records import NODE
from cyclewatch.daemon.store.profile_records import ProfileState, StoredProfile
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.unit import ChangeEvent, StoredLevel, StoredRegression, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.attribution import Event, Evidence
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.windows import cells_of
from simulated import cycles
from units import KERNEL, REGRESSION, RUN, SECOND, profile
from watched import Watched

BEGAN_NS = 1000 * SECOND
SPAN_NS = BEGAN_NS, BEGAN_NS + 40 * SECOND


class Past:
    """A store in which things have been noted, and the evidence it gives."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def note(self, **parts: Any) -> None:
        runs = parts.pop("runs", [RUN])
        self._watched.writer.write(Unit(0, runs=runs, **parts))

    def evidence(self, **changes: Any) -> Evidence:
        place: dict[str, Any] = {
            "rank": "tp0",
            "phase": "decode",
            "span_ns": SPAN_NS,
            "began_ns": BEGAN_NS,
            "synchronous": False,
            **changes,
        }
        return self._watched.history.evidence(RUN, **place)

    def between(self, before: Stretch, after: Stretch) -> Evidence:
        return self._watched.history.evidence_between("tp0", "decode", before, after)


@pytest.fixture(name="past")
def _past(tmp_path: Path, address: str) -> Iterator[Past]:
    watched = Watched(tmp_path, address=address)
    yield Past(watched)
    watched.close()


def window(at_s: int, *, run: str = RUN.key, rank: str = "tp0", count: int = 10) -> StoredWindow:
    (cell,) = cells_of(Phase.DECODE, cycles(count))
    return StoredWindow(run, rank, at_s * SECOND, 5 * SECOND, cell)


def sample(at_s: int, value: float, name: str = "host.run_queue_wait_ratio", **labels: str) -> StoredSample:
    return StoredSample("server", name, tuple(labels.items()), at_s * SECOND, value)


def level(at_s: int, log_ratio: float, rank: str = "tp0") -> StoredLevel:
    measured = Level(at_s * SECOND, log_ratio, 0.01, 10.0, 0.1, 10, 10)
    return StoredLevel(RUN.key, rank, "decode", measured, suspected=False)


def test_windows_are_told_apart_by_the_beginning_of_the_change(past: Past) -> None:
    """Ten minutes before it, and from it to the detection."""
    past.note(windows=[window(at_s, count=at_s) for at_s in (399, 400, 999, 1000, 1040, 1041)])
    evidence = past.evidence()
    assert [one.count for one in evidence.before] == [400 + 999]
    assert [one.count for one in evidence.after] == [1000 + 1040]
    assert evidence.before[0].stages_ns == (0, 0, 5_000_000, 0, 0, 0)
    assert math.isnan(evidence.before[0].on_cpu_ratio)


def test_evidence_is_of_this_rank_phase_and_configuration(past: Past) -> None:
    """Back over a restart with the same settings, not over one with others."""
    same, other = replace(RUN, key="k1"), replace(RUN, key="k2", fingerprint="beef")
    windows = [window(990), window(990, run="k1"), window(990, run="k2"), window(990, rank="tp1")]
    past.note(runs=[RUN, same, other], windows=windows)
    assert [one.count for one in past.evidence().before] == [20]
    assert past.evidence(phase="extend").before == []
    assert [one.count for one in past.evidence(rank="tp1").before] == [10]


def test_readings_are_all_of_the_server_and_its_node_in_both_stretches(past: Past) -> None:
    """One trace a series, in order of time; nothing of another server, nor from five minutes before or after."""
    of_node = replace(sample(950, 0.5, "host.cpu_usage_ratio"), target=NODE)
    of_another = replace(sample(950, 0.5), target="another")
    samples = [sample(at_s, at_s / 1e4, rank="tp0") for at_s in (699, 1040, 700, 1041)]
    past.note(samples=[*samples, sample(950, 0.3, rank="tp1"), of_node, of_another])
    traces = past.evidence().traces
    assert [(trace.name, trace.labels, trace.values.tolist()) for trace in traces] == [
        ("host.run_queue_wait_ratio", {"rank": "tp0"}, [0.07, 0.104]),
        ("host.run_queue_wait_ratio", {"rank": "tp1"}, [0.3]),
        ("host.cpu_usage_ratio", {}, [0.5]),
    ]
    assert traces[0].at_ns.tolist() == [700 * SECOND, 1040 * SECOND]


def test_readings_close_to_each_other_are_given_as_their_mean(past: Past) -> None:
    """Over five seconds, counted from the beginning of the change, so that none mixes before and after."""
    past.note(samples=[sample(at_s, float(at_s)) for at_s in range(990, 1011)])
    (trace,) = past.evidence().traces
    assert (trace.at_ns // SECOND).tolist() == [990, 991, 996, 1000, 1005, 1010]
    assert trace.values.tolist() == [990, 993, 997.5, 1002, 1007, 1010]


def test_levels_are_those_of_the_series_that_changed(past: Past) -> None:
    """Windows without a verdict are left out."""
    levels = [level(990, 0.01), level(995, math.nan), level(1000, 0.2), level(1000, 0.9, rank="tp1"), level(1041, 0.9)]
    past.note(levels=levels)
    found = past.evidence().levels
    assert found is not None
    assert found.at_ns.tolist() == [990 * SECOND, 1000 * SECOND]
    assert found.values.tolist() == [0.01, 0.2]


def test_cycles_of_the_other_ranks_come_along(past: Past) -> None:
    """Of those that still ran after the change."""
    windows = [window(at_s, rank=rank) for at_s in (990, 1000) for rank in ("tp0", "tp1", "tp2")]
    past.note(windows=[*windows, window(990, rank="tp3")])
    ranks = past.evidence(rank="tp1").ranks
    assert [(one.rank, len(one.before), len(one.after)) for one in ranks] == [("tp0", 1, 1), ("tp2", 1, 1)]


def test_cpu_time_counts_by_time_and_only_where_it_was_sampled(past: Past) -> None:
    windows = [window(990, count=10), window(995, count=10), window(980, count=10)]
    known = [
        replace(one, cell=replace(one.cell, on_cpu_ratio=ratio))
        for one, ratio in zip(windows, (0.5, 0.7, math.nan), strict=True)
    ]
    past.note(windows=known)
    assert past.evidence().before[0].on_cpu_ratio == pytest.approx(0.6)


def test_the_time_in_which_a_server_was_down_is_left_out(past: Past) -> None:
    """The cycles and readings of the last ten and five minutes before it, next to those from when it is back."""
    early_s = 1000 - 3600
    past.note(
        windows=[window(early_s + 10_000), window(11_000)], samples=[sample(early_s + 10_000, 0.1), sample(11_000, 0.2)]
    )
    evidence = past.evidence(began_ns=11_000 * SECOND, span_ns=(11_000 * SECOND, 11_040 * SECOND))
    assert [one.count for one in evidence.before] == [10]
    assert evidence.traces[0].values.tolist() == [0.1, 0.2]
    assert evidence.traces[0].at_ns[0] == 11_000 * SECOND - 1


def test_profiles_on_either_side_of_the_change_are_compared(past: Past) -> None:
    """The last one before it and the first one after it, of this rank; none without both."""

    def taken(at_s: int, key: str, call_ns: int, **changes: Any) -> StoredProfile:
        times = {"began_at_ns": at_s * SECOND, "ended_at_ns": (at_s + 1) * SECOND}
        return profile(key, kernels=(replace(KERNEL, total_ns=KERNEL.calls * call_ns),), **times, **changes)

    past.note(profiles=[taken(800, "p1", 100), taken(900, "p2", 200), taken(950, "p3", 300, rank="tp1")])
    assert past.evidence().kernels is None
    refused = taken(1005, "p4", 400, state=ProfileState.REFUSED)
    past.note(profiles=[refused, taken(1010, "p5", 500), taken(1020, "p6", 600), taken(1039, "p7", 700, rank="tp1")])
    found = past.evidence().kernels
    assert found is not None
    (kernel,) = found.kernels
    assert kernel.before is not None
    assert kernel.after is not None
    assert (kernel.before.mean_ns, kernel.after.mean_ns) == (200, 500)


def test_what_has_changed_again_is_held_against_the_time_before_it_began(past: Past) -> None:
    """Of a regression that has grown, only the time since then counts as after."""
    past.note(
        windows=[window(990), window(1000, count=5), window(1060, count=7)],
        samples=[sample(990, 0.1), sample(1000, 0.5), sample(1060, 0.9)],
    )
    evidence = past.evidence(span_ns=(1060 * SECOND, 1100 * SECOND))
    assert [one.count for one in (*evidence.before, *evidence.after)] == [10, 7]
    assert evidence.traces[0].values.tolist() == [0.1, 0.9]
    assert evidence.traces[0].at_ns.tolist() == [1050 * SECOND, 1060 * SECOND]


@pytest.mark.parametrize(("ended_s", "first_s"), [(700, 700), (985, 985), (990, 985), (None, 600)])
def test_what_came_before_begins_after_an_earlier_change(past: Past, ended_s: int | None, first_s: int) -> None:
    """With its end, or its beginning if it has none; 15 s are kept in any case."""
    ended_ns = None if ended_s is None else ended_s * SECOND
    earlier = replace(REGRESSION, started_at_ns=600 * SECOND, ended_at_ns=ended_ns)
    past.note(
        windows=[window(at_s, count=1) for at_s in range(500, 1000, 5)],
        samples=[sample(at_s, 0.1) for at_s in range(500, 1000, 5)],
    )
    past.note(regressions=[StoredRegression(RUN.key, RUN.target, "tp0", "decode", earlier, (), ())])
    evidence = past.evidence()
    assert sum(one.count for one in evidence.before) == (1000 - first_s) // 5
    assert evidence.traces[0].at_ns[0] == max(first_s, 700) * SECOND


def test_two_stretches_of_time_are_compared_as_if_the_one_followed_the_other(past: Past) -> None:
    """Here the later one is what it was before."""
    past.note(
        windows=[window(100, count=5), window(900, count=7)],
        samples=[sample(100, 0.1), sample(900, 0.9)],
        levels=[level(100, 0.1), level(900, 0.9)],
    )
    evidence = past.between(
        Stretch("server", 880 * SECOND, 910 * SECOND), Stretch("server", 100 * SECOND, 130 * SECOND)
    )
    assert evidence.started_at_ns == 100 * SECOND
    assert [one.count for one in (*evidence.before, *evidence.after)] == [7, 5]
    for trace in (evidence.traces[0], evidence.levels):
        assert trace is not None
        assert trace.at_ns.tolist() == [90 * SECOND, 100 * SECOND]
        assert trace.values.tolist() == [0.9, 0.1]
    assert evidence.events == []


def test_what_differs_between_two_runs_is_told(past: Past) -> None:
    """Of two servers; that one was started later than the other is no restart."""
    old = replace(RUN, started_at_ns=0, last_seen_ns=200 * SECOND, environment={"driver": "570"})
    new = replace(
        old, key="other", target="another", arguments={"page_size": 16, "device": "cpu"}, environment={"driver": "580"}
    )
    past.note(runs=[old, new])
    before, after = Stretch("server", 0, 100 * SECOND), Stretch("another", 100 * SECOND, 200 * SECOND)
    evidence = past.between(before, after)
    assert [(one.kind, one.subject, one.before, one.after) for one in evidence.events] == [
        ("argument", "device", "null", '"cpu"'),
        ("argument", "page_size", "1", "16"),
        ("environment", "driver", "570", "580"),
    ]
    assert evidence.synchronous
    assert not past.between(before, replace(before, from_ns=100 * SECOND, to_ns=200 * SECOND)).synchronous


def test_what_happened_between_two_stretches_is_told_once(past: Past) -> None:
    """A restart with another argument is a change event, and a difference between the two runs."""
    old = replace(RUN, started_at_ns=0, last_seen_ns=100 * SECOND)
    new = replace(old, key="new", started_at_ns=150 * SECOND, last_seen_ns=300 * SECOND, arguments={"page_size": 16})
    at_ns = 150 * SECOND
    events = [
        ChangeEvent("server", at_ns, "restart", "server", "", ""),
        ChangeEvent("server", at_ns, "argument", "page_size", "1", "16"),
        ChangeEvent("server", at_ns, "xid", "gpu0", "", "79"),
    ]
    past.note(runs=[old, new], events=events)
    before, after = Stretch("server", 0, 100 * SECOND), Stretch("server", 200 * SECOND, 300 * SECOND)
    evidence = past.between(before, after)
    assert sorted((one.kind, one.subject) for one in evidence.events) == [
        ("argument", "page_size"),
        ("restart", "server"),
        ("xid", "gpu0"),
    ]


def test_events_within_two_minutes_of_the_beginning_are_told(past: Past) -> None:
    """Of this target only."""
    events = [ChangeEvent("server", at_s * SECOND, "argument", f"a{at_s}", "1", "2") for at_s in (879, 880, 1120, 1121)]
    past.note(events=[*events, ChangeEvent("another", BEGAN_NS, "restart", "server", "", "")])
    assert [event.subject for event in past.evidence().events] == ["a880", "a1120"]


def test_what_happened_before_all_that_the_change_is_held_against_is_not_told(past: Past) -> None:
    """A server that was started with something else, and became slower half a minute later."""
    started, capped = (
        ChangeEvent("server", 960 * SECOND, "argument", "dtype", '"auto"', '"float32"'),
        ChangeEvent("node", 990 * SECOND, "environment", "gpu0.power_limit_w", "700", "500"),
    )
    past.note(windows=[window(at_s) for at_s in range(965, 1045, 5)], events=[started, capped])
    assert [event.subject for event in past.evidence().events] == ["gpu0.power_limit_w"]
    past.note(windows=[window(900)])  # the same configuration was there before it
    assert [event.subject for event in past.evidence().events] == ["dtype", "gpu0.power_limit_w"]


def test_our_own_profile_at_the_beginning_is_an_event(past: Past) -> None:
    """One that still runs, or has ended within 15 s before; not one that the suspicion made us take."""

    def taken(began_s: int, ended_s: int | None, **changes: Any) -> StoredProfile:
        ended_ns = None if ended_s is None else ended_s * SECOND
        return profile(f"p{began_s}", began_at_ns=began_s * SECOND, ended_at_ns=ended_ns, **changes)

    suspected = taken(997, 999, reason="suspicion")
    past.note(profiles=[taken(980, 984), taken(981, 985), taken(999, None), taken(1001, 1004), suspected])
    assert sorted((event.at_ns // SECOND, event.text) for event in past.evidence().events) == [
        (981, "profile of tp0: taken by kineto (routine)"),
        (999, "profile of tp0: taken by kineto (routine)"),
    ]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (("restart", "server", "", ""), "the server was restarted"),
        (("version", "sglang", "0.5.4", "0.5.23"), "sglang changed from 0.5.4 to 0.5.23"),
        (("argument", "page_size", "", "16"), "page_size changed from nothing to 16"),
    ],
)
def test_events_read_as_sentences(event: tuple[str, str, str, str], text: str) -> None:
    assert Event(BEGAN_NS, *event).text == text
