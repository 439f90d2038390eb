"""The comparison on the pairs among the shared profiles, whose truth is known, and on changes made to them."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import KernelKind, KernelUse, Profile, ProfileFormat
from cyclewatch.detectors.kernels.comparison import ProfileComparison, Unit, Verdict, compare_profiles
from cyclewatch.detectors.kernels.families import Family
from shared_data import SHARED

RUN_A, RUN_B = "kineto-v100-resnet50-w4-runA.json.gz", "kineto-v100-resnet50-w4-runB.json.gz"

EXTEND = "sglang-mi300x-qwen3-8b-extend.json.gz"
PREFILL = "rtx5090-dsocr-prefill_cuda_gpu_kern_sum.csv"


@cache
def shared(name: str) -> Profile:
    path = SHARED / "data" / ("nsys" if name.endswith(".csv") else "traces") / name
    if not path.exists():
        pytest.skip(f"NOT RUN: no {path}")
    return read_profile(path)


def verdicts(comparison: ProfileComparison) -> Counter[Verdict]:
    return Counter(kernel.verdict for kernel in comparison.kernels)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("hta-control-a100", "hta-test-v100-graphs", "NVIDIA A100-PG509-200 before, Tesla V100-SXM2-16GB after"),
        (
            "hf-h100-qwen1.5-0.5b",
            "hf-mi300x-qwen1.5-0.5b",
            "NVIDIA H100 80GB HBM3 before, AMD Instinct MI300X VF after",
        ),
    ],
)
def test_other_hardware_is_no_baseline_and_is_compared_by_family(before: str, after: str, reason: str) -> None:
    comparison = compare_profiles(shared(f"{before}.json.gz"), shared(f"{after}.json.gz"))
    assert not comparison.comparable
    assert reason in comparison.reasons[0]
    gemm = next(one for one in comparison.families if one.family is Family.GEMM)
    assert gemm.before_ns > 0
    assert gemm.after_ns > 0
    assert comparison.substitutions == ()


@pytest.mark.parametrize(("before", "after"), [(RUN_A, RUN_B), (RUN_B, RUN_A)])
def test_two_runs_of_one_program_have_nothing_flagged(before: str, after: str) -> None:
    comparison = compare_profiles(shared(before), shared(after))
    assert comparison.comparable
    assert comparison.unit is Unit.STEP
    assert verdicts(comparison) == {Verdict.SAME: 64}
    assert comparison.uniform is None
    assert comparison.may_be_noise, "the host kept the GPU waiting longer in one run, in two of six steps"


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("name", [RUN_A, EXTEND, PREFILL])
def test_a_kernel_made_slower_by_five_percent_is_the_only_one_named(name: str, place: int) -> None:
    before = shared(name)
    slow = before.kernels[place]
    uses = [slower(one, 1.05) if one is slow else one for one in before.kernels]
    comparison = compare_profiles(before, replace(before, kernels=tuple(uses)))
    flagged = [one for one in comparison.kernels if one.verdict is not Verdict.SAME]
    assert [(one.name, one.verdict) for one in flagged] == [(slow.name, Verdict.SLOWER)]


def test_a_lower_clock_is_one_finding() -> None:
    after = shared(RUN_B)
    comparison = compare_profiles(
        shared(RUN_A), replace(after, kernels=tuple(slower(one, 1.08) for one in after.kernels))
    )
    assert comparison.uniform is not None
    assert comparison.uniform.factor == pytest.approx(1.08, abs=0.005)


def slower(use: KernelUse, factor: float) -> KernelUse:
    return replace(
        use,
        total_ns=int(use.total_ns * factor),
        min_ns=int((use.min_ns or 0) * factor),
        max_ns=int((use.max_ns or 0) * factor),
        median_ns=int((use.median_ns or 0) * factor),
        std_ns=(use.std_ns or 0.0) * factor,
    )


def test_the_same_kernels_as_a_table_of_another_tool_have_nothing_flagged() -> None:
    before = shared(EXTEND)
    totals = replace(before.totals, busy_ns=None, span_ns=None, idle_ns=None, waiting_for_host_ns=None)
    uses = tuple(
        replace(one, phase="", name=one.name.replace("true", "(bool)1").replace("const*", "const *"))
        for one in before.kernels
        if one.kind is KernelKind.KERNEL
    )
    table = replace(before, format=ProfileFormat.NSYS, kernels=uses, totals=totals, steps=(), graphs=(), device="")
    comparison = compare_profiles(before, table)
    assert comparison.comparable
    assert set(verdicts(comparison)) == {Verdict.SAME}
    assert any("copies and fills are left out" in warning for warning in comparison.warnings)


def test_the_same_kernels_with_cut_names_have_nothing_flagged() -> None:
    before = shared("hf-h100-qwen1.5-0.5b.json.gz")
    uses = tuple(
        replace(
            one,
            name=f"{one.name[:52]}..." if len(one.name) > 55 else one.name,
            min_ns=None,
            max_ns=None,
            median_ns=None,
            std_ns=None,
        )
        for one in before.kernels
    )
    comparison = compare_profiles(before, replace(before, format=ProfileFormat.TORCH_TABLE, kernels=uses, steps=()))
    assert set(verdicts(comparison)) == {Verdict.SAME}
    assert any(one.inferred for one in comparison.kernels)
    assert any("inferred from how they begin" in warning for warning in comparison.warnings)


def test_parts_of_one_model_are_not_taken_for_one_another() -> None:
    comparison = compare_profiles(shared(PREFILL), shared("rtx5090-dsocr-sam_cuda_gpu_kern_sum.csv"))
    assert not comparison.comparable
