"""A stored profile becomes what the comparison takes."""

import pytest

from cyclewatch.daemon.store.kernel_profile import kernel_profile
from cyclewatch.detectors.kernels.comparison import Unit, Verdict, compare_profiles
from units import KERNEL, profile

TOTALS = {
    "kernel_ns": 30,
    "calls": 3,
    "distinct": 1,
    "busy_ns": 28,
    "span_ns": 60,
    "idle_ns": 32,
    "copying_ns": 0,
    "waiting_for_host_ns": None,
    "between_kernels_ns": None,
    "device": "NVIDIA H200",
    "steps": 0,
    "recorded_at_ns": 100,
    "duration_ms": 500,
    "cycles": {"decode": 8, "decode_beside_extend": 2, "extend": 1},
}


def test_a_stored_profile_has_its_kernels_totals_device_and_cycles() -> None:
    given = kernel_profile(profile(totals=TOTALS, warnings=("rounded",)))
    (use,) = given.kernels
    assert (use.name, use.calls, use.total_ns, use.std_ns) == (KERNEL.name, 3, 30, 1.0)
    assert (given.totals.busy_ns, given.totals.span_ns, given.totals.waiting_for_host_ns) == (28, 60, None)
    assert (given.device, given.rank, given.warnings) == ("NVIDIA H200", "tp0", ("rounded",))
    assert given.cycles == {"decode": 10, "extend": 1}


def test_a_stored_profile_whose_kernels_were_given_up_is_compared_too() -> None:
    empty = kernel_profile(profile(kernels=None, totals={}))
    assert empty.kernels == ()
    assert compare_profiles(empty, empty).kernels == ()


def test_stored_profiles_are_compared_by_cycle() -> None:
    one = kernel_profile(profile(totals=TOTALS))
    comparison = compare_profiles(one, one)
    assert comparison.unit is Unit.CYCLE
    assert [change.verdict for change in comparison.kernels] == [Verdict.SAME]
    assert sum(part.before_us for part in comparison.parts) * 1e3 == pytest.approx(60 / 11)
