"""Attribution gets the probes of a week, since there is hardly one in the minutes before a change."""

from pathlib import Path

from sqlalchemy import text

from cyclewatch.collectors.records import NODE
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.probes import KEPT_NS
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredSample
from units import unit

SECOND = 10**9
HOUR = 3600 * SECOND
CHANGE_NS = 1_800_000_000 * SECOND
CPU = (("kind", "cpu"), ("software", "python 3.11"))


def sample(at_ns: int, seconds: float, name: str = "probe.cpu_loop_seconds") -> StoredSample:
    return StoredSample(NODE, name, CPU, at_ns, seconds)


def stretch(from_ns: int, to_ns: int) -> Stretch:
    return Stretch("server", from_ns, to_ns)


def test_probes_reach_back_a_week_and_other_readings_do_not(address: str) -> None:
    """The hour before a change ends where the change begins, and so do its probes."""
    engine = open_database(address, create=True)
    pause_ns = 600 * SECOND
    ended_ns = CHANGE_NS - pause_ns
    samples = [sample(ended_ns - hour * HOUR - 1, 0.010 + hour / 1e5) for hour in range(200)]
    samples += [sample(CHANGE_NS + 60 * SECOND, 0.020)]
    samples += [sample(ended_ns - hour * HOUR - 1, 1.0, "host.load") for hour in range(200)]
    Transactions(engine, "node").write(unit(samples=samples))
    before, after = stretch(ended_ns - HOUR // 2, ended_ns), stretch(CHANGE_NS, CHANGE_NS + HOUR)
    evidence = StoreHistory(engine).evidence_between("tp0", "decode", before, after)
    traces = {trace.name: trace for trace in evidence.traces}
    probes = traces["probe.cpu_loop_seconds"]
    assert probes.labels == dict(CPU)
    assert len(probes.values) == KEPT_NS // HOUR + 1
    assert (probes.at_ns[1:] > probes.at_ns[:-1]).all()
    assert (probes.at_ns[-2], probes.values[-2]) == (CHANGE_NS - 1, 0.010)
    assert (probes.at_ns[-1], probes.values[-1]) == (CHANGE_NS + 60 * SECOND, 0.020)
    assert len(traces["host.load"].values) == 1
    earlier = StoreHistory(engine).evidence_between("tp0", "decode", after, before)
    (of_before,) = [trace for trace in earlier.traces if trace.name == "probe.cpu_loop_seconds"]
    assert len(of_before.values) == 2
    engine.dispose()


def test_the_database_finds_them_by_their_series(tmp_path: Path) -> None:
    """Not by time, through a week of everything."""
    engine = open_database(f"sqlite:///{tmp_path / 'store.db'}", create=True)
    query = "select series_id from samples where series_id in (1, 2) and at_ns >= 1 and at_ns < 2 order by series_id"
    with engine.connect() as connection:
        plan = " ".join(str(row) for row in connection.execute(text(f"explain query plan {query}")))
    assert "series_id=? AND at_ns>?" in plan
    engine.dispose()
