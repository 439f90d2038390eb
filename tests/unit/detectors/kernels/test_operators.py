import pytest

from cyclewatch.collectors.profiles.records import KernelKind, KernelUse
from cyclewatch.config.catalogues import operators
from cyclewatch.detectors.kernels.families import classify
from cyclewatch.detectors.kernels.operators import operator_shares
from shared_data import kernel_table


def use(name: str, total_ns: int, calls: int = 1, kind: KernelKind = KernelKind.KERNEL) -> KernelUse:
    return KernelUse(name, kind, "0", "", calls, total_ns, None, None, None, None, truncated=False)


USES = [
    use("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)", 200, 4),
    use("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", 50, 1),
    use("void flashinfer::norm::RMSNormKernel<(unsigned int)8, __nv_bfloat16>(T1 *)", 50, 1),
    use("fused_moe_kernel", 300, 2),
    use("nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT", 400),
    use("Memcpy DtoD (Device -> Device)", 10_000, kind=KernelKind.MEMCPY),
]


def test_shares_are_of_all_kernel_time() -> None:
    moe, norm = operator_shares(USES)
    assert (moe.operator, moe.share, moe.total_ns, moe.calls) == ("fused_moe", 0.3, 300, 2)
    assert (norm.operator, norm.share, norm.calls) == ("rms_norm", 0.3, 6)


def test_two_spellings_are_one_kernel() -> None:
    assert operator_shares(USES)[1].kernels == 2


def test_the_importance_in_production_stands_beside() -> None:
    assert [one.importance for one in operator_shares(USES)] == [0.114, 0.028]


@pytest.mark.parametrize("uses", [[], [use("nvjet_tst_8x8_8x1_1x1_h_TNT", 0)], [use("fused_moe_kernel", 0)]])
def test_profiles_without_time_have_no_shares(uses: list[KernelUse]) -> None:
    assert sum(one.share for one in operator_shares(uses)) == 0


def test_a_real_table() -> None:
    """The first seed table: decode and prefill of a dense model with FlashAttention 3."""
    table = kernel_table("000")
    shares = operator_shares(use(one.name, int(one.total_ns), one.calls) for one in table)
    for one in shares:
        print(f"{one.operator}: {one.share:.2%} here, {one.importance:.1%} in production")
    assert shares[0].operator == "unified_attention"
    assert round(shares[0].share, 3) == 0.068


SEEN = """
unified_attention: kernel_unified_attention_2d
fused_moe: fused_moe_kernel
block_scaled_mm: _w8a8_block_fp8_matmul
fp8_blockscale_fused_moe: void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, (deep_gemm::GemmType)1>(float*)
paged_attention_decode: void vllm::paged_attention_v2_kernel<__nv_bfloat16, 128>(float*)
reshape_and_cache: void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(__nv_bfloat16 const*)
topk_filter: void flashinfer::sampling::TopKMaskLogitsKernel<1024u>(float*)
gated_delta_rule_update: fused_sigmoid_gating_delta_rule_update_kernel
fused_qkv_rope: void rtp_llm::add_fusedQKV_bias_transpose_kernel<__nv_bfloat16>(float*)
rms_norm: void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)
mla_decode_attention: void flash::flash_fwd_splitkv_mla_kernel<T>(Params)
attention_forward: void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Params)
causal_conv1d: _causal_conv1d_update_kernel
moe_topk_gating_softmax: void topkGatingSoftmax<float, 8, 128, 4>(float const*)
fused_qk_rmsnorm: void rtp_llm::fusedQkRmsNormKernel<__nv_bfloat16>(float*)
silu_and_mul: void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu<float>>(T1 *)
chunk_gated_delta_rule_state: chunk_gated_delta_rule_fwd_kernel_h_blockdim64
fused_add_rms_norm: void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)
moe_align_block_size: void moe_align_block_size_kernel<int>(int const*)
mrope: _triton_mrope_forward
chunk_delta_rule_output: chunk_fwd_kernel_o
fp8_dynamic_per_token_quant: void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>(float*)
linear_sigmoid_mul: _linear_sigmoid_mul_kernel
per_token_group_quant_fp8: void per_token_group_quant_8bit_kernel<__nv_bfloat16>(void const*)
gated_rms_norm: _layer_norm_fwd_1pass_kernel
l2_norm: l2norm_fwd_kernel
moe_count_and_sort: void count_and_sort_expert_tokens_kernel<int>(int const*)
fused_rmsnorm_quant: void vllm::rms_norm_dynamic_per_token_quant_kernel<c10::BFloat16>(void*)
moe_sum_reduce: _moe_sum_reduce_kernel
layer_norm: void at::native::vectorized_layer_norm_kernel<float, float>(int)
"""


@pytest.mark.parametrize("line", SEEN.strip().splitlines())
def test_each_operator_has_kernels(line: str) -> None:
    operator, _, name = line.partition(": ")
    assert classify(name).operator == operator


def test_none_is_forgotten() -> None:
    assert [line.partition(":")[0] for line in SEEN.strip().splitlines()] == list(operators())
