from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import delete, update
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from cyclewatch.collectors.records import ForwardMode, Reading, RecordKind, Records, RingCounters, ServerIdentity
from cyclewatch.config.settings import Detection, Settings
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.unit import Run, Unit
from cyclewatch.detectors.attribution import Evidence
from simulated import WINDOW_NS, cycles, server
from watched import SECOND, WALL_NS, Replay, Watched, batch, ring_identity


@pytest.fixture(name="watched")
def _watched(tmp_path: Path, address: str) -> Iterator[Watched]:
    watched = Watched(tmp_path, address=address)
    yield watched
    watched.close()


def value(watched: Watched, name: str, **labels: str) -> float | None:
    return watched.metrics.registry.get_sample_value(name, labels)


def scraped(watched: Watched) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Names and labels of all samples, as Prometheus would see them."""
    families = text_string_to_metric_families(generate_latest(watched.metrics.registry).decode())
    return [(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples]


def test_a_slowdown_is_found_once_with_its_split_and_cause(watched: Watched) -> None:
    """All of it in the stage that grew, and the parts sum to the whole."""
    Replay(watched, server(60, seed=2, slower={34: 1.2})).run()
    (found,) = watched.history.regressions()
    assert (found.state, found.direction, found.phase, found.rank, found.target) == (
        "open",
        "slower",
        "decode",
        "tp0",
        "server",
    )
    assert found.effect == pytest.approx(0.2, rel=0.25)
    assert abs((found.started_at_ns - WALL_NS) / SECOND - 170) <= 20
    grown = {part["part"]: part["delta_us"] for part in found.split}
    assert max(grown, key=lambda part: grown[part]) == "launch"
    assert sum(grown.values()) == pytest.approx(grown["launch"])
    unexplained, stage = found.causes
    assert (unexplained["kind"], stage["kind"]) == ("unexplained", "stage_launch")
    assert stage["evidence"]
    assert value(watched, "cyclewatch_regressions_confirmed_total", target="server") == 1
    assert value(watched, "cyclewatch_regression_open", target="server", rank="tp0", phase="decode") == 1
    (phase,) = watched.metrics.state.phases.values()
    assert phase.regressions_began_s == {"level": found.started_at_ns / 1e9}
    assert sum(phase.stages_s) == pytest.approx(phase.median_s, rel=0.1)


def test_its_end_resolves_it(watched: Watched) -> None:
    """The same row, with an end."""
    Replay(watched, server(85, seed=2, slower={34: 1.2, 60: 1.0})).run()
    (found,) = watched.history.regressions(all_directions=True)
    assert found.state == "resolved"
    assert found.ended_at_ns is not None
    assert found.started_at_ns < found.detected_at_ns < found.ended_at_ns
    assert value(watched, "cyclewatch_regression_open", target="server", rank="tp0", phase="decode") == 0


def test_growing_slower_twice_is_one_regression(watched: Watched) -> None:
    """One row and one count; its effect is that of both."""
    Replay(watched, server(90, seed=2, slower={34: 1.15, 60: 1.4})).run()
    (found,) = watched.history.regressions()
    assert found.effect == pytest.approx(0.4, rel=0.2)
    assert value(watched, "cyclewatch_regressions_confirmed_total", target="server") == 1


def test_steady_traffic_gives_no_regression(watched: Watched) -> None:
    Replay(watched, server(100, seed=6)).run()
    assert watched.history.regressions(all_directions=True) == []


def test_the_first_seconds_of_a_server_are_not_judged(tmp_path: Path) -> None:
    """Warm-up windows are stored, but do not count for the baseline."""
    watched = Watched(tmp_path, Settings(detection=Detection(reference_s=100, warmup_s=50)))
    Replay(watched, server(20, seed=1)).run()
    (phase,) = watched.metrics.state.phases.values()
    assert phase.baseline_progress == pytest.approx(10 / 20)
    assert len(watched.rows(models.WindowRow)) == 20
    watched.close()


@pytest.mark.parametrize(
    ("field", "number"),
    [("end_ns", 2**63), ("end_ns", 3600 * SECOND), ("cycle_ns", 2**64 - 1)],
)
def test_implausible_records_are_counted_and_left_out(watched: Watched, field: str, number: int) -> None:
    """A window in the far future would never close."""
    records = cycles(20)
    records[field][3] = number
    watched.take(batch(records), SECOND)
    watched.turn(10 * SECOND)
    assert value(watched, "cyclewatch_records_refused_total", reason="implausible") == 1
    assert watched.pipeline._rings["1-100-7"].cutter.first_open_sequence() is None


def test_records_that_come_after_their_window_are_counted(watched: Watched) -> None:
    watched.take(batch(cycles(20)), SECOND)
    watched.turn(10 * SECOND)
    watched.take(batch(cycles(5, first_sequence=21)), 11 * SECOND)
    assert value(watched, "cyclewatch_records_refused_total", reason="late") == 5


def test_windows_wait_for_rings_that_could_not_be_read(watched: Watched) -> None:
    """A collector that hangs for ten minutes, or a pause: nothing comes too late."""
    watched.take(batch(cycles(20), complete_ns=SECOND), 2 * SECOND)
    for second in range(3, 600):
        watched.pipeline.turn(watched.now(second * SECOND))
    watched.take(batch(cycles(5, first_end_ns=4 * SECOND, first_sequence=21)), 600 * SECOND)
    watched.stop(605 * SECOND)
    (row,) = watched.rows(models.WindowRow)
    assert row.count == 25
    assert not value(watched, "cyclewatch_records_refused_total", reason="late")


@pytest.mark.parametrize("seed", range(3))
def test_any_payload_is_taken(watched: Watched, seed: int) -> None:
    """Whole records with arbitrary contents, as a damaged writer might leave: nothing raises, all can be stored."""
    random = np.random.default_rng(seed)
    for turn in range(1, 9):
        records: Records = np.frombuffer(random.bytes(200 * 128), cycles(1).dtype).copy()
        records["kind"] = random.integers(0, 6, 200)
        records["mode"] = random.integers(0, 12, 200)
        records["flags"] = 0
        records["end_ns"] = random.integers(0, turn * WINDOW_NS, 200)
        records["cycle_ns"] = random.choice(np.array([0, 1, 10**7, 3600 * 10**9], np.uint64), 200)
        records["sequence"] = np.arange(200 * turn, 200 * (turn + 1))
        watched.take(batch(records), turn * WINDOW_NS)
        watched.turn(turn * WINDOW_NS + 2 * SECOND)
    watched.stop(60 * SECOND)


def test_a_server_that_has_ended_is_forgotten_once(watched: Watched) -> None:
    """Its ring stays in the directory; that is no reason to greet and dismiss it every second."""
    watched.take(batch(cycles(50)), SECOND)
    with capture_logs() as events:
        for second in range(2, 60):
            watched.take(batch(cycles(0), alive=False, next_sequence=51), second * SECOND)
            watched.turn(second * SECOND)
    assert [event["event"] for event in events] == ["server gone"]
    assert watched.metrics.state.rings == {}
    assert watched.metrics.state.phases == {}


def test_what_a_server_that_has_ended_left_unread_is_judged(watched: Watched) -> None:
    """The daemon came later than its end."""
    watched.take(batch(cycles(50), alive=False), SECOND)
    watched.take(batch(cycles(0), alive=False, next_sequence=51), 2 * SECOND)
    watched.turn(10 * SECOND)
    watched.turn(20 * SECOND)
    assert len(watched.rows(models.WindowRow)) == 1


def test_two_rings_of_one_rank_are_one_series(watched: Watched) -> None:
    """Just after a restart there are two; the page must not hold the same labels twice."""
    watched.take(batch(cycles(50), counters=RingCounters(failures=1)), SECOND)
    watched.turn(7 * SECOND)
    later = ring_identity("1-200-9", parent_start_ticks=9, wall_ns=WALL_NS + SECOND)
    watched.take(batch(cycles(50, first_end_ns=WINDOW_NS + 1), later, counters=RingCounters(failures=2)), 8 * SECOND)
    watched.take(batch(cycles(0), next_sequence=51), 9 * SECOND)
    watched.turn(14 * SECOND)
    names = scraped(watched)
    assert len(names) == len(set(names))
    assert value(watched, "cyclewatch_hook_failures_total", target="server", rank="tp0") == 2


def test_the_end_of_the_old_ring_leaves_the_new_one_alone(watched: Watched) -> None:
    """Same rank, same phase, same settings."""
    watched.take(batch(cycles(50)), SECOND)
    watched.turn(7 * SECOND)
    later = ring_identity("1-200-9", parent_start_ticks=9, wall_ns=WALL_NS + SECOND)
    watched.take(batch(cycles(50, first_end_ns=WINDOW_NS + 1), later), 8 * SECOND)
    watched.turn(14 * SECOND)
    watched.take(batch(cycles(0), alive=False, next_sequence=51), 15 * SECOND)
    watched.turn(15 * SECOND)
    assert [phase.phase for phase in watched.metrics.state.phases.values()] == ["decode"]


def test_phases_of_other_settings_go_with_their_ring(watched: Watched) -> None:
    """After a restart without the prefill that the old one had."""
    watched.take(batch(cycles(50, mode=ForwardMode.EXTEND)), SECOND)
    watched.turn(7 * SECOND)
    later = ring_identity("1-200-9", parent_start_ticks=9, wall_ns=WALL_NS + SECOND, sglang_version="0.5.24")
    watched.take(batch(cycles(50, first_end_ns=WINDOW_NS + 1), later), 8 * SECOND)
    watched.turn(14 * SECOND)
    watched.take(batch(cycles(0), alive=False, next_sequence=51), 15 * SECOND)
    watched.turn(15 * SECOND)
    assert [phase.phase for phase in watched.metrics.state.phases.values()] == ["decode"]


def test_a_restart_with_other_arguments_is_told_as_such(watched: Watched) -> None:
    """The change events that a later regression is held against."""
    watched.take(batch(cycles(5)), SECOND)
    later = ring_identity(
        "1-200-9",
        parent_start_ticks=9,
        wall_ns=WALL_NS + SECOND,
        sglang_version="0.5.24",
        server={"model_path": "tiny", "page_size": 16},
    )
    watched.take(batch(cycles(5), later), 2 * SECOND)
    watched.stop(3 * SECOND)
    events = {
        (event["kind"], event["subject"], event["before"], event["after"]) for event in watched.history.change_events()
    }
    assert events == {
        ("restart", "server", "", ""),
        ("version", "sglang", "0.5.23", "0.5.24"),
        ("argument", "page_size", "1", "16"),
    }


@pytest.mark.parametrize(
    "state",
    [{}, {"detector": {"version": 99}}, {"detector": {"version": 1}, "regression": None}, {"detector": 5}],
)
def test_a_saved_state_that_cannot_be_used_is_learned_anew(watched: Watched, state: dict[str, object]) -> None:
    """After an upgrade, or a hand in the database: said once, and the daemon goes on."""
    replay = Replay(watched, server(30, seed=1))
    replay.run(120 * SECOND)
    watched.stop(replay.at_ns)
    with watched.engine.begin() as connection:
        connection.execute(update(models.DetectorStateRow).values(state=state))
    watched.start()
    with capture_logs() as events:
        replay.run()
    assert len([event for event in events if "learning it anew" in event["event"]]) == 1
    (phase,) = watched.metrics.state.phases.values()
    assert phase.baseline_progress < 1


def test_a_store_that_does_not_answer_stops_nothing_and_costs_no_baseline(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows go on being kept; the series is judged once its saved baseline can be read."""
    replay = Replay(watched, server(40, seed=1))
    replay.run(120 * SECOND)
    watched.stop(replay.at_ns)
    watched.start()

    def fail(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the server closed the connection"))

    with monkeypatch.context() as patch:
        patch.setattr(watched.history, "detector_state", fail)
        replay.run(150 * SECOND)
    assert watched.metrics.state.phases == {}
    replay.run()
    (phase,) = watched.metrics.state.phases.values()
    assert phase.baseline_progress == 1.0


def test_a_regression_is_kept_although_its_evidence_cannot_be_read(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cause, but not without a row."""

    def fail(*_: object, **__: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the server closed the connection"))

    monkeypatch.setattr(watched.history, "evidence", fail)
    Replay(watched, server(60, seed=2, slower={34: 1.2})).run()
    (found,) = watched.history.regressions()
    assert (found.split, found.causes) == ([], [])


def test_causes_are_looked_for_again_while_a_regression_is_open(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more of the time since it began, and anew when it has grown: then with the time since that."""
    ask, asked = watched.history.evidence, list[tuple[int, ...]]()

    def note(run: Run, rank: str, phase: str, began_ns: int, span_ns: tuple[int, int], **known: bool) -> Evidence:
        asked.append(((began_ns - WALL_NS) // SECOND, *((at_ns - WALL_NS) // SECOND for at_ns in span_ns)))
        return ask(run, rank, phase, began_ns, span_ns, **known)

    monkeypatch.setattr(watched.history, "evidence", note)
    Replay(watched, server(140, seed=2, slower={34: 1.15, 100: 1.5})).run()
    began, since, until = zip(*asked, strict=True)
    assert len(set(began)) == 1
    assert list(until) == sorted(until)
    assert since[:2] == began[:2]
    assert since[-1] == pytest.approx(500, abs=20)
    assert until[1] - since[1] >= 2 * (until[0] - since[0]) - 5


def test_stalls_and_garbage_collections_are_kept_as_ratios(watched: Watched) -> None:
    """Nanoseconds of a window over its length."""
    records = cycles(3)
    records["kind"] = (RecordKind.CYCLE, RecordKind.STALL, RecordKind.GARBAGE_COLLECTION)
    records["cycle_ns"] = (5_000_000, SECOND, SECOND // 2)
    watched.take(batch(records), SECOND)
    watched.stop(10 * SECOND)
    names = {row.id: row.name for row in watched.rows(models.SeriesRow)}
    assert {names[row.series_id]: row.value for row in watched.rows(models.SampleRow)} == {
        "cycles.stalled_ratio": 0.2,
        "cycles.collected_ratio": 0.1,
    }


def test_readings_are_stored_and_shown(watched: Watched) -> None:
    watched.take(Reading("server", "engine.running_requests", 7.0), SECOND)
    watched.turn(2 * SECOND)
    watched.stop(3 * SECOND)
    assert value(watched, "cyclewatch_engine_running_requests", target="server") == 7
    (row,) = watched.rows(models.SampleRow)
    assert (row.at_ns, row.value) == (WALL_NS + SECOND, 7.0)


def test_a_reading_that_no_longer_comes_is_no_longer_shown(watched: Watched) -> None:
    """A server that is away, a thread that ended: an old value must not pass for the present one."""
    watched.take(Reading("server", "engine.running_requests", 7.0), SECOND)
    watched.turn(50 * SECOND)
    assert value(watched, "cyclewatch_engine_running_requests", target="server") == 7
    watched.turn(70 * SECOND)
    assert value(watched, "cyclewatch_engine_running_requests", target="server") is None


def test_a_probe_is_shown_until_the_next_one_is_due(watched: Watched) -> None:
    """It comes once an hour."""
    watched.take(Reading("node", "probe.cpu_loop_seconds", 0.015, (("kind", "cpu"), ("software", "python 3"))), 1)
    labels = {"target": "node", "kind": "cpu", "software": "python 3"}
    watched.turn(7200 * SECOND)
    assert value(watched, "cyclewatch_probe_cpu_loop_seconds", **labels) == 0.015
    watched.turn(7211 * SECOND)
    assert value(watched, "cyclewatch_probe_cpu_loop_seconds", **labels) is None


def test_a_checkpoint_holds_the_place_of_the_first_record_that_is_not_judged(watched: Watched) -> None:
    """Records of an open window are read again after a restart."""
    watched.take(batch(cycles(800, spacing_ns=10_000_000), complete_ns=6 * SECOND), 8 * SECOND)
    watched.pipeline.turn(watched.now(8 * SECOND))
    watched.pipeline.flush(watched.now(8 * SECOND), checkpoint=True)
    watched.write()
    position = watched.history.ring_positions()["1-100-7"]
    assert (position.next_sequence, position.last_window) == (501, 0)


def test_checkpoints_are_taken_every_twenty_seconds_and_batches_every_ten(watched: Watched) -> None:
    """Not every second: a state is some 100 kB."""
    units: list[Unit] = []
    watched.pipeline._submit = units.append
    replay = Replay(watched, server(30, seed=1))
    replay.run(120 * SECOND)
    assert 11 <= len(units) <= 13
    assert 5 <= len([unit for unit in units if unit.rings]) <= 7


def test_what_comes_in_under_suspicion_is_written_twice_as_often(watched: Watched) -> None:
    """The causes of what is found are looked for in the store."""
    replay = Replay(watched, server(30, seed=1))
    replay.run(100 * SECOND)
    units: list[Unit] = []
    watched.pipeline._submit = units.append
    (ring,) = watched.pipeline._rings
    watched.pipeline._board.judged(ring, 100 * SECOND, settled=True, suspected=True)
    for second in range(101, 121):
        watched.pipeline.turn(watched.now(second * SECOND))
    assert len(units) == 4


def test_windows_keep_their_place_on_the_clock_of_the_ring(watched: Watched) -> None:
    """A second daemon, whose clocks are read some microseconds apart, writes over the same rows."""
    for jitter_ns in (0, 700_000, -700_000):
        watched.jitter_ns = jitter_ns
        watched.start()
        watched.take(batch(cycles(20)), SECOND)
        watched.stop(10 * SECOND)
        with watched.engine.begin() as connection:
            connection.execute(delete(models.RingRow))
    (row,) = watched.rows(models.WindowRow)
    assert row.start_ns == WALL_NS


def test_after_the_clock_was_set_windows_are_placed_by_the_present_one(watched: Watched) -> None:
    """The server began while the machine's clock was years off."""
    ring = ring_identity(wall_ns=WALL_NS - 10**17)
    watched.take(batch(cycles(20), ring), SECOND)
    watched.stop(10 * SECOND)
    (row,) = watched.rows(models.WindowRow)
    assert row.start_ns == WALL_NS


def test_a_server_that_began_by_a_clock_that_was_ahead_is_judged(watched: Watched) -> None:
    """It does not warm up until the clock is there again."""
    ring = ring_identity(wall_ns=WALL_NS + 10**17)
    Replay(watched, server(85, seed=2, slower={34: 1.2}), ring).run()
    (found,) = watched.history.regressions()
    assert found.effect == pytest.approx(0.2, rel=0.3)


def test_a_server_without_a_ring_gets_a_run_from_what_it_says(watched: Watched) -> None:
    """Version and arguments are known, and their change is an event."""
    for second, version in ((1, "0.5.23"), (100, "0.5.24")):
        watched.take(ServerIdentity("s", "http://h:1", version, "tiny", {}), second * SECOND)
        for later in range(40):
            watched.turn((second + later) * SECOND)
    watched.stop(200 * SECOND)
    assert [run.version for run in watched.history.runs()] == ["0.5.23", "0.5.24"]
    assert {event["kind"] for event in watched.history.change_events()} == {"restart", "version"}
