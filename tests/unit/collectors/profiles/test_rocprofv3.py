import json
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import FlawKind, KernelKind, ProfileError, ProfileFormat
from profile_files import PID, Json, dispatch, rocprofv3, write


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Any:
    return lambda content: read_profile(write(tmp_path / "results", content))


RUN = (dispatch(1, 100, 200), dispatch(2, 150, 250), dispatch(1, 500, 900))


def test_dispatches_are_counted_by_name(read: Any) -> None:
    profile = read(rocprofv3(*RUN))
    assert profile.format is ProfileFormat.ROCPROFV3
    assert [(use.name, use.kind, use.device, use.calls, use.total_ns) for use in profile.kernels] == [
        ("gemm(float*)", KernelKind.KERNEL, "0", 2, 500),
        ("fill(float*)", KernelKind.KERNEL, "0", 1, 100),
        ("Memcpy HtoD", KernelKind.MEMCPY, "0", 1, 50),
    ]
    totals = profile.totals
    assert (totals.kernel_ns, totals.busy_ns, totals.span_ns, totals.copying_ns) == (600, 550, 800, 50)
    assert totals.waiting_for_host_ns is None
    assert (profile.device, profile.pids) == ("AMD Instinct MI300X", (PID,))
    assert profile.flaws == ()
    assert "secret" not in repr(profile)


def test_several_processes_are_read_together(read: Any) -> None:
    two = rocprofv3(*RUN)
    two["rocprofiler-sdk-tool"] += rocprofv3(*RUN, pid=7)["rocprofiler-sdk-tool"]
    assert read(two).totals.calls == 6
    assert read(two).pids == (7, PID)


def test_a_single_process_may_stand_without_a_list(read: Any) -> None:
    (process,) = rocprofv3(*RUN)["rocprofiler-sdk-tool"]
    assert read({"rocprofiler-sdk-tool": process}).totals.calls == 3


def test_dispatches_without_times_were_lost(read: Any) -> None:
    profile = read(rocprofv3(*RUN, dispatch(1, 0, 0)))
    assert profile.totals.calls == 3
    assert [flaw.kind for flaw in profile.flaws] == [FlawKind.DROPPED]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (rocprofv3(dispatch(1, 200, 100)), "negative duration"),
        (rocprofv3(dispatch(1, 10**19, 10**19)), "impossible time"),
        (rocprofv3(dispatch(1, -5, 10)), "impossible time"),
        ({"rocprofiler-sdk-tool": []}, "no dispatch of a kernel"),
        ({"rocprofiler-sdk-tool": 7}, "not as rocprofv3 writes it"),
        ({"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [{}]}}]}, "not as rocprofv3 writes it"),
        (json.dumps(rocprofv3(*RUN))[:-20], "cut off in the middle"),
        ('{"rocprofiler-sdk-tool": [{"agents": ' + "[" * 100_000, "not as rocprofv3 writes it"),
        ('{"rocprofiler-sdk-tool": [{"other": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_is_refused(read: Any, content: Json | str, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        read(content)
