"""Comparing two kernel profiles whose difference is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import (
    Flaw,
    FlawKind,
    Graph,
    GraphKernel,
    KernelKind,
    KernelUse,
    Profile,
    ProfileFormat,
    Totals,
)
from cyclewatch.detectors.kernels.comparison import ProfileComparison, Unit, Verdict, compare_profiles
from cyclewatch.detectors.kernels.families import Family
from made_profiles import DECODER, LAYERS, STEPS, as_table, decoder, of_uses, use
from profile_files import kernel, launch, mark, trace, write

FIRST = next(iter(DECODER))
MIRRORED = {
    Verdict.SLOWER: Verdict.FASTER,
    Verdict.FASTER: Verdict.SLOWER,
    Verdict.MORE_CALLS: Verdict.FEWER_CALLS,
    Verdict.FEWER_CALLS: Verdict.MORE_CALLS,
    Verdict.NEW: Verdict.GONE,
    Verdict.GONE: Verdict.NEW,
    Verdict.SAME: Verdict.SAME,
}


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def flagged(comparison: ProfileComparison) -> dict[str, Verdict]:
    """What is said of the kernels that are not the same, by short name."""
    return {change.short: change.verdict for change in comparison.kernels if change.verdict is not Verdict.SAME}


def parts(comparison: ProfileComparison) -> dict[str, tuple[float, float]]:
    return {part.part: (part.before_us, part.after_us) for part in comparison.parts}


def test_a_profile_and_itself_are_the_same() -> None:
    one = decoder(rng())
    comparison = compare_profiles(one, one)
    assert comparison.comparable
    assert not comparison.reasons
    assert comparison.unit is Unit.STEP
    assert flagged(comparison) == {}
    assert comparison.substitutions == ()
    assert comparison.uniform is None
    assert len(comparison.kernels) == len(DECODER)


def test_one_kernel_slower_by_five_percent_is_the_only_one_named() -> None:
    comparison = compare_profiles(decoder(rng(1)), decoder(rng(2), factors={FIRST: 1.05}))
    assert flagged(comparison) == {FIRST: Verdict.SLOWER}
    first = comparison.kernels[0]
    assert first.name == FIRST
    assert first.effect == pytest.approx(0.05, abs=0.01)
    assert first.p_value is not None
    assert first.p_value < 1e-4
    assert first.delta_ns == pytest.approx(LAYERS * 42_000 * 0.05, rel=0.15)
    assert first.before is not None
    assert first.before.calls == LAYERS


def test_a_step_is_slower_and_no_kernel_is() -> None:
    comparison = compare_profiles(decoder(rng(1)), decoder(rng(2), idle_ns=1_500_000))
    assert flagged(comparison) == {}
    assert not comparison.may_be_noise
    (phase,) = comparison.phases
    assert phase.after_ns / phase.before_ns > 1.4
    assert phase.p_value is not None
    assert phase.p_value < 1e-6
    waiting = parts(comparison)["waiting_for_host"]
    assert list(waiting) == pytest.approx([80, 1200])
    largest = max(comparison.parts, key=lambda part: part.delta_us)
    assert largest.part == "waiting_for_host"


def test_more_calls_of_one_kernel_are_told_with_what_they_take() -> None:
    rotary = next(name for name in DECODER if "Rotary" in name)
    after = decoder(rng(2))
    times = DECODER[rotary] * np.ones(LAYERS * STEPS * 2)
    uses = [*(one for one in after.kernels if one.name != rotary), use(rotary, times)]
    comparison = compare_profiles(decoder(rng(1)), of_uses(uses))
    assert list(flagged(comparison).values()) == [Verdict.MORE_CALLS]
    assert comparison.kernels[0].delta_ns == pytest.approx(LAYERS * DECODER[rotary], rel=0.02)
    assert comparison.comparable


def test_a_new_kernel_is_new_and_nothing_is_substituted() -> None:
    after = decoder(rng(2))
    copies = use("void at::native::index_copy_kernel<int>(int)", 9_000 * np.ones(LAYERS * STEPS))
    comparison = compare_profiles(decoder(rng(1)), of_uses([*after.kernels, copies]))
    assert list(flagged(comparison).values()) == [Verdict.NEW]
    assert comparison.substitutions == ()
    assert comparison.kernels[0].before is None


def test_all_kernels_slower_by_one_factor_are_one_finding() -> None:
    comparison = compare_profiles(decoder(rng(1)), decoder(rng(2), factors=dict.fromkeys(DECODER, 1.18)))
    assert comparison.uniform is not None
    assert comparison.uniform.factor == pytest.approx(1.18, abs=0.01)
    assert comparison.uniform.low <= comparison.uniform.factor <= comparison.uniform.high
    assert comparison.uniform.kernels == len(DECODER)
    assert set(flagged(comparison).values()) == {Verdict.SLOWER}


def test_other_hardware_is_refused_and_compared_by_family() -> None:
    after = decoder(rng(2), factors=dict.fromkeys(DECODER, 3.0), device="NVIDIA A100")
    comparison = compare_profiles(decoder(rng(1)), after)
    assert not comparison.comparable
    assert comparison.reasons == ("they are of different hardware: NVIDIA H200 before, NVIDIA A100 after",)
    assert comparison.uniform is None
    gemm = next(change for change in comparison.families if change.family is Family.GEMM)
    assert gemm.after_ns / gemm.before_ns == pytest.approx(3, rel=0.02)


def test_another_number_of_ranks_layers_or_requests_is_refused() -> None:
    one = decoder(rng(1))
    assert "on 1 ranks before and on 2" in compare_profiles(one, replace(one, world_size=2)).reasons[0]
    assert "1.33 times as often a step" in compare_profiles(one, decoder(rng(2), layers=32)).reasons[0]
    busy = replace(one, steps=tuple(replace(step, batch_size=64) for step in one.steps))
    assert compare_profiles(one, busy).reasons == (
        "decode steps hold 32 tokens or requests before and 64 after: another load",
    )


def test_another_model_is_refused() -> None:
    other = {f"void at::native::vectorized_elementwise_kernel<{at}>(int)": 2_000.0 for at in range(30)}
    comparison = compare_profiles(decoder(rng(1)), decoder(rng(2), kernels=other))
    assert "another model, or other software" in comparison.reasons[0]


def test_a_cpu_and_a_gpu_are_refused() -> None:
    on_cpu = of_uses([use("aten::mm", 1_000 * np.ones(10), kind=KernelKind.CPU_OP)])
    assert compare_profiles(decoder(rng()), on_cpu).reasons[0] == (
        "the profile after is of a CPU, the other one of a GPU"
    )


def test_operators_of_a_cpu_are_compared_too() -> None:
    def operators(seed: int, factor: float) -> Profile:
        draw = rng(seed)
        times = {"aten::linear": 500_000 * factor, "aten::add": 20_000, "aten::softmax": 60_000, "aten::mul": 9_000}
        uses = [
            use(name, time_ns * np.exp(0.05 * draw.standard_normal(STEPS * LAYERS)), kind=KernelKind.CPU_OP)
            for name, time_ns in times.items()
        ]
        return of_uses(uses, totals=Totals(0, 0, 0, busy_ns=0))

    comparison = compare_profiles(operators(1, 1.0), operators(2, 1.2))
    assert comparison.comparable
    assert flagged(comparison) == {"aten::linear": Verdict.SLOWER}
    assert {family.family for family in comparison.families} == {Family.CPU_OP}


def test_phases_are_compared_apart() -> None:
    def both(seed: int, factor: float) -> Profile:
        draw = rng(seed)
        decode = decoder(draw)
        extend = decoder(draw, kernels={name: 10 * time for name, time in DECODER.items()}, factors={FIRST: factor})
        moved = [
            replace(one, phase="extend", start_ns=one.start_ns + 10**9, end_ns=one.end_ns + 10**9)
            for one in extend.steps
        ]
        uses = [*decode.kernels, *(replace(one, phase="extend") for one in extend.kernels)]
        return replace(of_uses(uses), steps=(*decode.steps, *moved))

    comparison = compare_profiles(both(1, 1.0), both(2, 1.3))
    assert [(one.phase, one.verdict) for one in comparison.kernels if one.verdict is not Verdict.SAME] == [
        ("extend", Verdict.SLOWER)
    ]
    assert [phase.phase for phase in comparison.phases] == ["extend", "decode"]
    assert {part.part for part in comparison.parts} >= {"gemm", "attention", "gpu_idle"}


def test_a_phase_of_another_load_is_left_out_of_the_comparison() -> None:
    def both(tokens: int) -> Profile:
        one = decoder(rng(tokens))
        slow = [replace(use, phase="extend", total_ns=use.total_ns * tokens) for use in one.kernels]
        extends = tuple(
            replace(
                step,
                phase="extend",
                name=f"step[EXTEND bs=32 toks={tokens}]",
                start_ns=step.start_ns + 10**10,
                end_ns=step.end_ns + 10**10,
            )
            for step in one.steps
        )
        return replace(of_uses([*one.kernels, *slow]), steps=(*one.steps, *extends))

    comparison = compare_profiles(both(100), both(300))
    assert comparison.comparable
    assert {kernel.phase for kernel in comparison.kernels} == {"decode"}
    assert [phase.phase for phase in comparison.phases] == ["decode"]
    assert comparison.warnings == (
        "extend steps hold 100 tokens or requests before and 300 after: another load, and left out",
    )


def captured(seed: int, extends: int, *, factor: float = 1.0) -> Profile:
    """A capture of 100 cycles as the daemon takes it; extends take ten times as long as decodes."""
    draw = rng(seed)
    size = np.where(np.arange(100) < extends, 10.0, 1.0).repeat(LAYERS)
    uses = [
        use(name, time_ns * factor * size * np.exp(0.03 * draw.standard_normal(len(size))), phase="")
        for name, time_ns in DECODER.items()
    ]
    one = of_uses(uses, steps=100)
    return replace(one, steps=(), cycles={"decode": 100 - extends, "extend": extends})


def test_more_prefills_in_a_capture_are_no_slower_kernels() -> None:
    comparison = compare_profiles(captured(1, 1), captured(2, 5))
    assert comparison.unit is Unit.CYCLE
    assert comparison.comparable
    assert Verdict.SLOWER not in flagged(comparison).values()
    assert comparison.uniform is None
    slower = compare_profiles(captured(1, 1), captured(2, 5, factor=1.2))
    assert set(flagged(slower).values()) == {Verdict.SLOWER}


def test_kernels_of_a_phase_that_one_capture_alone_held_are_not_new() -> None:
    after = captured(2, 4)
    prefill = use("nvjet_tst_256x128_64x4_2x1_v_bz_TNT", np.full(4 * LAYERS, 9e5), phase="")
    comparison = compare_profiles(captured(1, 0), replace(after, kernels=(*after.kernels, prefill)))
    assert comparison.comparable
    assert Verdict.NEW not in flagged(comparison).values()
    assert any("kernels of one profile alone are left out" in warning for warning in comparison.warnings)


def test_kernels_outside_of_steps_are_not_counted_by_step() -> None:
    def with_others(count: int) -> Profile:
        one = decoder(rng(count), steps=1)
        other = use("void at::native::index_copy_kernel<int>(int)", 9_000 * np.ones(count), phase="")
        return replace(one, kernels=(*one.kernels, other))

    assert flagged(compare_profiles(with_others(21), with_others(20))) == {}


def test_a_capture_of_other_phases_is_another_load() -> None:
    comparison = compare_profiles(captured(1, 5), captured(2, 40))
    assert comparison.reasons == ("35% of the cycles are of other phases than before: another load",)


def test_tables_are_compared_by_the_work_that_most_calls_show() -> None:
    comparison = compare_profiles(
        as_table(decoder(rng(1))), as_table(decoder(rng(2), steps=2 * STEPS, factors={FIRST: 1.1}))
    )
    assert comparison.unit is Unit.PROFILE
    assert "did 2 times the work" in comparison.warnings[0]
    assert flagged(comparison) == {FIRST: Verdict.SLOWER}
    assert "waiting_for_host" not in parts(comparison)


def test_cycles_are_the_unit_of_what_the_daemon_captured() -> None:
    def captured(seed: int, cycles: int) -> Profile:
        one = decoder(rng(seed), steps=cycles)
        uses = tuple(replace(kernel, phase="") for kernel in one.kernels)
        return replace(one, kernels=uses, steps=(), cycles={"decode": cycles})

    comparison = compare_profiles(captured(1, 20), captured(2, 21))
    assert comparison.unit is Unit.CYCLE
    assert flagged(comparison) == {}
    (phase,) = comparison.phases
    assert (phase.before_count, phase.after_count) == (20, 21)


def test_replays_of_a_graph_are_a_unit() -> None:
    def replayed(count: int) -> Profile:
        one = decoder(rng(count), steps=count)
        graph = Graph("", count, tuple(GraphKernel(use.name, use.kind, use.total_ns) for use in one.kernels))
        order = sorted(graph.kernels, key=lambda kernel: kernel.name)
        return replace(one, steps=(), graphs=(replace(graph, kernels=tuple(order)),))

    comparison = compare_profiles(replayed(10), replayed(30))
    assert comparison.unit is Unit.REPLAY
    assert flagged(comparison) == {}


def test_where_calls_have_no_ratio_in_common_all_is_by_second() -> None:
    counts = ((40, 40, 40, 40), (80, 20, 160, 10))
    one, other = (
        replace(of_uses([use(f"kernel_{at}", 1e3 * np.ones(n), phase="") for at, n in enumerate(side)]), steps=())
        for side in counts
    )
    assert compare_profiles(one, other).unit is Unit.SECOND


def test_flaws_of_a_profile_are_told() -> None:
    one = decoder(rng())
    broken = replace(one, flaws=(Flaw(FlawKind.DROPPED, "records were dropped"),))
    assert compare_profiles(one, broken).warnings == ("after: records were dropped",)


def test_empty_profiles_are_compared_without_a_word() -> None:
    empty = Profile(ProfileFormat.KINETO, (), Totals(0, 0, 0))
    for before, after in ((empty, empty), (empty, decoder(rng())), (decoder(rng()), empty)):
        comparison = compare_profiles(before, after)
        assert comparison.uniform is None
        assert comparison.substitutions == ()


def test_the_step_of_a_real_trace_is_split_by_what_the_gpu_waited_for(tmp_path: Path) -> None:
    def traced(name: str, late_us: float) -> Profile:
        """Three steps of two kernels; the second of each is launched late."""
        events = []
        for step in range(3):
            start = 1_000 * step
            events += [
                launch(10 * step + 1, start + 1, 2),
                launch(10 * step + 2, start + 20 + late_us - 4, 2),
                kernel("gemm_tn", start + 10, 10, 10 * step + 1),
                kernel("softmax_warp_forward", start + 20 + late_us, 5, 10 * step + 2),
                mark("step[DECODE bs=4]", start + 10, 15 + late_us, on_device=True, number=step + 1),
            ]
        return read_profile(write(tmp_path / name, trace(*events)))

    comparison = compare_profiles(traced("a.json", 5), traced("b.json", 105))
    assert comparison.unit is Unit.STEP
    assert flagged(comparison) == {}
    for side in (0, 1):
        whole = comparison.phases[0].before_ns if side == 0 else comparison.phases[0].after_ns
        assert sum(part[side] for part in parts(comparison).values()) == pytest.approx(whole / 1e3)
    assert parts(comparison)["gemm"] == (10, 10)


uses_of_any_kind = st.builds(
    KernelUse,
    name=st.sampled_from(
        ["a", "b<1>", "void gemm<8>()", "void gemm<(int)8>()", "ncclDevKernel_AllReduce", "fl...", ""]
    ),
    kind=st.sampled_from(KernelKind),
    device=st.sampled_from(["", "0", "1"]),
    phase=st.sampled_from(["", "decode", "extend"]),
    calls=st.integers(0, 10**6),
    total_ns=st.integers(0, 10**12),
    min_ns=st.none() | st.integers(0, 10**9),
    max_ns=st.none() | st.integers(0, 10**9),
    median_ns=st.none() | st.integers(0, 10**9),
    std_ns=st.none() | st.floats(0, 1e9),
    truncated=st.booleans(),
)
any_profile = st.builds(
    lambda uses, steps, idle_ns, cycles: of_uses(uses, steps=steps, idle_ns=idle_ns, cycles=cycles),
    st.lists(uses_of_any_kind, max_size=12),
    st.integers(0, 4),
    st.integers(0, 10**6),
    st.dictionaries(st.sampled_from(["decode", "extend"]), st.integers(0, 50), max_size=2),
)


@given(any_profile, any_profile)
def test_swapping_the_profiles_mirrors_what_is_said(before: Profile, after: Profile) -> None:
    one, other = compare_profiles(before, after), compare_profiles(after, before)
    assert one.comparable is other.comparable
    assert one.unit is other.unit
    assert {(kernel.key, kernel.phase, MIRRORED[kernel.verdict]) for kernel in one.kernels} == {
        (kernel.key, kernel.phase, kernel.verdict) for kernel in other.kernels
    }
    assert [set(found.before) for found in one.substitutions] == [set(found.after) for found in other.substitutions]


@given(any_profile, any_profile)
def test_the_parts_of_a_step_add_up_to_it(before: Profile, after: Profile) -> None:
    for phase in compare_profiles(before, after).phases:
        for whole_ns, times_us in (
            (phase.before_ns, [part.before_us for part in phase.parts]),
            (phase.after_ns, [part.after_us for part in phase.parts]),
        ):
            assert sum(times_us) * 1e3 == pytest.approx(whole_ns, rel=1e-6, abs=1e-3)
