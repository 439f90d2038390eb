"""What the pipeline and the sampler tell each other, and that profiled cycles are kept out of detection."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cyclewatch.collectors.records import CycleFlag, RecordKind, RingCounters
from cyclewatch.daemon.profiling.board import KEEP_NS, Board, Stretch
from cyclewatch.daemon.store import models
from cyclewatch.detectors.costs.profile_cost import profile_cost
from simulated import cycles, server
from units import RUN
from watched import SECOND, Replay, Watched, batch, ring_identity

RING = ring_identity()


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def flagged(board: Board, records: np.ndarray) -> list[bool]:
    return [bool(flag & CycleFlag.PROFILED) for flag in board.take(RING, RUN, records)["flags"]]


def test_cycles_are_marked_from_the_beginning_to_the_end_of_a_profile() -> None:
    """Also those of which it touched a part; what was read stays as it was."""
    board = Board()
    records = cycles(10)
    records["end_ns"], records["cycle_ns"] = np.arange(1, 11) * SECOND, SECOND
    assert not any(flagged(board, records))
    stretch = board.begin(RUN.target, int(3.5 * SECOND))
    assert flagged(board, records) == [False] * 3 + [True] * 7
    board.end(stretch, int(5.5 * SECOND))
    assert flagged(board, records) == [False] * 3 + [True] * 3 + [False] * 4
    assert not records["flags"].any()


def test_only_the_server_that_is_profiled_is_marked() -> None:
    board = Board()
    board.begin("another", 0)
    assert not any(flagged(board, cycles(10)))


def test_what_was_profiled_before_a_restart_is_marked_again() -> None:
    records = cycles(10)
    records["end_ns"] = np.arange(1, 11) * SECOND
    assert sum(flagged(Board((Stretch(RUN.target, 3 * SECOND, 5 * SECOND),)), records)) == 2


def test_the_latest_state_of_a_rank_is_known() -> None:
    board = Board()
    records = cycles(10)
    records["queue_length"] = np.arange(10)
    records["kind"][9] = RecordKind.GARBAGE_COLLECTION
    board.take(RING, RUN, records)
    board.judged(RING.key, 50, settled=True, suspected=True)
    board.judged(RING.key, 60, settled=False, suspected=False)
    board.judged("unknown", 60, settled=True, suspected=True)
    (view,) = board.ranks()
    assert (view.queue, view.settled, view.suspected_ns) == (8, True, 50)
    assert view.last_cycle_ns == records["end_ns"][8]
    board.take(RING, RUN, records[:0])
    board.forget(RING.key)
    assert board.ranks() == ()
    assert not len(board.records(RING.key))


def test_a_server_that_stands_still_since_a_stretch_is_known() -> None:
    """By its loop, which turns while it is idle, too: from the last turn to the last look."""
    board = Board()
    board.heard(RING.key, 1, 1)
    board.take(RING, RUN, cycles(10))
    for turned_s, looked_s, silent_s in ((0, 0, 0), (42, 80, 38), (43, 80, 37), (44, 80, 0), (39, 80, 41), (30, 80, 0)):
        board.heard(RING.key, turned_s * SECOND, looked_s * SECOND)
        assert board.silent_ns(RING.key, 40 * SECOND, 43 * SECOND) == silent_s * SECOND
    board.heard(RING.key, 42 * SECOND, 43 * SECOND)
    assert board.silent_ns(RING.key, 40 * SECOND, 43 * SECOND) == 0  # nobody has looked since
    assert board.silent_ns("unknown", 40 * SECOND, 43 * SECOND) == 0


@pytest.mark.parametrize(("changes", "turned_ns"), [({}, 5), ({"paused": 1}, 0), ({"disabled": 1}, 0)])
def test_the_board_hears_of_the_loop_of_a_server(watched: Watched, changes: dict[str, int], turned_ns: int) -> None:
    """Not while it is paused, or its hook has been switched off: then silence says nothing."""
    counters = RingCounters(heartbeat_ns=5, **changes)
    watched.take(batch(cycles(3), counters=counters, complete_ns=6), 10 * SECOND)
    (view,) = watched.board.ranks()
    assert view.turned_ns == turned_ns


def test_only_the_last_minutes_are_kept() -> None:
    board = Board()
    for second in range(0, 600, 10):
        records = cycles(5)
        records["end_ns"] = second * SECOND + np.arange(5)
        board.take(RING, RUN, records)
    kept = board.records(RING.key)
    assert kept["end_ns"].min() >= 590 * SECOND - KEEP_NS
    assert kept.dtype.itemsize < 32


def test_a_profile_in_the_midst_of_traffic_raises_nothing_and_is_priced(watched: Watched) -> None:
    """Cycles three times as long while it lasts: no window holds them, detection is silent, the cost is known."""
    replay = Replay(watched, server(60, seed=2))
    replay.run(200 * SECOND)
    stretch = watched.board.begin("server", 201 * SECOND)
    slow = (replay.records["end_ns"] > 201 * SECOND) & (replay.records["end_ns"] <= 213 * SECOND)
    replay.records["cycle_ns"][slow] *= np.uint64(3)
    replay.run(213 * SECOND)
    watched.board.end(stretch, 213 * SECOND)
    replay.run()
    assert watched.history.regressions(all_directions=True) == []
    longest = {row.start_ns: row.max_ns for row in watched.rows(models.WindowRow)}
    assert max(longest.values()) < 3 * np.median(list(longest.values()))
    cost = profile_cost(watched.board.records(replay.ring.key), 201 * SECOND, 213 * SECOND)
    assert cost.during_ratio == pytest.approx(3, rel=0.1)
    assert cost.after_ratio == pytest.approx(1, rel=0.05)


def test_the_board_hears_of_the_baseline(watched: Watched) -> None:
    replay = Replay(watched, server(40, seed=2))
    replay.run(50 * SECOND)
    (view,) = watched.board.ranks()
    assert not view.settled
    replay.run()
    (view,) = watched.board.ranks()
    assert view.settled
    watched.take(batch(cycles(0), replay.ring, alive=False, next_sequence=replay.next_sequence), 10**12)
    watched.turn(10**12)
    assert watched.board.ranks() == ()


def test_both_sides_at_once() -> None:
    """No exception, and nothing is marked that no profile touched."""
    board, stopping, errors = Board(), threading.Event(), []

    def profile() -> None:
        while not stopping.is_set():
            board.end(board.begin("other", 0), 1)
            board.records(RING.key)
            board.ranks()

    thread = threading.Thread(target=profile)
    thread.start()
    for _ in range(300):
        errors += flagged(board, cycles(20))
    stopping.set()
    thread.join()
    assert not any(errors)
