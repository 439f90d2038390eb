"""Whatever NVML does, nothing leaves the collector as an exception, and what still works goes on."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cyclewatch.collectors.gpu.backoff import REST_MAX_NS
from cyclewatch.collectors.gpu.connection import LOST_AGAIN_NS, OPEN_AGAIN_NS
from cyclewatch.collectors.gpu.door import Answer, Code, Field, Handle, Memory, Number, NvmlError, Utilization
from cyclewatch.collectors.gpu.recording import RecordedDoor
from nvml_lab import SECOND, lab, recording

Result = TypeVar("Result")
CODES = [*range(1, 31), 999]
OF_THE_LIBRARY = {1, 9, 12, 17, 18}
WEIRD = (-1, 0, 1, 2**32 - 1, 2**63, 2**64 - 1, 2**70, -(2**70))
TURNS = 8


class FaultyDoor(RecordedDoor):
    """Plays three GPUs, of which some fail as `fault` decides: a call raises, or its numbers make no sense."""

    def __init__(self, fault: Callable[[str], int | None], weird: Callable[[str], bool] = lambda _: False) -> None:
        super().__init__(recording("h200"), copies=3)
        self._fault = fault
        self._weird = weird
        self._random = random.Random(1)

    def gpu_count(self) -> int:
        self._play(None, "gpu_count")
        return 3

    def gpu(self, index: int) -> Handle:
        self._play(f"gpu{index}", "name")
        return super().gpu(index)

    def _play(self, place: Handle | None, call: str) -> Any:
        code = self._fault(str(place))
        if code is not None:
            raise NvmlError(code)
        return super()._play(place, call)

    def _number(self, place: Handle | None, good: float) -> Any:
        return self._random.choice(WEIRD) if self._weird(str(place)) else good

    def number(self, gpu: Handle | None, query: Number) -> int:
        return int(self._number(gpu, super().number(gpu, query)))

    def fields(self, gpu: Handle, fields: Sequence[Field]) -> list[Answer]:
        answers = super().fields(gpu, fields)
        nonsense = (float("nan"), float("inf"), -float("inf"), *WEIRD)
        return [
            Answer(self._random.choice(nonsense) if self._weird(str(gpu)) else value, code) for value, code in answers
        ]

    def memory(self, gpu: Handle) -> Memory:
        total, used = super().memory(gpu)
        return Memory(self._number(gpu, total), self._number(gpu, used))

    def utilization(self, gpu: Handle) -> Utilization:
        busy, memory = super().utilization(gpu)
        return Utilization(self._number(gpu, busy), self._number(gpu, memory))


class Fault:
    """Raises random codes for some places with some probability, as long as it is on."""

    def __init__(self, seed: int, places: set[str], probability: float, codes: Sequence[int]) -> None:
        self._random = random.Random(seed)
        self._places = places
        self._probability = probability
        self._codes = codes
        self.on = True

    def __call__(self, place: str) -> int | None:
        hit = self.on and place.split(" ", maxsplit=1)[0] in self._places and self._random.random() < self._probability
        return self._random.choice(self._codes) if hit else None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), probability=st.sampled_from([0.02, 0.3, 1.0]))
def test_the_other_gpus_keep_reporting(seed: int, probability: float) -> None:
    """One GPU fails in every way that is its own."""
    fault = Fault(seed, {"gpu1"}, probability, sorted(set(CODES) - OF_THE_LIBRARY))
    with lab(FaultyDoor(fault)) as one:
        for _ in range(TURNS):
            one.turn()
            assert one.outcome.error is None
            assert len(one.values("gpu.sm_clock_hertz", gpu="0")) == len(one.values("gpu.sm_clock_hertz", gpu="2")) == 1
            assert not one.outcome.no_data


@example(seed=404, probability=0.002)  # the count of NVLinks, refused once
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), probability=st.sampled_from([0.002, 0.05, 1.0]))
def test_all_comes_back_when_the_cause_is_gone(seed: int, probability: float) -> None:
    """Any code at any call; a refusal is believed for an hour, a lost GPU is looked for after minutes."""
    fault = Fault(seed, {"gpu0", "gpu1", "gpu2", "None"}, probability, CODES)
    with lab(FaultyDoor(fault)) as one:
        for _ in range(TURNS):
            one.turn()
            assert one.outcome.error is None
        fault.on = False
        one.turn(3601).turn(3601)
        assert one.outcome.failures == ()
        for gpu in "012":
            assert one.value("gpu.sm_clock_hertz", gpu=gpu) > 0
            assert one.value("gpu.memory_used_bytes", gpu=gpu) > 0
            assert one.value("gpu.nvlink_links_active", gpu=gpu) == 18
        one.turn().turn()
        assert all(one.values("gpu.sm_ratio", gpu=gpu) for gpu in "012")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), probability=st.sampled_from([0.1, 1.0]))
def test_nonsense_is_no_reading(seed: int, probability: float) -> None:
    """Readings are numbers that can be true, whatever the driver says."""
    chance = random.Random(seed)
    door = FaultyDoor(lambda _: None, lambda place: place.startswith("gpu1") and chance.random() < probability)
    with lab(door) as one:
        for _ in range(TURNS):
            one.turn()
            assert one.outcome.error is None
            assert one.value("gpu.sm_clock_hertz", gpu="0") > 0
            for value in one.values("gpu.sm_clock_hertz", gpu="1"):
                assert 0 <= value <= 1e11
            for name in ("gpu.event_reason_ratio", "gpu.utilization_ratio", "gpu.memory_used_ratio", "gpu.sm_ratio"):
                assert all(0 <= value <= 1 for value in one.values(name))
            for name in ("gpu.power_watts", "gpu.mean_power_watts", "gpu.power_limit_watts"):
                assert all(0 <= value <= 10_000 for value in one.values(name))


class HangingDoor(RecordedDoor):
    """One call of one GPU does not return until it is let go. There are no XIDs, which would come when they come."""

    def __init__(self, call: str) -> None:
        answers = recording("h200")
        answers.events = []
        super().__init__(answers, copies=3)
        self._hangs = call
        self.let_go = threading.Event()
        self.hanging = threading.Event()

    def gpu_count(self) -> int:
        self._play(None, "gpu_count")
        return 3

    def _play(self, place: Handle | None, call: str) -> Any:
        if f"{place} {call}" == self._hangs:
            self.hanging.set()
            assert self.let_go.wait(60)
        return super()._play(place, call)


@pytest.fixture(name="door", params=["gpu1 sm_clock", "gpu1 memory", "gpu2 processes", "None gpu_count"])
def _door(request: pytest.FixtureRequest) -> Iterator[HangingDoor]:
    door = HangingDoor(request.param)
    yield door
    door.let_go.set()


def test_a_call_that_hangs_is_told_and_holds_nobody_up(door: HangingDoor) -> None:
    """The GPUs before it are told of; the next turns come back at once.

    All goes on once it returns, but for the call itself, which rests.
    """
    with lab(door, deadline_s=0.05) as one:
        one.turn()
        assert door.hanging.is_set()
        (failure,) = one.outcome.failures
        call = door._hangs.split(" ")[1]
        assert failure.startswith(f"NVML call {call} has not returned for 0.05 s: no GPU is read until it does")
        if door._hangs.startswith("gpu"):
            assert one.values("gpu.sm_clock_hertz", gpu="0")
        for _ in range(3):
            assert one.turn().outcome.failures == (failure,)
            assert not one.outcome.samples
        door.let_go.set()
        while one.turn(0).outcome.failures:
            pass
        rests = door._hangs == "gpu1 sm_clock"
        assert [len(one.values("gpu.sm_clock_hertz", gpu=gpu)) for gpu in "012"] == [1, 0 if rests else 1, 1]
        one.turn(REST_MAX_NS / SECOND)
        assert all(one.value("gpu.sm_clock_hertz", gpu=gpu) for gpu in "012")


def test_closing_does_not_wait_for_a_call_that_hangs(door: HangingDoor) -> None:
    """And what is begun anew works: the call is let go with the collector that made it."""
    with lab(door, deadline_s=0.05) as one:
        one.turn()
        one.collector.close()
        door.let_go.set()
        while one.turn(0).outcome.failures:
            pass
        assert one.value("gpu.sm_clock_hertz", gpu="1") > 0


def test_no_driver_is_no_failure() -> None:
    """One sentence, every time, and no attempt more than every half minute."""
    answers = recording("h200")
    answers.answers["system open"] = [{"error": Code.LIBRARY_NOT_FOUND}]
    door = RecordedDoor(answers)
    with lab(door) as one:
        for _ in range(5):
            one.turn()
            assert (one.outcome.failures, one.outcome.no_data) == ((), "no NVIDIA driver here: there is no GPU to read")
        answers.answers["system open"] = [None]
        one.turn(OPEN_AGAIN_NS / SECOND)
        assert one.value("gpu.sm_clock_hertz") > 0


def test_a_driver_without_gpus_is_no_failure() -> None:
    answers = recording("h200")
    answers.answers["system gpu_count"] = [0]
    with lab(RecordedDoor(answers)) as one:
        assert one.turn().outcome.no_data == "the NVIDIA driver knows no GPU"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (Code.LIB_RM_VERSION_MISMATCH, "load the new one or restart the node, then this daemon"),
        (Code.NO_PERMISSION, "/dev/nvidiactl"),
        (Code.UNKNOWN, "NVML cannot be initialised: unknown (NVML 999)"),
    ],
)
def test_nvml_that_cannot_be_initialised_says_why(code: Code, sentence: str) -> None:
    answers = recording("h200")
    answers.answers["system open"] = [{"error": int(code)}]
    with lab(RecordedDoor(answers)) as one:
        (failure,) = one.turn().outcome.failures
        assert sentence in failure


def test_a_driver_reload_begins_a_new_session() -> None:
    """The driver is away for a while; its counters begin at zero, which gives no rate."""
    answers = recording("h200")
    answers.answers["gpu0 sm_clock"] = [1980, {"error": Code.UNINITIALIZED}, 1980]
    answers.answers["gpu0 field 83"] = [9 * 10**9, 10, 5 * 10**6]
    with lab(RecordedDoor(answers)) as one:
        one.turn().turn()
        assert one.outcome.failures == ("NVML does not answer any more: uninitialized (NVML 1)",)
        one.turn()
        assert one.outcome.failures
        one.turn(OPEN_AGAIN_NS / SECOND)
        assert not one.outcome.failures
        assert one.value("gpu.energy_joules") == 0.01
        assert not one.values("gpu.mean_power_watts")
        assert one.turn(10).value("gpu.mean_power_watts") == pytest.approx(500, rel=0.01)


def test_a_lost_gpu_is_looked_for_again() -> None:
    """It is told as lost, the other one goes on, and both are there once the node has it back."""
    door = RecordedDoor(recording("lost-gpu"))
    with lab(door) as one:
        for _ in range(6):
            one.turn()
        assert one.values("gpu.answering", gpu="1") == [0.0]
        assert "GPU 1 does not answer any more: gpu is lost" in one.outcome.failures[0]
        assert one.values("gpu.sm_clock_hertz", gpu="0")
        door._answers["gpu1 sm_clock"] = [1410]
        one.turn(LOST_AGAIN_NS / SECOND)
        assert one.outcome.failures == ()
        assert one.values("gpu.answering", gpu="1") == [1.0]


def test_a_gpu_that_is_lost_from_the_start_does_not_hide_the_others() -> None:
    answers = recording("lost-gpu")
    answers.answers["gpu1 handle"] = [{"error": Code.GPU_IS_LOST}]
    with lab(RecordedDoor(answers)) as one:
        one.turn()
        assert one.facts()["gpus"] == "2"
        assert one.values("gpu.answering", gpu="1") == [0.0]
        assert one.value("gpu.sm_clock_hertz", gpu="0") > 0


def test_closing_leaves_no_thread_behind() -> None:
    """However often NVML is opened anew."""
    before = threading.active_count()
    for _ in range(5):
        with lab("lost-gpu") as one:
            for _ in range(6):
                one.turn()
            one.turn(LOST_AGAIN_NS / SECOND)
    assert threading.active_count() == before
