"""What was replaced by what."""

import numpy as np

from cyclewatch.collectors.profiles.records import KernelKind, Profile
from cyclewatch.detectors.kernels.comparison import Substitution, compare_profiles
from cyclewatch.detectors.kernels.families import Family
from made_profiles import DECODER, LAYERS, STEPS, decoder, of_uses, use

GEMM = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"
SLOWER = "cutlass_80_tensorop_bf16_s16816gemm_bf16_32x32_128x2_tn"
SPLIT = "nvjet_tst_64x8_64x16_1x4_h_bz_splitK_TNT"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, false>(int)"


def decoder_with(seed: int, without: str, *more: tuple[str, float, int]) -> Profile:
    """A decoder in which other kernels (name, time of a call, calls a layer) stand for one."""
    draw = np.random.default_rng(seed)
    kernels = {name: time_ns for name, time_ns in DECODER.items() if name != without}
    added = [
        use(name, time_ns * np.exp(0.03 * draw.standard_normal(LAYERS * STEPS * each))) for name, time_ns, each in more
    ]
    return of_uses([*decoder(draw, kernels=kernels).kernels, *added])


def substituted(after: Profile) -> tuple[Substitution, ...]:
    return compare_profiles(decoder(np.random.default_rng(1)), after).substitutions


def test_a_product_by_another_kernel_is_a_substitution() -> None:
    (found,) = substituted(decoder_with(2, GEMM, (SLOWER, 90_000.0, 1)))
    assert (found.family, found.phase) == (Family.GEMM, "decode")
    assert found.before == (GEMM,)
    assert found.after == (SLOWER,)
    assert found.delta_ns > 0
    assert found.after_ns / found.before_ns > 2


def test_a_norm_of_another_library_is_a_substitution() -> None:
    norm = next(name for name in DECODER if "RMSNorm" in name)
    after = decoder_with(
        2, norm, ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", 6_000.0, 1)
    )
    (found,) = substituted(after)
    assert found.family is Family.NORM
    assert (found.before_library, found.after_library) == ("flashinfer", "vllm")


def test_a_product_that_is_split_now_counts_with_its_reduction() -> None:
    (found,) = substituted(decoder_with(2, GEMM, (SPLIT, 30_000.0, 1), (REDUCE, 4_000.0, 1)))
    assert found.after[0] == SPLIT
    assert "splitKreduce_kernel" in found.after
    assert abs(found.after_ns / (LAYERS * 34_000) - 1) < 0.02


def test_part_of_the_calls_by_another_kernel_is_a_substitution() -> None:
    draw = np.random.default_rng(2)
    half = use(GEMM, DECODER[GEMM] * np.ones(LAYERS * STEPS // 2))
    other = use(SLOWER, 90_000.0 * np.ones(LAYERS * STEPS // 2))
    kernels = {name: time_ns for name, time_ns in DECODER.items() if name != GEMM}
    (found,) = substituted(of_uses([*decoder(draw, kernels=kernels).kernels, half, other]))
    assert (found.before, found.after) == ((GEMM,), (SLOWER,))
    assert abs(found.before_ns / (LAYERS / 2 * DECODER[GEMM]) - 1) < 0.02


def test_one_by_two_that_share_its_calls_is_a_substitution() -> None:
    after = decoder_with(2, GEMM)
    halves = [use(name, 50_000.0 * np.ones(LAYERS * STEPS // 2)) for name in (SLOWER, SLOWER.replace("32x32", "64x64"))]
    (found,) = substituted(of_uses([*after.kernels, *halves]))
    assert len(found.after) == 2


def test_what_is_called_otherwise_is_none() -> None:
    assert substituted(decoder_with(2, GEMM, (SLOWER, 90_000.0, 5))) == ()


def test_operators_of_a_cpu_are_not_paired_by_chance() -> None:
    def operators(*names: str) -> Profile:
        times = np.full(STEPS, 1e5)
        return of_uses([use(name, times, kind=KernelKind.CPU_OP) for name in ("aten::mm", "aten::mul", *names)])

    both = compare_profiles(operators("aten::add", "aten::exp"), operators("aten::sin", "aten::cos"))
    assert both.substitutions == ()
