"""XID errors are happenings of the node, whoever waits for them."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cyclewatch.collectors.gpu.connection import LOST_AGAIN_NS
from cyclewatch.collectors.gpu.door import NO_INSTANCE, XID, Code, Event, Handle, NvmlError
from cyclewatch.collectors.gpu.events import PENDING_MAX
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.collectors.gpu.xids import meaning
from cyclewatch.collectors.records import NODE, Happening
from nvml_lab import SECOND, Lab, lab, recording


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


class FailingDoor(RecordedDoor):
    """One GPU that has the XIDs that the test says, and whose SM clock hangs or fails as it says."""

    def __init__(self) -> None:
        super().__init__(recording("h200"))
        self.let_go = threading.Event()
        self.let_go.set()
        self.code: int | None = None
        self._xids: queue.Queue[int] = queue.Queue()
        self._given = False

    def xid(self, number: int) -> None:
        """Let it happen, and wait until the collector has heard of it."""
        self._xids.put(number)
        self._xids.join()

    def event_wait(self, events: Handle, timeout_ms: int) -> Event | None:
        if self._given:  # whoever waits again has noted the one before
            self._given = False
            self._xids.task_done()
        try:
            number = self._xids.get(timeout=timeout_ms / 1000)
        except queue.Empty:
            return None
        self._given = True
        return Event("gpu0", XID, number, NO_INSTANCE)

    def _play(self, place: Handle | None, call: str) -> Any:
        if f"{place} {call}" == "gpu0 sm_clock":
            assert self.let_go.wait(60)
            if self.code is not None:
                raise NvmlError(self.code)
        return super()._play(place, call)


def test_an_xid_is_told_while_the_call_that_it_explains_hangs() -> None:
    """On the only GPU, of which the call then returns."""
    door = FailingDoor()
    with lab(door, deadline_s=0.05) as one:
        one.turn()
        door.let_go.clear()
        told = one.turn().happenings()
        door.xid(119)
        assert one.turn().outcome.failures
        told += one.happenings()
        assert [xid.detail for xid in told] == [meaning(119)]
        door.let_go.set()
        while one.turn(0).outcome.failures:
            assert not one.happenings()


def test_an_xid_in_the_turn_in_which_a_call_returns_at_last_is_told() -> None:
    """Nobody hears what that turn has to tell."""
    door = FailingDoor()
    with lab(door, deadline_s=0.05) as one:
        one.turn()
        door.let_go.clear()
        one.turn()
        told = one.turn().happenings()
        door.xid(119)
        door.let_go.set()
        while one.turn(0).outcome.failures:
            told += one.happenings()
        told += one.happenings()
        assert [xid.detail for xid in told] == [meaning(119)]


def test_an_xid_in_the_turn_in_which_the_driver_goes_is_told() -> None:
    door = FailingDoor()
    with lab(door) as one:
        one.turn()
        door.xid(79)
        door.code = Code.UNINITIALIZED
        assert [xid.detail for xid in one.turn().happenings()] == [meaning(79)]


def test_an_xid_between_the_loss_of_a_gpu_and_the_new_initialisation_is_told() -> None:
    """NVML is initialised anew in the very next turn where the last time is long ago."""
    door = FailingDoor()
    with lab(door) as one:
        one.turn().turn(LOST_AGAIN_NS / SECOND)
        door.code = Code.GPU_IS_LOST
        assert one.turn().outcome.failures
        door.xid(154)
        assert [xid.detail for xid in one.turn().happenings()] == [meaning(154)]
