"""Profiles in the store: written once, thinned, and read again."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.profile_records import ProfileState
from cyclewatch.daemon.store.profiles import KEEP_ALL_NS, KEEP_NS, ProfileHistory, superfluous
from cyclewatch.daemon.store.transactions import Transactions
from units import KERNEL, SECOND, profile, unit

DAY = 86_400 * SECOND


class Store:
    """A database, its writer and its reader."""

    def __init__(self, address: str) -> None:
        self.engine = open_database(address, create=True)
        self.writer = Transactions(self.engine, "node")
        self.history = ProfileHistory(self.engine)


@pytest.fixture(name="store")
def _store(address: str) -> Iterator[Store]:
    store = Store(address)
    yield store
    store.engine.dispose()


def test_what_is_written_is_read(store: Store) -> None:
    """Everything but the run's key, which the number of the run stands for."""
    store.writer.write(unit(profiles=[profile(warnings=("rounded",))]))
    (view,) = store.history.latest(10)
    assert view.profile == replace(profile(warnings=("rounded",)), run_key="", kernels=None)
    found = store.history.profile(view.id)
    assert found is not None
    assert found.profile.kernels == (KERNEL,)


@pytest.mark.parametrize("number", [0, -1, 99, 10**20])
def test_a_number_that_no_profile_has_is_none(store: Store, number: int) -> None:
    assert store.history.profile(number) is None


def test_a_profile_is_ordered_then_kept_then_priced_as_one_row(store: Store) -> None:
    """Its kernels stay when only the cost comes later."""
    ordered = profile(state=ProfileState.TAKING, ended_at_ns=None, totals={}, cost={}, kernels=None)
    priced = profile(cost={"stall_ns": 7}, kernels=None)
    for one in (ordered, profile(cost={}), priced):
        store.writer.write(unit(profiles=[one]))
    (view,) = store.history.latest(10)
    assert (view.profile.state, view.profile.cost) == (ProfileState.KEPT, {"stall_ns": 7})
    found = store.history.profile(view.id)
    assert found is not None
    assert found.profile.kernels == (KERNEL,)


def test_a_process_that_is_no_server_has_no_run(store: Store) -> None:
    store.writer.write(unit(profiles=[profile(run_key="", target="python-7", rank="")]))
    (view,) = store.history.latest(1)
    assert view.profile.target == "python-7"


def test_what_a_killed_daemon_left_is_refused_at_the_next_start(store: Store) -> None:
    store.writer.write(unit(profiles=[profile("a", state=ProfileState.TAKING, kernels=None), profile("b")]))
    store.history.end_unfinished("the daemon ended")
    states = {view.profile.key: (view.profile.state, view.profile.detail) for view in store.history.latest(10)}
    assert states == {"a": (ProfileState.REFUSED, "the daemon ended"), "b": (ProfileState.KEPT, "")}


def test_the_latest_and_those_since_an_instant_are_newest_first(store: Store) -> None:
    store.writer.write(unit(profiles=[profile(str(second), began_at_ns=second * SECOND) for second in (1, 2, 3)]))
    assert [view.profile.key for view in store.history.latest(2)] == ["3", "2"]
    assert [view.profile.key for view in store.history.since(2 * SECOND)] == ["3", "2"]


def test_old_profiles_are_thinned_to_one_a_day_and_keep_what_they_cost(store: Store) -> None:
    first = 1000 * DAY
    for hour in range(72):
        store.writer.write(unit(profiles=[profile(str(hour), began_at_ns=first + hour * 3600 * SECOND)]))
    views = store.history.latest(100)
    assert len(views) == 72
    kept = []
    for view in views:
        found = store.history.profile(view.id)
        assert found is not None
        assert found.profile.cost
        if found.profile.kernels:
            kept.append(int(found.profile.key))
    assert sorted(kept) == [0, 24, *range(47, 72)]


@given(
    ages_s=st.lists(st.integers(0, 200 * 86_400), max_size=50),
    reasons=st.lists(st.sampled_from(["routine", "suspicion"]), min_size=50, max_size=50),
)
def test_thinning_never_takes_the_last_of_a_day_and_is_done_at_once(ages_s: list[int], reasons: list[str]) -> None:
    """What is left after it is left alone by it."""
    now = 1000 * DAY
    profiles = [
        (number, now - age * SECOND, reason)
        for number, (age, reason) in enumerate(zip(sorted(ages_s, reverse=True), reasons, strict=False))
    ]
    gone = set(superfluous(profiles, now))
    left = [one for one in profiles if one[0] not in gone]
    assert superfluous(left, now) == []
    for number, at_ns, reason in profiles:
        if now - at_ns <= KEEP_ALL_NS:
            assert number not in gone
        elif now - at_ns > KEEP_NS:
            assert number in gone
        else:
            assert any((at_ns // DAY, reason) == (other // DAY, kind) for _, other, kind in left)
