"""Nodes that share a database: targets of the same name, and a target `node` each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.profile_records import ProfileState
from cyclewatch.daemon.store.profiles import ProfileHistory
from cyclewatch.daemon.store.start import open_store
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import Replaced, StoredFact, Unit
from units import REGRESSION, RUN, SECOND, profile, stored, unit

NODES = ("a", "b")
RUNS = {node: replace(RUN, key=f"{node}|server|boot|1-2-3", node=node) for node in NODES}


@pytest.fixture(name="engine")
def _engine(address: str) -> Iterator[Engine]:
    """Two nodes wrote the same of servers with the same name; only the numbers differ."""
    engine = open_database(address, create=True)
    for place, node in enumerate(NODES):
        one = unit(100 + place, runs=[RUNS[node]], profiles=[profile(node, run_key=RUNS[node].key)])
        one.windows = [replace(window, run_key=RUNS[node].key) for window in one.windows]
        one.levels = [replace(level, run_key=RUNS[node].key) for level in one.levels]
        one.regressions = [stored(replace(REGRESSION, key=node), run_key=RUNS[node].key)]
        one.facts = [StoredFact("node", "driver", node, 1)]
        Transactions(engine, node).write(one)
    yield engine
    engine.dispose()


def test_each_node_reads_what_it_wrote(engine: Engine) -> None:
    """As if it were alone."""
    for place, node in enumerate(NODES):
        history, number = StoreHistory(engine, node), 100 + place
        assert history.runs() == [RUNS[node]]
        assert [fact.value for fact in history.facts()] == [node]
        assert history.detector_state("server|tp0|decode|f00d") == {"version": 1, "number": number}
        assert history.ring_positions()["1-2-3"].next_sequence == 7 + number
        assert history.status()["targets"][1] == {"server": {"number": number}}
        assert len(history.change_events()) == 1
        assert [view.profile.key for view in ProfileHistory(engine, node).latest(9)] == [node]


def test_a_list_of_regressions_names_the_nodes(engine: Engine) -> None:
    assert {view.node for view in StoreHistory(engine).regressions()} == set(NODES)


def test_evidence_is_that_of_one_node(engine: Engine) -> None:
    """Neither the readings nor the events of another, though they have the same names."""
    before = Stretch("server", 90 * SECOND, 101 * SECOND, node="a")
    after = Stretch("server", 101 * SECOND, 110 * SECOND, node="a")
    for node, counts in (("a", (1, 0)), ("b", (0, 1))):
        pair = (replace(before, node=node), replace(after, node=node))
        evidence = StoreHistory(engine, node).evidence_between("tp0", "decode", *pair)
        assert (len(evidence.before), len(evidence.after)) == counts
        readings = [trace for trace in evidence.traces if trace.name == "host.on_cpu_ratio"]
        assert [len(trace.values) for trace in readings] == [1]
        assert [event.kind for event in evidence.events].count("restart") == 1


def test_another_configuration_ends_what_is_open_on_its_own_node_alone(engine: Engine) -> None:
    Transactions(engine, "a").write(Unit(0, replaced=[Replaced("server", "other", 500 * SECOND)]))
    found = {view.node: view.state for view in StoreHistory(engine).regressions()}
    assert found == {"a": "resolved", "b": "open"}


def test_profiles_that_another_node_takes_are_left_alone(engine: Engine) -> None:
    for node in NODES:
        taking = profile(f"{node}2", run_key=RUNS[node].key, state=ProfileState.TAKING, kernels=None)
        Transactions(engine, node).write(Unit(0, profiles=[taking]))
    ProfileHistory(engine, "a").end_unfinished("the daemon was ended")
    states = {view.profile.key: view.profile.state for view in ProfileHistory(engine).latest(9)}
    assert states["a2"] is ProfileState.REFUSED
    assert states["b2"] is ProfileState.TAKING


def test_a_file_goes_with_its_node_to_another_name(tmp_path: Path) -> None:
    """A container has another host name after each start: its baselines must not go with the name."""
    settings = Settings(state_dir=tmp_path)
    store = open_store(settings, "old", lambda: 0)
    store.transactions.write(unit(1, runs=[replace(RUN, node="old")]))
    store.engine.dispose()
    store = open_store(settings, "new", lambda: 0)
    history = StoreHistory(store.engine, "new")
    assert history.detector_state("server|tp0|decode|f00d") is not None
    assert [run.node for run in history.runs()] == ["new"]
    store.transactions.write(unit(2, runs=[replace(RUN, node="new")]))
    with store.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(models.SeriesRow)).scalar() == 1
    store.engine.dispose()
