"""XID errors are happenings of the node, whoever waits for them."""

import time
from collections.abc import Callable

import pytest

from cyclewatch.collectors.gpu.door import Code, Event, Handle, NvmlError
from cyclewatch.collectors.gpu.events import PENDING_MAX
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.collectors.gpu.xids import meaning
from cyclewatch.collectors.records import NODE, Happening
from nvml_lab import Lab, lab, recording


def seen(one: Lab) -> list[Happening]:
    """The happenings, once there are some."""
    while not (happenings := one.turn(0).happenings()):
        time.sleep(0.001)
    return happenings


def test_an_xid_is_told_once() -> None:
    with lab("h200") as one:
        (xid,) = seen(one)
        assert (xid.target, xid.kind, xid.subject) == (NODE, "xid", "gpu0")
        assert xid.detail == "XID 31: memory page fault, mostly a fault of the application"
        assert xid.wall_ns > 1_700_000_000 * 10**9
        assert [one.turn().happenings() for _ in range(5)] == [[]] * 5


def test_an_xid_says_whose_it_is() -> None:
    answers = recording("lost-gpu")
    answers.events = [["gpu1", 8, 94, 3]]
    with lab(RecordedDoor(answers)) as one:
        (xid,) = seen(one)
        assert (xid.subject, xid.detail) == ("gpu1", "XID 94: contained memory error in MIG instance 3")


def test_an_unknown_xid_is_told_by_its_number() -> None:
    assert meaning(12345) == "XID 12345"


def test_a_storm_is_bounded() -> None:
    answers = recording("h200")
    answers.events = [["gpu0", 8, 31, 0xFFFFFFFF]] * (3 * PENDING_MAX)
    with lab(RecordedDoor(answers)) as one:
        assert len(seen(one)) <= PENDING_MAX


def test_other_events_are_left_out() -> None:
    answers = recording("h200")
    answers.events = [["gpu0", 4, 0, 0xFFFFFFFF], ["gpu0", 8, 79, 0xFFFFFFFF]]
    with lab(RecordedDoor(answers)) as one:
        assert [xid.detail for xid in seen(one)] == [meaning(79)]


class StrangeDoor(RecordedDoor):
    """Waits as the test says."""

    def __init__(self, wait: Callable[[], Event | None]) -> None:
        super().__init__(recording("h200"))
        self._wait = wait

    def event_wait(self, events: Handle, timeout_ms: int) -> Event | None:
        return self._wait()


@pytest.mark.parametrize("code", [Code.UNINITIALIZED, Code.GPU_IS_LOST, Code.UNKNOWN])
def test_a_wait_that_fails_stops_nothing_else(code: Code) -> None:
    def wait() -> Event | None:
        raise NvmlError(code)

    with lab(StrangeDoor(wait)) as one:
        for _ in range(3):
            one.turn()
            assert one.outcome.failures == ()
            assert one.values("gpu.sm_clock_hertz")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("system event_set", "XID errors cannot be watched: not supported (NVML 3)"),
        ("gpu0 event_register", "XID errors of 1 of 1 GPUs cannot be watched"),
    ],
)
def test_it_is_said_where_xids_cannot_be_watched(call: str, sentence: str) -> None:
    answers = recording("h200")
    answers.answers[call] = [{"error": 3}]
    with lab(RecordedDoor(answers)) as one:
        while not one.turn(0).outcome.no_data:
            pass
        assert one.outcome.no_data == sentence
        assert one.outcome.failures == ()
