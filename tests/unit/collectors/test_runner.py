import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Failure, NoData, Reading, Sample
from cyclewatch.collectors.runner import Outcome, Runner

READING = Reading("server", "fake.busy_ratio", 1.0)


class FakeCollector:
    """Gives what a test wants; `closed` counts."""

    name = "fake"
    interval_s = 1.0
    quantities = (Quantity("fake.busy_ratio", "A ratio.", "nowhere", "fake.interval_s", ("rank",)),)

    def __init__(self, give: Callable[[Now], Iterable[Sample]]) -> None:
        self.collect = give
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Bench:
    """A runner with a hand-moved clock, and everything that came out of it."""

    def __init__(self, give: Callable[[Now], Iterable[Sample]]) -> None:
        self.now_ns = 0
        self.taken: list[Sample] = []
        self.outcomes: list[Outcome] = []
        self.collector = FakeCollector(give)
        self.runner = Runner(self.collector, self.now, self.taken.append, self.outcomes.append)

    def now(self) -> Now:
        return Now(self.now_ns, self.now_ns)

    def run(self) -> Outcome:
        assert self.runner.run()
        return self.outcomes[-1]


def test_samples_are_handed_on_and_counted() -> None:
    """Failures and absences are no samples: they are part of the outcome."""
    bench = Bench(lambda _: [READING, NoData("nothing there"), READING, Failure("x", "x: broken")])
    outcome = bench.run()
    assert bench.taken == [READING, READING]
    assert outcome == Outcome("fake", 0.0, 2, ("x: broken",), "nothing there")


@pytest.mark.parametrize("reading", [Reading("server", "fake.other", 1.0), replace(READING, labels=(("core", "3"),))])
def test_a_reading_that_was_not_declared_is_a_failure(reading: Reading) -> None:
    """Or /metrics could not tell its labels, nor docs/metrics.md what it is."""
    bench = Bench(lambda _: [reading, READING])
    (failure,) = bench.run().failures
    assert reading.name in failure
    assert bench.taken == [READING]


def test_no_data_alone_is_no_failure() -> None:
    """A source that has nothing to say works."""
    outcome = Bench(lambda _: [NoData("nothing there")]).run()
    assert (outcome.samples, outcome.failures, outcome.no_data) == (0, (), "nothing there")


def test_an_exception_stays_inside_and_is_reported_with_its_traceback() -> None:
    """What had been collected before it counts."""

    def give(_: Now) -> Iterable[Sample]:
        yield READING
        raise RuntimeError("the disk is gone")

    bench = Bench(give)
    outcome = bench.run()
    assert bench.taken == [READING]
    assert outcome.failures == ("RuntimeError: the disk is gone",)
    assert outcome.error is not None
    assert outcome.error.__traceback__ is not None


def test_after_an_exception_the_next_run_works() -> None:
    """The runner is free again."""
    answers = iter([ValueError("once"), None])

    def give(_: Now) -> Iterable[Sample]:
        if (error := next(answers)) is not None:
            raise error
        return [READING]

    bench = Bench(give)
    assert bench.run().failures
    assert bench.run().failures == ()


def test_the_duration_is_that_of_the_collection() -> None:
    def give(_: Now) -> Iterable[Sample]:
        bench.now_ns += 250_000_000
        return []

    bench = Bench(give)
    assert bench.run().duration_s == pytest.approx(0.25)


def test_a_run_during_a_run_is_refused() -> None:
    """And the first is not disturbed."""
    refused: list[bool] = []

    def give(_: Now) -> Iterable[Sample]:
        refused.append(bench.runner.run())
        return [READING]

    bench = Bench(give)
    bench.run()
    assert refused == [False]
    assert bench.taken == [READING]


def test_overdue_only_while_a_run_is_past_its_deadline() -> None:
    """Before, within, beyond, after."""
    seen: list[bool] = []

    def give(_: Now) -> Iterable[Sample]:
        for step_s in (0.0, bench.runner.deadline_s - 0.1, 0.2):
            bench.now_ns += int(step_s * 1e9)
            seen.append(bench.runner.overdue())
        return []

    bench = Bench(give)
    assert not bench.runner.overdue()
    bench.run()
    assert seen == [False, False, True]
    assert not bench.runner.overdue()


def test_closing_waits_for_the_run_under_way_and_lets_no_other_begin() -> None:
    """A collector's files must not be closed under its hands."""
    inside, leave = threading.Event(), threading.Event()
    closed_inside: list[int] = []

    def give(_: Now) -> Iterable[Sample]:
        inside.set()
        leave.wait(5)
        closed_inside.append(bench.collector.closed)
        return []

    bench = Bench(give)
    thread = threading.Thread(target=bench.runner.run)
    thread.start()
    inside.wait(5)
    assert not bench.runner.close(0.01)
    leave.set()
    assert bench.runner.close(5)
    thread.join()
    assert closed_inside == [0]
    assert bench.collector.closed == 1
    assert not bench.runner.run()
