"""GPM: two samples, the window between them, and instances that come and go."""

from typing import Any

import pytest

from cyclewatch.collectors.gpu.door import Code, Handle
from cyclewatch.collectors.gpu.gpm import WINDOW_MAX_NS
from cyclewatch.collectors.gpu.recording import RecordedDoor
from nvml_lab import SECOND, lab, recording


class CountingDoor(RecordedDoor):
    """Knows which buffers are out."""

    def __init__(self, name: str, **answers: list[Any]) -> None:
        recorded = recording(name)
        recorded.answers |= {f"gpu0 {call}": answer for call, answer in answers.items()}
        super().__init__(recorded)
        self.buffers: list[Handle] = []

    def gpm_buffer(self) -> Handle:
        self.buffers.append(super().gpm_buffer())
        return self.buffers[-1]

    def gpm_free(self, buffer: Handle) -> None:
        self.buffers = [one for one in self.buffers if one is not buffer]


def test_the_first_sample_gives_nothing() -> None:
    with lab("h200") as one:
        assert not one.turn().turn().values("gpu.sm_ratio")
        assert one.turn().value("gpu.sm_ratio") == pytest.approx(0.935)


@pytest.mark.parametrize(("after_s", "count"), [(0.05, 0), (0.15, 1), (WINDOW_MAX_NS / SECOND + 1, 0)])
def test_a_window_is_neither_too_short_nor_too_long(after_s: float, count: int) -> None:
    """After one that was too long it begins anew; one that is too short goes on."""
    with lab("h200") as one:
        one.turn().turn().turn(after_s)
        assert len(one.values("gpu.sm_ratio")) == count
        assert one.turn().values("gpu.sm_ratio")


def test_buffers_are_swapped_and_given_back() -> None:
    door = CountingDoor("h200")
    with lab(door) as one:
        for _ in range(6):
            one.turn()
        assert len(door.buffers) == 2
    assert door.buffers == []


def test_mig_instances_have_buffers_of_their_own() -> None:
    """The GPU's own two, which are refused a sample, and two an instance."""
    door = CountingDoor("h100-mig")
    with lab(door) as one:
        for _ in range(3):
            one.turn()
        assert len(door.buffers) == 2 + 2 * 2
        assert len(one.values("gpu.sm_ratio")) == 2
        assert one.values("gpu.sm_ratio", mig="1") + one.values("gpu.sm_ratio", mig="2") == [0.88, 0.12]
    assert door.buffers == []


@pytest.mark.parametrize(
    ("answer", "slices"),
    [(1, 2), (0, 0), ({"error": int(Code.TIMEOUT)}, 2), ({"error": int(Code.NOT_SUPPORTED)}, 0)],
    ids=["on", "off", "no answer", "refused"],
)
def test_mig_instances_stay_until_mig_is_off(answer: int | dict[str, int], slices: int) -> None:
    """Whether it is, is asked with the facts, too: the first two answers are those of the first turn."""
    door = CountingDoor("h100-mig", mig_mode=[1, 1, answer])
    with lab(door) as one:
        for _ in range(5):
            one.turn()
        assert len(one.values("gpu.sm_ratio")) == 2
        one.turn().turn()
        assert len(door.buffers) == 2 + 2 * slices
        assert len(one.values("gpu.sm_ratio", mig="1")) == bool(slices)


def test_a_mig_instance_made_anew_begins_anew() -> None:
    """Another slice under the same number: the sample of the one before must not be compared with its own."""
    with lab("h100-mig") as one:
        for _ in range(5):
            one.turn()
        assert one.values("gpu.sm_ratio", mig="2")
        one.turn()  # sampled once more, then the slices are looked at, and one has another UUID
        one.turn()
        assert one.values("gpu.sm_ratio", mig="1")
        assert not one.values("gpu.sm_ratio", mig="2")
        assert one.turn().values("gpu.sm_ratio", mig="2")


def test_without_gpm_traffic_comes_from_counters() -> None:
    with lab("a100") as one:
        for _ in range(6):
            one.turn()
        assert one.value("gpu.nvlink_sent_bytes_per_s") == 1_000_000 * 1024 / 10
        assert not one.values("gpu.sm_ratio")
