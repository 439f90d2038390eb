import re
from collections import Counter

import pytest

from cyclewatch.config.catalogues import kernel_rules, operators
from cyclewatch.detectors.kernels.families import Family, classify
from shared_data import Use, kernel_table, profiles, seed

KNOWN = {
    "attention": """
        void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2>>>>(T)
        void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(flash::Flash_fwd_params)
        void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, ...
        void flash::flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64>>(Flash_fwd_mla_params)
        void sm90::flash_fwd_splitkv_mla_kernel<T>(Params)
        fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvDenseP32VarSeqQ8Kv128StaticSwapsAbForGen
        kernel_mha
        void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>(Params)
        void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(float*)
        void flashinfer::mla::BatchMLAPagedAttentionKernel<T>(Params)
        fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)
        cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0
        _fwd_grouped_kernel_stage1
        _fwd_kernel
        kernel_unified_attention_2d
        reduce_segments
        void vllm::paged_attention_v2_kernel<__nv_bfloat16, 128>(float*)
        paged_attention_ll4mi_QKV_mfma16_kernel
        _fwd_kernel_dense_prefill
        void flash_c128_online_prefill_v2<512l, float, false, true>(Compress128OnlinePrefillParams)
        kernel_cutlass_akk_inv_kernel_tensorptrbf16
        aiter::mla_a8w8_qh16_qseqlen1_gqaratio16
        _ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_3FooEEEEEvv
        attn_fwd.kd
        chunk_gated_delta_rule_fwd_kernel_h_blockdim64
        fused_recurrent_gated_delta_rule_fwd_kernel
        void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4>>(ConvParamsBase)
        _selective_scan_update_kernel
        void deep_gemm::sm90_fp8_paged_mqa_logits<32u, 64u>(unsigned int)
        void merge_attn_states_kernel<float, 128u>(float*)
        triton_tem_fused_flex_attention_0
    """,
    "gemm": """
        nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT
        void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)
        ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn
        sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
        void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)
        void gemv2T_kernel_val<int, int, float, 128, 16, 2, 2, false>(cublasGemvParams<float>)
        void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>>>(Params)
        void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 7168u, 1u, 128u, 128u, 128u>(float*)
        _w8a8_block_fp8_matmul
        void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8>(int4 const*)
        awq_gemm_kernel
        void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 1>(__half const*)
        _sgemm_lora_a_kernel
        _lora_shrink_kernel
        Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1
        void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<T>>(Argument)
        triton_tem_fused_mm_1
        igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_gkgs
        volta_scudnn_128x64_relu_small_nn_v1
        wvSplitK_hf_sml_
        void n128k512_kernel<8>(__nv_bfloat16 const*)
    """,
    "moe": """
        fused_moe_kernel
        void moe_align_block_size_kernel<int>(int const*)
        void count_and_sort_expert_tokens_kernel<int>(int const*)
        void topkGatingSoftmax<float, 8, 128, 4, 16, 32>(float const*)
        void moe_fused_gate_kernel<__nv_bfloat16>(void*)
        _moe_sum_reduce_kernel
        void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16>(float*)
        void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<__nv_bfloat16>(float*)
        bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_transOut_schPd4x1x2x3_sm100f
        void moe::dev::routing::routingDeepSeek::routingMainKernel<T>(Params)
        _matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu
        void ck_tile::kentry<1, ck_tile::MoeSortingKernel<T>>(Params)
        void aiter::fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256(Params)
        void marlin_moe_wna16::Marlin<__nv_bfloat16>(int4 const*)
        void align_single_token_kernel<8>(int const*)
        void lp_prep_kernel<float>(float*)
        _fwd_kernel_ep_scatter_2
        void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<X>>>(Params)
        void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 32u, 128u, (deep_gemm::GemmType)2>(float*)
    """,
    "communication": """
        ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
        void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(sglang::RankData*)
        void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<T>(Params)
        void quickreduce::allreduce_prototype_twoshot<T>(Params)
        void mscclpp::allreduce7<int>(int*)
        void deep_ep::intranode::dispatch<8, 768>(int4*)
        void deep_ep::internode_ll::combine<true, 7168>(void*)
        void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16>(T)
    """,
    "quantization": """
        void per_token_group_quant_8bit_kernel<__nv_bfloat16, __nv_fp8_e4m3>(void const*)
        _per_token_group_quant_fp8
        void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>(float*)
        void per_token_quant_fp8_kernel<__nv_bfloat16>(void*)
        void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>(int)
        void aiter::dynamic_per_group_scaled_quant_kernel<T>(T*)
        _fp8_rowwise_kernel
    """,
    "norm": """
        void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)
        void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)
        void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)
        void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)
        layer_norm_fwd_1pass_kernel
        l2norm_fwd_kernel
        void fused_qknorm_warp<128>(void*)
        _qk_ln_head_kernel
        _gn_finalize_kernel
        _ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib
    """,
    "rotary": """
        void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<false, 128u>(float*)
        void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)
        _triton_mrope_forward
        void aiter::kn_entry_2c_sbhd_cached_indirect_inplace<aiter::OpCachedFwd, 1, true, false, true, true>(float*)
        void aiter::kn_entry_1c_thd_uncached<aiter::OpUncachedFwd, 0, true, false, false>(float*)
    """,
    "kv_cache": """
        void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*)
        set_mla_kv_buffer_kernel
        void (anonymous namespace)::store_kvcache<2048l, 4, false, long>((anonymous namespace)::StoreKVCacheParams)
        void flashinfer::AppendPagedKVCacheKernel<128u, 8u>(Params)
        write_req_to_token_pool_triton
        alloc_extend_kernel
        _get_k_and_s_triton_kernel
        _store_nvfp4_kv_kernel
        alloc_bind_inplace_kernel
        void load_cache_to_device_buffer_kernel<256>(HisparseParams)
    """,
    "activation": """
        void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu<float>>(T1 *, const T1 *, int)
        void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>(c10::BFloat16*)
        void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(int)::{lambda()#1}>(int)
        _silu_and_mul_post_quant_kernel
        _bias_glu_kernel
    """,
    "sampling": """
        void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(float*)
        void flashinfer::sampling::TopPRenormProbKernel<1024u>(float*)
        VerifyTreeGreedy
        apply_token_bitmask_inplace_kernel
        void aiter::mix_sample_outer_exponential_kernel<__hip_bfloat16, 1024, 4, false>(__hip_bfloat16 const*)
        _build_out_tokens_kernel
    """,
    "embedding": """
        void at::native::(anonymous namespace)::embedding_backward_kernel<float>(long*)
        void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 2ul>(int)
    """,
    "elementwise": """
        void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul>>(int)
        triton_poi_fused_clamp_sub_0
        void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)
        fused_to_sub_sigmoid_sub_mul_sub
        _joint_qkv_cat_kernel
    """,
    "reduction": """
        void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)
        triton_red_fused__to_copy_mean_0
        triton_per_fused_sum_1
        void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, false, false>(float*)
    """,
    "index": """
        void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<int>>(long)
        void at::native::vectorized_gather_kernel<16, long>(char*)
        create_flashinfer_kv_indices_triton
        compute_position_kernel
        void plan_compress_prefill_kernel0<128>(PlanParams)
        _decode_cta_info_kernel
    """,
    "scan": """
        void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::DeviceScanPolicy<long>, long const*>(long*)
        void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(float*)
        void rocprim::ROCPRIM_400200_NS::detail::trampoline_kernel<rocprim::detail::wrapped_scan_config<long>>(int)
    """,
    "memcpy": "Memcpy DtoD (Device -> Device)\n[CUDA memcpy Host-to-Device]\n__amd_rocclr_copyBuffer",
    "memset": "Memset (Device)\n__amd_rocclr_fillBufferAligned",
    "other": "my_very_own_kernel\nfoo(int)",
}
"""Names as profilers print them, by the family that they belong to."""


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name.strip()) for family, names in KNOWN.items() for name in names.strip().splitlines()],
)
def test_kernels_have_their_family(family: str, name: str) -> None:
    assert classify(name).family == family


@pytest.mark.parametrize(
    ("kind", "family"), [("memcpy", "memcpy"), ("memset", "memset"), ("cpu_op", "cpu_op"), ("kernel", "gemm")]
)
def test_the_kind_comes_before_the_name(kind: str, family: str) -> None:
    assert classify("ampere_sgemm_128x64_nn", kind).family == family


SOURCES = {
    "ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_tn": "ATen/cuda/CUDABlas.cpp",
    "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu<float>>(int)": "flashinfer/jit/activation.py",
    "void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __nv_bfloat16>(int)": "include/flashinfer/norm.cuh",
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1>>(T2)": "attention/prefill.cuh",
    "void at::native::index_elementwise_kernel<128, 4, at::native::index_put_kernel_impl<1>>(long)": "IndexKernel.cu",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>>(int)": "CUDALoops.cuh",
    "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<long>>(int)": "CUDALoops.cuh",
    "void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(int)>(T1)": "RangeFactories.cu",
    "void at::native::<unnamed>::CatArrayBatchedCopy_alignedK_contig<float, int>(T1 *)": "Shape.cu",
}


@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_kernels_have_their_source(name: str, source: str) -> None:
    assert classify(name).source.endswith(source)


class TestLaunchGroups:
    def test_a_split_gemm_and_its_reduction_are_one_cublas_call(self) -> None:
        gemm = classify("nvjet_tst_128x128_64x6_2x1_v_bz_splitK_TNT")
        reduction = classify("void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(T1)")
        assert gemm.group == reduction.group != ""
        assert gemm.launch_api == reduction.launch_api == "cublasGemmEx"

    def test_a_gemm_that_is_not_split_is_alone(self) -> None:
        assert classify("nvjet_tst_128x128_64x6_2x1_v_bz_TNT").group == ""

    def test_the_kernels_of_flash_attention_3_are_one_call(self) -> None:
        names = (
            "void flash::prepare_varlen_num_blocks_kernel<(int)8, (bool)1>(int)",
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(T1::Params)",
            "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<(int)8>>>>(T1::Params)",
        )
        assert {classify(name).group for name in names} == {"flash_attn_with_kvcache"}
        assert {classify(name).launch_api for name in names} == {"flash_attn_with_kvcache"}


SHORT = {
    "nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT": "nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(T)": "FlashAttnFwdSm90",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)": (
        "vectorized_elementwise_kernel<FillFunctor>"
    ),
    "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)": "RMSNormKernel",
    "x" * 200: "x" * 59 + "…",
}


@pytest.mark.parametrize(("name", "short"), SHORT.items())
def test_short_names_are_for_people(name: str, short: str) -> None:
    assert classify(name).short == short


def test_a_cut_name_is_known_as_cut() -> None:
    identity = classify("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutla...")
    assert (identity.family, identity.truncated) == (Family.ATTENTION, True)


class TestRules:
    def test_every_rule_has_a_family_that_there_is(self) -> None:
        assert {rule.family for rule in kernel_rules()} <= set(Family)

    def test_every_rule_says_which_names_it_fits(self) -> None:
        assert all(rule.head or rule.contains or rule.pattern for rule in kernel_rules())

    def test_rules_are_in_lower_case(self) -> None:
        for rule in kernel_rules():
            for text in (*rule.head, *rule.contains, re.sub(r"\\[A-Z]", "", rule.pattern)):
                assert text == text.lower()

    def test_operators_are_in_the_catalogue(self) -> None:
        assert {rule.operator for rule in kernel_rules()} <= {"", *operators()}

    def test_no_rule_is_slow_on_a_name_that_was_made_for_it(self) -> None:
        """Words of a pattern with stars, repeated: a careless one tries every way to fit, which would take minutes."""
        stars = [rule.pattern for rule in kernel_rules() if re.search(r"[*+}]", rule.pattern)]
        words = {word for pattern in stars for word in re.findall(r"[a-z_0-9:]{3,}", pattern)}
        for word in sorted(words):
            for sign in ("", "_"):
                assert classify((word + sign) * 600).family in Family


def _shares(uses: list[Use]) -> dict[str, float]:
    """The part of kernel time by family, the largest first."""
    totals: Counter[str] = Counter()
    for use in uses:
        if use.kind == "kernel":
            totals[classify(use.name).family] += round(use.total_ns)
    whole = totals.total() or 1
    return {family: totals[family] / whole for family in sorted(Family, key=lambda family: -totals[family])}


class TestKernelTables:
    """The two kernel tables among the source documents, and what is known of them."""

    @pytest.mark.parametrize(
        ("number", "kernels", "calls", "total_ms", "gemm", "attention"),
        [("000", 201, 37_254, 2_222.02, 0.811, 0.068), ("002", 66, 21_937, 9_936.29, 0.900, 0.031)],
    )
    def test_totals(
        self, number: str, kernels: int, calls: int, total_ms: float, gemm: float, attention: float
    ) -> None:
        table = kernel_table(number)
        assert (len(table), sum(use.calls for use in table)) == (kernels, calls)
        assert sum(use.total_ns for use in table) / 1e6 == pytest.approx(total_ms, abs=0.01)
        shares = _shares(table)
        print(f"{number}: {', '.join(f'{family} {share:.2%}' for family, share in shares.items() if share)}")
        assert round(shares["gemm"], 3) == gemm
        assert round(shares["attention"], 3) == attention
        assert shares["other"] == 0

    def test_sources_are_those_that_the_second_table_notes(self) -> None:
        """Its notes stand before the percentage: the path of a file, sometimes below a folder of somebody's own."""
        noted = 0
        for line in seed("002").read_text().splitlines():
            found = re.match(r"(?:Rebuilt-PyTorch/)?([\w./-]+\.\w+)\s+[\d.]+%\t", line)
            if found:
                path = re.sub(r"^pytorch-v[\d.]+/", "pytorch/", found[1])
                assert classify(line.split("\t")[-1].strip()).source == path, line[:80]
                noted += 1
        assert noted >= 10


def test_little_of_the_shared_profiles_is_other() -> None:
    for file, uses in profiles().items():
        shares = _shares(uses)
        print(f"{file}: {', '.join(f'{one} {part:.2%}' for one, part in shares.items() if part or one == 'other')}")
        assert shares["other"] < 0.005, [use.name for use in uses if classify(use.name, use.kind).family == "other"]
