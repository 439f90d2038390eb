import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Sample
from cyclewatch.collectors.runner import Runner
from cyclewatch.daemon.clock import Clock, ScaledClock, SystemClock
from cyclewatch.daemon.schedule import Schedule


class FakeCollector:
    """Calls what a test wants, at its interval."""

    def __init__(self, name: str, interval_s: float, action: Callable[[], object]) -> None:
        self.name = name
        self.interval_s = interval_s
        self._action = action

    quantities: tuple[Quantity, ...] = ()

    def collect(self, now: Now) -> Iterable[Sample]:
        self._action()
        return []

    def close(self) -> None:
        pass


class Running:
    """A schedule of some collectors, and what it told."""

    def __init__(self, collectors: list[FakeCollector], clock: Clock) -> None:
        self.runs: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.overdue: dict[str, bool] = {}
        runners = [
            Runner(one, clock.now, lambda _: None, lambda outcome: self.runs.update([outcome.collector]))
            for one in collectors
        ]
        self.schedule = Schedule(runners, clock, self._note_missed, self._note_overdue)

    def _note_missed(self, name: str, runs: int) -> None:
        self.missed[name] += runs

    def is_overdue(self, name: str) -> bool:
        """What a look tells."""
        self.schedule.look()
        return self.overdue[name]

    def _note_overdue(self, name: str, overdue: bool) -> None:
        self.overdue[name] = overdue


@contextmanager
def running(*collectors: FakeCollector, clock: Clock | None = None) -> Iterator[Running]:
    it = Running(list(collectors), clock or SystemClock())
    it.schedule.start()
    try:
        yield it
    finally:
        it.schedule.stop()


def wait_for(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_collector_runs_at_once_and_then_at_its_interval() -> None:
    """The first reading does not wait for the first interval to pass."""
    with running(FakeCollector("often", 0.05, int), FakeCollector("rarely", 100, int)) as it:
        wait_for(lambda: it.runs["rarely"] == 1 and it.runs["often"] >= 4)
    assert it.missed == {}


def test_a_hanging_collector_stops_no_other_and_its_missed_runs_are_counted() -> None:
    """It cannot be cancelled, only reported."""
    leave = threading.Event()
    try:
        with running(FakeCollector("hangs", 0.05, lambda: leave.wait(10)), FakeCollector("works", 0.05, int)) as it:
            wait_for(lambda: it.missed["hangs"] >= 3 and it.runs["works"] >= 5)
            assert it.runs["hangs"] == 0
            leave.set()
            wait_for(lambda: it.runs["hangs"] >= 2)
    finally:
        leave.set()


def test_runs_that_a_pause_leaves_out_are_counted() -> None:
    """What was due in it runs once."""
    with running(FakeCollector("often", 0.05, int)) as it:
        wait_for(lambda: it.runs["often"] >= 2)
        it.schedule.pause()
        time.sleep(0.5)
        it.schedule.resume()
        wait_for(lambda: it.missed["often"] >= 5)


def test_every_run_that_was_due_ran_or_was_counted_on_a_machine_that_is_too_slow() -> None:
    """A thousand are due in a second, and no more than two hundred can be made."""
    began_s = time.monotonic()
    with running(FakeCollector("slow", 0.001, lambda: time.sleep(0.005))) as it:

        def accounted() -> float:
            """Runs that are known of, as a part of those that have been due."""
            return (it.runs["slow"] + it.missed["slow"]) / ((time.monotonic() - began_s) / 0.001 + 1)

        wait_for(lambda: it.runs["slow"] >= 20 and accounted() > 0.8)
        assert accounted() <= 1


def test_a_clock_that_is_put_back_stops_nothing() -> None:
    """APScheduler would wait until it is as late as it was."""
    apart_ns = [0]
    runs: Counter[str] = Counter()
    clock = SystemClock()
    often = FakeCollector("often", 0.05, lambda: runs.update(["often"]))
    runner = Runner(often, clock.now, lambda _: None, lambda _: None)
    schedule = Schedule([runner], clock, lambda *_: None, lambda *_: None, lambda: apart_ns[0])
    schedule.start()
    try:
        wait_for(lambda: runs["often"] >= 2)
        for job in schedule._scheduler.get_jobs():  # as it is when an hour is taken from the clock
            job.modify(next_run_time=datetime.now(UTC) + timedelta(hours=1))
        time.sleep(0.1)
        runs.clear()
        schedule.look()
        time.sleep(0.2)
        assert not runs
        apart_ns[0] -= 3600 * 10**9
        schedule.look()
        wait_for(lambda: runs["often"] >= 3)
    finally:
        schedule.stop()


def test_stopping_does_not_wait_for_one_that_hangs() -> None:
    leave = threading.Event()
    inside = threading.Event()

    def hang() -> None:
        inside.set()
        leave.wait(10)

    with running(FakeCollector("hangs", 0.05, hang)) as it:
        inside.wait(5)
        began = time.monotonic()
        it.schedule.stop()
        assert time.monotonic() - began < 1
        it.schedule.start()
        leave.set()


def test_after_stopping_nothing_runs() -> None:
    with running(FakeCollector("often", 0.02, int)) as it:
        wait_for(lambda: it.runs["often"] >= 2)
    time.sleep(0.05)
    count = it.runs["often"]
    time.sleep(0.1)
    assert it.runs["often"] == count


def test_an_overdue_collector_is_told_and_no_longer_once_it_is_done() -> None:
    """On a clock that runs a hundred times as fast, so that the deadline of five seconds is short."""
    leave = threading.Event()
    clock = ScaledClock(Now(0, 0), time.monotonic_ns(), speed=100)
    try:
        with running(FakeCollector("hangs", 100, lambda: leave.wait(10)), clock=clock) as it:
            wait_for(lambda: it.is_overdue("hangs"))
            leave.set()
            wait_for(lambda: not it.is_overdue("hangs"))
    finally:
        leave.set()


def test_intervals_are_those_of_the_clock() -> None:
    """A faster clock collects more often."""
    clock = ScaledClock(Now(0, 0), time.monotonic_ns(), speed=50)
    with running(FakeCollector("x", 2.0, int), clock=clock) as it:
        wait_for(lambda: it.runs["x"] >= 5, seconds=3)
