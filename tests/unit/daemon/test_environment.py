from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.records import NODE, Fact, Happening, Records, ServerIdentity
from cyclewatch.daemon.environment import FACTS_MAX, Environment
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.unit import ChangeEvent, StoredFact
from cyclewatch.detectors.attribution import Event
from simulated import cycles, server
from watched import SECOND, WALL_NS, Replay, Watched, batch, ring_identity


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def driver(version: str, target: str = NODE) -> Fact:
    return Fact(target, "driver", version)


def events(watched: Watched) -> list[tuple[str, str, str, str, str]]:
    """All events, oldest first, without their times."""
    rows = sorted(watched.rows(models.ChangeEventRow), key=lambda row: row.at_ns)
    return [(row.target, row.kind, row.subject, row.before, row.after) for row in rows]


def second_start(watched: Watched, windows: Iterable[tuple[int, Records]], delay_ns: int) -> Replay:
    """The server, started again: the same windows, all later by so much."""
    moved = [(number, records.copy()) for number, records in windows]
    for _, records in moved:
        records["end_ns"] += delay_ns
    ring = ring_identity("1-200-9", parent_start_ticks=6, wall_ns=WALL_NS + delay_ns, monotonic_ns=delay_ns)
    replay = Replay(watched, moved, ring)
    replay.at_ns = int(moved[0][1]["end_ns"][0]) // SECOND * SECOND
    return replay


class TestEnvironment:
    def test_the_first_telling_is_kept_and_no_change(self) -> None:
        assert Environment().note(driver("580.1"), 7) == (StoredFact(NODE, "driver", "580.1", 7), None)

    def test_a_repetition_is_nothing(self) -> None:
        environment = Environment()
        environment.note(driver("580.1"), 7)
        assert environment.note(driver("580.1"), 9) == (None, None)

    def test_another_value_is_a_change_with_what_was_before(self) -> None:
        environment = Environment([StoredFact(NODE, "driver", "580.1", 7)])
        assert environment.note(driver("590.2"), 9) == (
            StoredFact(NODE, "driver", "590.2", 9),
            ChangeEvent(NODE, 9, "environment", "driver", "580.1", "590.2"),
        )

    def test_a_server_has_its_own_facts_and_those_of_the_node(self) -> None:
        """Its own win."""
        environment = Environment()
        for fact in (driver("580.1"), Fact("a", "torch", "2.9"), Fact("b", "torch", "2.8"), Fact("a", "driver", "x")):
            environment.note(fact, 0)
        assert environment.of("a") == {"driver": "x", "torch": "2.9"}
        assert environment.of("b") == {"driver": "580.1", "torch": "2.8"}
        assert environment.of("c") == {"driver": "580.1"}

    def test_facts_without_end_are_refused(self) -> None:
        """Those that are known go on."""
        environment = Environment()
        for number in range(FACTS_MAX + 5):
            environment.note(Fact(NODE, f"s{number}", "1"), 0)
        assert len(environment.of("server")) == FACTS_MAX
        assert environment.note(Fact(NODE, "s0", "2"), 1)[1] is not None

    @given(st.text(), st.text(), st.text())
    def test_any_text_is_bounded_and_printable(self, subject: str, value: str, again: str) -> None:
        """Whatever is kept can be stored anywhere, and the same text again is the same."""
        environment = Environment()
        for text in (value, again):
            kept, _ = environment.note(Fact("server", subject, text), 0)
            if kept is not None:
                assert (kept.subject + kept.value).isprintable()
                assert len(kept.subject) <= 128
                assert len(kept.value) <= 200
            assert environment.note(Fact("server", subject, text), 1) == (None, None)


class TestPipeline:
    def test_a_fact_is_stored_with_its_time_and_its_change_told_once(self, watched: Watched) -> None:
        """Also after a restart of the daemon, which tells everything again."""
        watched.take(driver("580.1"), SECOND)
        watched.turn(10 * SECOND)
        watched.take(driver("590.2"), 11 * SECOND)
        watched.turn(20 * SECOND)
        watched.start()
        watched.take(driver("590.2"), 31 * SECOND)
        watched.turn(40 * SECOND)
        (fact,) = watched.rows(models.FactRow)
        assert (fact.target, fact.subject, fact.value) == (NODE, "driver", "590.2")
        assert fact.since_ns == WALL_NS + 11 * SECOND
        assert events(watched) == [(NODE, "environment", "driver", "580.1", "590.2")]

    def test_a_change_while_the_daemon_was_down_is_seen(self, watched: Watched) -> None:
        watched.take(driver("580.1"), SECOND)
        watched.stop(10 * SECOND)
        watched.start()
        watched.take(driver("590.2"), 31 * SECOND)
        watched.turn(40 * SECOND)
        assert events(watched) == [(NODE, "environment", "driver", "580.1", "590.2")]

    def test_a_change_that_was_not_written_is_found_again(self, watched: Watched) -> None:
        """Fact and event are one transaction."""
        watched.take(driver("580.1"), SECOND)
        watched.turn(10 * SECOND)
        watched.lag = 1
        watched.take(driver("590.2"), 11 * SECOND)
        watched.turn(20 * SECOND)
        watched.start()
        watched.take(driver("590.2"), 31 * SECOND)
        watched.turn(40 * SECOND)
        assert events(watched) == [(NODE, "environment", "driver", "580.1", "590.2")]

    def test_what_happens_is_an_event(self, watched: Watched) -> None:
        """Two different errors of one second are two."""
        for detail in ("XID 79: GPU has fallen off the bus", "XID 154: GPU recovery action changed"):
            watched.take(Happening(NODE, "xid", "gpu0", detail, WALL_NS), SECOND)
        watched.turn(10 * SECOND)
        rows = watched.rows(models.ChangeEventRow)
        assert [Event(row.at_ns, row.kind, row.subject, row.before, row.after).text for row in rows] == [
            "gpu0: XID 79: GPU has fallen off the bus",
            "gpu0: XID 154: GPU recovery action changed",
        ]

    def test_a_run_has_its_environment_and_keeps_it_when_the_next_begins(self, watched: Watched) -> None:
        watched.take(driver("580.1"), 0)
        Replay(watched, server(5, seed=1)).run()
        watched.take(driver("590.2"), 60 * SECOND)
        second_start(watched, server(5, seed=1), 60 * SECOND).run()
        assert [run.environment for run in watched.history.runs()] == [{"driver": "580.1"}, {"driver": "590.2"}]

    def test_the_software_of_a_server_is_of_its_environment(self, watched: Watched) -> None:
        """Changed by its restart, not by the daemon that reads the rings of both starts again."""
        rings = [
            ring_identity(
                f"1-{number}-9", parent_start_ticks=number, wall_ns=WALL_NS + number, software={"torch": version}
            )
            for number, version in ((1, "2.8.0"), (2, "2.14.1"))
        ]
        for _ in range(2):
            for ring in (*rings, rings[0]):
                watched.take(batch(cycles(5), ring), SECOND)
                watched.turn(10 * SECOND)
            watched.stop(20 * SECOND)
            watched.start()
        assert events(watched) == [
            ("server", "restart", "server", "", ""),
            ("server", "environment", "torch", "2.8.0", "2.14.1"),
        ]
        assert [run.environment for run in watched.history.runs()] == [{"torch": "2.8.0"}, {"torch": "2.14.1"}]

    def test_a_server_without_a_ring_has_an_environment(self, watched: Watched) -> None:
        watched.take(driver("580.1"), 0)
        watched.take(ServerIdentity("chat", "http://x", "0.5.4", "m", {}), SECOND)
        watched.turn(30 * SECOND)
        assert [run.environment for run in watched.history.runs()] == [{"driver": "580.1"}]


def test_a_slowdown_after_a_new_driver_is_found_and_the_driver_named(watched: Watched) -> None:
    """Half an hour of maintenance lies in between; the baseline is the one from before."""
    windows = list(server(80, seed=2, slower={34: 1.2}))
    watched.take(driver("580.1"), 0)
    replay = Replay(watched, windows[:34])
    replay.run(34 * 5 * SECOND + 10 * SECOND)
    watched.stop(replay.at_ns)
    watched.start()
    watched.take(driver("590.2"), 600 * SECOND)
    second_start(watched, windows[34:], 1800 * SECOND).run()
    (found,) = watched.history.regressions()
    assert found.effect == pytest.approx(0.2, rel=0.25)
    assert "driver changed from 580.1 to 590.2" in [cause["subject"] for cause in found.causes]
