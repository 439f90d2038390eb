import time

import pytest

from cyclewatch.detectors.kernels.families import classify
from cyclewatch.detectors.kernels.gemm import Gemm, describe
from cyclewatch.detectors.kernels.identity import normal_form

NAMES = {
    "nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT": Gemm("320x128x64", False, "bf16", "TNT"),
    "nvjet_tst_256x96_64x4_1x2_h_bz_coopA_splitK_TNT": Gemm("256x96x64", True, "bf16", "TNT"),
    "nvjet_hsh_64x8_64x16_1x2_h_bz_NNT": Gemm("64x8x64", False, "fp16", "NNT"),
    "nvjet_qqtst_128x128_128x6_1x2_h_bz_coopA_TNT": Gemm("128x128x128", False, "fp8_e4m3", "TNT"),
    "nvjet_sm100_tst_mma_64x8_64x16_1x2_h_bz_TNT": None,
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn": Gemm("128x64x64", None, "bf16", "TN"),
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn": Gemm("128x64", None, "bf16", "TN"),
    "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_nn": Gemm("64x64x64", None, "fp16", "NN"),
    "ampere_sgemm_32x32_sliced1x4_nt": Gemm("32x32", None, "fp32", "NT"),
    "volta_sgemm_128x64_tn": Gemm("128x64", None, "fp32", "TN"),
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)": Gemm(
        "16x16x128", None, "bf16", "TN"
    ),
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(int)": Gemm(
        "64x64x16", None, "fp32", "NT"
    ),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel": Gemm(
        "128x128x64", False, "bf16", "TN"
    ),
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1": Gemm(
        "256x192x64", None, "bf16", "TN"
    ),
    "Cijk_Ailk_Bljk_HHS_BH_MT128x64x32_MI32x32x1_GSU4_SN": Gemm("128x64x32", True, "fp16", "NN"),
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu": Gemm("16x128x256", False, "bf16xmxfp4", "NNT"),
    "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_gkgs": Gemm("128x64x32", True, "bf16", ""),
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
    "cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1>>>, "
    "cute::tuple<cute::C<128>, cute::C<256>, cute::C<64>>>>(Params)": Gemm("128x256x64"),
    "triton_tem_fused_mm_1": None,
    "": None,
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_names_tell_how_a_product_is_computed(name: str, expected: Gemm | None) -> None:
    assert describe(normal_form(name).key) == expected


@pytest.mark.parametrize(
    "name",
    [
        "sm90_" + "xmma_gemm_bf16bf16_" * 100 + "_nt_" * 500,
        "cutlass3x_sm90_tensorop_" * 60 + "_1x1x1_" * 350,
        "Cijk_Alik_Bljk_" * 270,
        "igemm_fwd_" + "_bf16_" * 400 + "bt1x1x" * 200,
        "nvjet_tst_1x1_1x1_1x" + "1" * 4000 + "-",
        "_a" + "1" * 4000,
    ],
)
def test_no_name_takes_long(name: str) -> None:
    """Prefixes that are repeated before gaps that are: each pair would be tried."""
    took_s = []
    for _ in range(5):
        began_s = time.perf_counter()
        assert describe(name) is None
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < 0.005


def test_the_identity_has_tile_and_split() -> None:
    identity = classify("nvjet_tst_96x64_64x10_2x1_v_bz_splitK_TNN")
    assert (identity.tile, identity.split_k) == ("96x64x64", True)


def test_what_is_no_product_has_no_tile() -> None:
    identity = classify("void flash::prepare_varlen_num_blocks_kernel<(int)8, (bool)1>(int)")
    assert (identity.tile, identity.split_k) == ("", None)
