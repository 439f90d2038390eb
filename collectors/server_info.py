"""What a server says it is: `/server_info`, of which only an allow-list is kept, since it carries API keys."""

import json
from collections.abc import Mapping
from typing import Any

from cyclewatch.collectors.fetch import public_url
from cyclewatch.collectors.records import ServerIdentity

SERVER_ARGUMENTS = (
    # Those that influence performance and where the server is found, in SGLang's names, which are not the same in all
    # versions; a dot leads into an argument that has parts. The plugin inside SGLang has the same list. Never a key, a
    # token, a password or a command line.
    *("host", "port", "model_path", "served_model_name", "revision", "tp_size", "pp_size", "dp_size", "ep_size"),
    *("nnodes", "node_rank", "device", "dtype", "quantization", "kv_cache_dtype", "context_length", "page_size"),
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "sampling_backend"),
    *("moe_runner_backend", "moe_a2a_backend", "disable_overlap_schedule", "disable_cuda_graph", "cuda_graph_max_bs"),
    *("cuda_graph_max_bs_decode", "enable_torch_compile", "mem_fraction_static", "max_running_requests"),
    *("max_total_tokens", "max_prefill_tokens", "chunked_prefill_size", "enable_mixed_chunk", "schedule_policy"),
    *("disable_radix_cache", "enable_hierarchical_cache", "enable_dp_attention", "disaggregation_mode"),
    *("enable_two_batch_overlap", "enable_lora", "num_continuous_decode_steps", "stream_interval", "load_format"),
    *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
    *("schedule_conservativeness", "grammar_backend", "cuda_graph_bs", "cuda_graph_config.decode.backend"),
    *("cuda_graph_config.decode.bs", "cuda_graph_config.prefill.backend", "cuda_graph_config.prefill.max_bs"),
    *("speculative_draft_model_path", "speculative_attention_mode", "speculative_draft_attention_backend"),
    *("disable_cuda_graph_padding", "enable_piecewise_cuda_graph", "piecewise_cuda_graph_max_tokens"),
    *("fp8_gemm_runner_backend", "fp4_gemm_runner_backend", "bf16_gemm_backend", "mm_attention_backend"),
    *("nsa_prefill_backend", "nsa_decode_backend", "dsa_prefill_backend", "dsa_decode_backend", "mamba_backend"),
    *("linear_attn_backend", "lora_backend", "max_loras_per_batch", "torchao_config", "torch_compile_max_bs"),
    *("disable_custom_all_reduce", "enable_flashinfer_allreduce_fusion", "enable_mscclpp", "enable_nccl_nvls"),
    *("enable_symm_mem", "enable_torch_symm_mem", "enable_single_batch_overlap", "enable_dp_lm_head"),
    *("moe_dense_tp_size", "deepep_mode", "enable_eplb", "ep_num_redundant_experts", "disable_shared_experts_fusion"),
    *("attn_cp_size", "dcp_size", "load_balance_method", "cpu_offload_gb", "enable_deterministic_inference"),
    *("scheduler_recv_interval", "prefill_max_requests", "prefill_decode_interval", "enable_dynamic_chunking"),
    *("swa_full_tokens_ratio", "radix_eviction_policy", "hicache_ratio", "hicache_io_backend"),
    *("disaggregation_transfer_backend", "tokenizer_worker_num", "sleep_on_idle", "enable_trace"),
    *("enable_forward_pass_metrics", "forward_pass_metrics_ipc_name"),
)

_TEXT_MAX = 200
_NUMBER_MAX = 2**63


def parse_server_info(target: str, url: str, body: bytes) -> ServerIdentity:
    """The identity from the reply of a server.

    Raises:
        ValueError: not a JSON object, or none that has a version; the message quotes nothing of it.
    """
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    if not isinstance(reply, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004 (a bad answer, not a bad call)
    arguments = allowed_arguments(reply)
    version = _allowed(reply.get("version"))
    if not isinstance(version, str):
        raise ValueError("the answer has no version")  # noqa: TRY004
    return ServerIdentity(
        target=target,
        url=public_url(url),
        version=version,
        model=str(arguments.get("model_path", "")),
        arguments=arguments,
    )


def allowed_arguments(reply: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """The allow-listed arguments that are set, in the order of the list."""
    arguments = {name: _allowed(_part(reply, name)) for name in SERVER_ARGUMENTS}
    return {name: value for name, value in arguments.items() if value is not None}


def _part(reply: Mapping[str, Any], name: str) -> object:
    value: object = reply
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _allowed(value: object) -> bool | float | str | None:
    """What may be kept: a number of reasonable size, a short text, whole numbers of a list as a text with commas.

    Addresses lose their credentials.
    """
    if isinstance(value, list) and value and all(type(one) is int and abs(one) < _NUMBER_MAX for one in value):
        value = ",".join(map(str, value[:_TEXT_MAX]))
    if isinstance(value, str):
        return (public_url(value) if "://" in value else value)[:_TEXT_MAX]
    if isinstance(value, int | float) and -_NUMBER_MAX <= value <= _NUMBER_MAX:  # NaN is not
        return value
    return None
