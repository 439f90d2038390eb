"""From cycles to a message: the real pipeline, its store, and passes over it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import Alerts
from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import Message, State
from cyclewatch.daemon.alerts.text import text_of
from cyclewatch.daemon.incidents.service import IncidentService
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.incidents import IncidentStore
from simulated import WINDOW_NS, server
from watched import SECOND, WALL_NS, Replay, Watched, batch, ring_identity


class Passes:
    """Passes over the store of a daemon, at the time that it has come to."""

    def __init__(self, watched: Watched) -> None:
        self._now_ns = 0
        self._service = IncidentService(Incidents(), Alerts(), watched.engine, "node:1", Metrics(), self)

    def now(self) -> Now:
        return Now(self._now_ns, WALL_NS + self._now_ns)

    def real_seconds(self, seconds: float) -> float:
        return seconds

    def make(self, from_ns: int, seconds: float) -> list[Message]:
        """Passes every five seconds from an instant on; what they told."""
        told = []
        for later_s in np.arange(0, seconds, 5):
            self._now_ns = from_ns + int(later_s * SECOND)
            told += self._service.look()
        return told


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def updated(watched: Watched) -> Replay:
    """A server that is updated, and 15 % slower from then on."""
    before = Replay(watched, server(60, seed=1))
    before.run()
    watched.take(batch(before.records[:0], before.ring, alive=False, next_sequence=before.next_sequence), before.at_ns)
    watched.turn(before.at_ns)
    began_ns = (before.at_ns + 30 * SECOND) // WINDOW_NS * WINDOW_NS
    ring = ring_identity("1-101-7", parent_start_ticks=6, wall_ns=WALL_NS + began_ns - SECOND, sglang_version="0.5.24")
    windows = list(server(60, seed=2, slower={0: 1.15}))
    for _, records in windows:
        records["end_ns"] += np.uint64(began_ns)
    after = Replay(watched, windows, ring)
    after.at_ns = began_ns
    after.run()
    watched.stop(after.at_ns)
    return after


def test_what_an_update_has_slowed_is_told_with_the_update(watched: Watched) -> None:
    (message,) = Passes(watched).make(updated(watched).at_ns, 60)
    assert message.state is State.OPENED
    assert message.change == "SGLang 0.5.23 to 0.5.24"
    assert "right after SGLang 0.5.23 to 0.5.24" in str(text_of(message).lines[2])


def test_what_an_announced_update_has_slowed_is_its_effect(watched: Watched) -> None:
    store = IncidentStore(watched.engine)
    store.expect("serv*", WALL_NS + 300 * SECOND, WALL_NS + 600 * SECOND, "ada", "SGLang 0.5.24", WALL_NS)
    (message,) = Passes(watched).make(updated(watched).at_ns, 60)
    assert (message.state, message.by) == (State.EXPECTED, "ada (SGLang 0.5.24)")
    assert store.incidents() == []


def test_a_slowdown_and_its_end_are_two_messages(watched: Watched) -> None:
    replay, passes = Replay(watched, server(160, seed=5, slower={40: 1.2, 80: 1.0})), Passes(watched)
    told = []
    while replay.at_ns < replay.end_ns:
        replay.run(replay.at_ns + 10 * SECOND)
        told += passes.make(replay.at_ns, 5)
    watched.stop(replay.at_ns)
    told += passes.make(replay.at_ns, 3600)
    assert [one.state for one in told] == [State.OPENED, State.RESOLVED]
    assert told[0].effect == pytest.approx(0.2, abs=0.05)
    assert told[1].at_ns == pytest.approx(WALL_NS + 80 * WINDOW_NS, abs=10 * SECOND)
