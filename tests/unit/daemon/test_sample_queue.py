import threading

import pytest
from prometheus_client import CollectorRegistry, Counter

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.records import Reading
from cyclewatch.daemon.sample_queue import SampleQueue
from simulated import cycles
from watched import batch

NOW = Now(1, 2)


class Queued:
    """A queue with room for two, and what it counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.stopping = threading.Event()
        dropped = Counter("dropped", "for want of room", registry=self.registry)
        self.queue = SampleQueue(lambda: NOW, self.stopping, dropped, capacity=2)

    @property
    def dropped(self) -> float | None:
        return self.registry.get_sample_value("dropped_total")


@pytest.fixture(name="queued")
def _queued() -> Queued:
    return Queued()


def reading(name: str) -> Reading:
    return Reading("server", name, 1.0)


def test_samples_come_out_in_order_with_their_moment(queued: Queued) -> None:
    queued.queue.put(reading("a"))
    queued.queue.put(reading("b"))
    assert queued.queue.waiting == 2
    assert list(queued.queue.take()) == [(reading("a"), NOW), (reading("b"), NOW)]
    assert list(queued.queue.take()) == []


def test_what_finds_no_room_is_dropped_and_counted(queued: Queued) -> None:
    """Memory is not the place to wait."""
    for name in "abcde":
        queued.queue.put(reading(name))
    assert queued.dropped == 3
    assert [sample for sample, _ in queued.queue.take()] == [reading("a"), reading("b")]


def test_cycles_wait_for_room(queued: Queued) -> None:
    """They are still in the ring: the reader has only to read it later."""
    records = batch(cycles(3))
    queued.queue.put(reading("a"))
    queued.queue.put(reading("b"))
    waiting = threading.Thread(target=queued.queue.put, args=(records,))
    waiting.start()
    taken = queued.queue.take()
    assert next(taken) == (reading("a"), NOW)
    waiting.join(60)
    assert not waiting.is_alive()
    assert [sample for sample, _ in taken] == [reading("b"), records]
    assert queued.dropped == 0


def test_cycles_do_not_wait_for_an_end(queued: Queued) -> None:
    """Nobody takes anything any more; what is still in the ring is read by the next daemon."""
    queued.queue.put(reading("a"))
    queued.queue.put(reading("b"))
    queued.stopping.set()
    queued.queue.put(batch(cycles(3)))
    assert queued.dropped == 1
