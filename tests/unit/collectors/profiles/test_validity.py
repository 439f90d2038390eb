from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.profiles.flaws import validity
from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import FlawKind, Profile
from profile_files import PID, Json, kernel, launch, operator, trace, write

GOOD = tuple(
    event for at in range(1, 60) for event in (launch(at, 10 * at, 2), kernel(f"k{at % 3}", 10 * at + 5, 4, at))
)


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Any:
    def read(*events: Json, **head: Any) -> Profile:
        return read_profile(write(tmp_path / "trace", trace(*events, **head)))

    return read


def kinds(profile: Profile) -> set[FlawKind]:
    return {flaw.kind for flaw in profile.flaws}


def test_a_good_profile_is_evidence(read: Any) -> None:
    profile = read(*GOOD)
    assert validity(profile, expect_pid=PID) == ()
    assert profile.flaws == ()


def test_another_process_is_refused(read: Any) -> None:
    assert validity(read(*GOOD), expect_pid=1) == (f"a profile of process {PID}, not of 1",)


def test_a_profile_that_names_no_process_may_be_of_any(read: Any) -> None:
    assert validity(read(kernel("k", 1, 1)), expect_pid=1) == ()


def test_no_kernels_are_refused_with_what_became_of_them(read: Any) -> None:
    profile = read(operator("aten::mm", 0, 5), launch(1, 1, 2))
    (reason,) = validity(profile)
    assert reason == "no GPU kernel is recorded in it, although 1 launches are: the records of the GPU were lost"


def test_operators_stand_for_kernels_where_there_is_no_gpu(read: Any) -> None:
    assert validity(read(operator("aten::mm", 0, 5)), on_gpu=False) == ()
    assert validity(read(*GOOD), on_gpu=False) == ("no operator of the CPU in it",)


def test_lost_records_are_refused(read: Any) -> None:
    events = [event for event in GOOD if event["name"] != "k1" or event["cat"] != "kernel"]
    (reason,) = validity(read(*events))
    assert reason.startswith("20 of 59 launches have no kernel")


def test_launches_at_the_end_of_the_window_have_no_kernel_yet(read: Any) -> None:
    assert read(*GOOD, *(launch(at, 1000 + at, 1) for at in range(100, 200))).flaws == ()


def test_calls_that_launch_nothing_are_not_missed(read: Any) -> None:
    names = ("cudaEventQuery", "cudaFuncSetAttribute", "cudaLaunchHostFunc", "cudaStreamIsCapturing", "hipMalloc")
    assert read(*(launch(at, at, 1, name) for at, name in enumerate(names, 1000)), *GOOD).flaws == ()


@pytest.mark.parametrize("key", ["WARNING", "ERROR"])
def test_what_the_profiler_logged_counts(read: Any, key: str) -> None:
    profile = read(*GOOD, **{key: ["CUPTI buffers dropped 17 records of secret"]})
    assert kinds(profile) == {FlawKind.DROPPED}
    assert "secret" not in repr(profile)
    assert read(*GOOD, **{key: ["Processed 17 records"]}).flaws == ()


def test_a_kernel_before_its_launch_shows_differing_clocks(read: Any) -> None:
    late = [{**event, "ts": event["ts"] + 5000} if event["cat"] == "cuda_runtime" else event for event in GOOD]
    profile = read(*late)
    assert kinds(profile) == {FlawKind.CLOCK_JUMP}
    assert "up to 5 ms before they were launched" in validity(profile)[0]


def test_a_long_hole_shows_a_jump(read: Any) -> None:
    later = [{**event, "ts": event["ts"] + 3600e6, "args": {"device": 0, "correlation": 99}} for event in GOOD]
    profile = read(*GOOD, *later)
    assert kinds(profile) == {FlawKind.CLOCK_JUMP}
    assert "for 3600 s" in validity(profile)[0]
