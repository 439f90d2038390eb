"""Floating-point operations and bytes of each operator of the catalogue, by its shape.

They count what an ideal kernel must do: every input read once, every output written once, nothing kept between calls.
`size` is the bytes of one element of the operator's type. A name in a formula is a dimension of operators.toml.

The formulas are those that give back the catalogue's own figures (docs/operators.md): where it had to choose, for
example how many operations a SiLU is, the choice that fits its intensities is here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

_BLOCK = 128
"""Side of the blocks that share a scale in block-scaled matrices."""

_CHUNK = 64
"""Tokens of a chunk in chunked linear attention."""

_PAGE = 16
"""Tokens of a page of the key-value cache."""

_WIDE = 2
"""Bytes of an element before quantization."""

_F32 = 4
"""Bytes of a scale, an index, an accumulator."""

_SILU = 4
"""Operations of one SiLU: negation, exponential, addition, division."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call must do at least."""

    flops: float
    bytes: float


def _unified_attention(size: float, *, seqs: int, heads: int, kv_heads: int, head_dim: int, tokens: int) -> Cost:
    seen = tokens * (tokens + 1) / 2  # causal: a token sees itself and those before it
    return Cost(4 * seqs * heads * head_dim * seen, 2 * seqs * tokens * (heads + kv_heads) * head_dim * size)


def _attention_forward(size: float, *, tokens: int, heads: int, head_dim: int) -> Cost:
    return Cost(4 * tokens**2 * heads * head_dim, 4 * tokens * heads * head_dim * size)


def _paged_attention_decode(size: float, *, heads: int, kv_heads: int, head_dim: int, context: int, seqs: int) -> Cost:
    moved = 2 * context * kv_heads * head_dim + 2 * heads * head_dim
    return Cost(4 * seqs * context * heads * head_dim, seqs * moved * size)


def _mla_decode_attention(
    size: float, *, heads: int, kv_lora_rank: int, rope_dim: int, context: int, seqs: int
) -> Cost:
    row = kv_lora_rank + rope_dim
    moved = context * row + heads * (row + kv_lora_rank)
    return Cost(2 * seqs * context * heads * (row + kv_lora_rank), seqs * moved * size)


def _experts_hit(draws: float, experts: int) -> float:
    """How many different experts are among so many drawn with repetition."""
    return experts * (1 - math.pow(1 - 1 / experts, draws))


def _fused_moe(size: float, *, tokens: int, hidden: int, experts: int, top_k: int, intermediate: int) -> Cost:
    pairs = tokens * _experts_hit(top_k, experts)
    weights = _experts_hit(top_k * tokens, experts) * 3 * hidden * intermediate
    flops = pairs * (6 * hidden * intermediate + (_SILU + 1) * intermediate + hidden)
    return Cost(flops, (weights + 3 * tokens * hidden) * size)


def _fp8_blockscale_fused_moe(
    size: float, *, tokens: int, hidden: int, experts: int, top_k: int, intermediate: int
) -> Cost:
    plain = _fused_moe(size, tokens=tokens, hidden=hidden, experts=experts, top_k=top_k, intermediate=intermediate)
    weights = _experts_hit(top_k * tokens, experts) * 3 * hidden * intermediate
    scales = weights / _BLOCK**2 * _F32
    return Cost(plain.flops, weights * size + scales + 3 * tokens * hidden * _WIDE)


def _block_scaled_mm(size: float, *, m: int, k: int, n: int) -> Cost:
    blocks = math.ceil(k / _BLOCK)
    scaling = m * n * (3 * blocks - 1)  # two scales for each block, and the sum of the blocks
    scales = m * blocks + math.ceil(n / _BLOCK) * blocks
    return Cost(2 * m * n * k + scaling, (m * k + n * k) * size + (m * n + scales) * _F32)


def _linear_sigmoid_mul(size: float, *, tokens: int, hidden: int, out: int) -> Cost:
    moved = tokens * hidden + hidden * out + 2 * tokens * out
    return Cost(2 * tokens * hidden * out + tokens * out, moved * size)


def _reshape_and_cache(size: float, *, tokens: int, kv_heads: int, head_dim: int) -> Cost:
    slots = math.ceil(tokens / _PAGE) * _PAGE  # whole pages are read and written
    return Cost(0, 2 * kv_heads * head_dim * (tokens + 2 * slots) * size + 8 * tokens)


def _topk_filter(size: float, *, rows: int, columns: int) -> Cost:
    return Cost(0, 2 * rows * columns * size)


def _gated_delta_rule_update(
    size: float, *, tokens: int, heads: int, value_heads: int, key_dim: int, value_dim: int
) -> Cost:
    state = value_heads * key_dim * value_dim
    rows = 2 * heads * key_dim + 2 * value_heads * value_dim
    gates = 2 * value_heads * _F32
    return Cost(7 * tokens * state, tokens * (4 * state * _F32 + rows * size + gates))  # decayed, then updated


def _chunk_gated_delta_rule_state(
    size: float, *, tokens: int, heads: int, value_heads: int, key_dim: int, value_dim: int
) -> Cost:
    state = value_heads * key_dim * value_dim
    chunks = math.ceil(tokens / _CHUNK)
    rows = tokens * (heads * key_dim + value_heads * (key_dim + 2 * value_dim))
    kept = (tokens * value_heads + 2 * state) * _F32
    return Cost((4 * tokens + 3 * chunks) * state, (rows + chunks * state) * size + kept)


def _chunk_delta_rule_output(
    size: float, *, tokens: int, heads: int, value_heads: int, key_dim: int, value_dim: int
) -> Cost:
    flops = tokens * value_heads * (2 * key_dim * value_dim + 2 * _CHUNK * (key_dim + value_dim) + 4 * value_dim)
    states = math.ceil(tokens / _CHUNK) * value_heads * key_dim * value_dim
    rows = 2 * tokens * (heads * key_dim + value_heads * value_dim)
    return Cost(flops, (rows + states) * size + tokens * value_heads * _F32)


def _causal_conv1d(size: float, *, tokens: int, channels: int, width: int) -> Cost:
    state = 2 * channels * (width - 1)
    moved = 2 * tokens * channels + channels * width + state
    return Cost(tokens * channels * (2 * width + _SILU), moved * size)


def _fused_qkv_rope(size: float, *, heads: int, kv_heads: int, head_dim: int, tokens: int) -> Cost:
    row = (heads + 2 * kv_heads) * head_dim
    flops = 3 * tokens * (heads + kv_heads) * head_dim
    return Cost(flops, tokens * (2 * row * size + head_dim * _F32))


def _mrope(size: float, *, tokens: int, heads: int, kv_heads: int, head_dim: int) -> Cost:
    row = (heads + kv_heads) * head_dim
    return Cost(3 * tokens * row, tokens * (2 * row + 6 * head_dim) * size)  # sine and cosine of three sections


def _rms_norm(size: float, *, tokens: int, hidden: int) -> Cost:
    return Cost(3 * tokens * hidden, (2 * tokens * hidden + hidden) * size)


def _fused_add_rms_norm(size: float, *, tokens: int, hidden: int) -> Cost:
    return Cost(4 * tokens * hidden, (4 * tokens * hidden + hidden) * size)


def _fused_qk_rmsnorm(size: float, *, heads: int, kv_heads: int, head_dim: int, tokens: int) -> Cost:
    row = (heads + 2 * kv_heads) * head_dim  # the values pass through
    return Cost(3 * tokens * (heads + kv_heads) * head_dim, 2 * (tokens * row + head_dim) * size)


def _fused_rmsnorm_quant(size: float, *, tokens: int, hidden: int) -> Cost:
    moved = tokens * hidden * (3 * _WIDE + size) + hidden * _WIDE + tokens * _F32
    return Cost(5 * tokens * hidden, moved)


def _gated_rms_norm(size: float, *, rows: int, hidden: int) -> Cost:
    return Cost(8 * rows * hidden, (3 * rows * hidden + hidden) * size)


def _l2_norm(size: float, *, tokens: int, hidden: int) -> Cost:
    return Cost(3 * tokens * hidden, 2 * tokens * hidden * size)


def _layer_norm(size: float, *, tokens: int, hidden: int) -> Cost:
    return Cost(7 * tokens * hidden, (2 * tokens * hidden + 2 * hidden) * size)


def _silu_and_mul(size: float, *, tokens: int, hidden: int) -> Cost:
    out = tokens * hidden / 2
    return Cost((_SILU + 1) * out, 3 * out * size)


def _fp8_dynamic_per_token_quant(size: float, *, tokens: int, hidden: int) -> Cost:
    return Cost(tokens * hidden, tokens * hidden * (_WIDE + size) + tokens * _F32)


def _per_token_group_quant_fp8(size: float, *, tokens: int, hidden: int, group: int) -> Cost:
    scales = tokens * math.ceil(hidden / group)
    return Cost(tokens * hidden, tokens * hidden * (_WIDE + size) + scales * _F32)


def _moe_topk_gating_softmax(size: float, *, tokens: int, experts: int, top_k: int) -> Cost:
    return Cost(4 * tokens * experts, tokens * (experts * size + 2 * top_k * _F32))  # weights and indices


def _moe_align_block_size(size: float, *, tokens: int, top_k: int, block_size: int, experts: int) -> Cost:
    pairs = tokens * top_k
    padded = pairs + experts * block_size / 2  # on average half a block for each expert
    return Cost(0, (pairs + padded + padded / block_size) * size)


def _moe_count_and_sort(size: float, *, tokens: int, top_k: int, experts: int) -> Cost:
    return Cost(0, 2 * (tokens * top_k + experts) * size)


def _moe_sum_reduce(size: float, *, tokens: int, hidden: int, top_k: int) -> Cost:
    return Cost(top_k * tokens * hidden, (top_k + 1) * tokens * hidden * size)


FORMULAS: Mapping[str, Callable[..., Cost]] = MappingProxyType(
    {
        "unified_attention": _unified_attention,
        "fused_moe": _fused_moe,
        "block_scaled_mm": _block_scaled_mm,
        "fp8_blockscale_fused_moe": _fp8_blockscale_fused_moe,
        "paged_attention_decode": _paged_attention_decode,
        "reshape_and_cache": _reshape_and_cache,
        "topk_filter": _topk_filter,
        "gated_delta_rule_update": _gated_delta_rule_update,
        "fused_qkv_rope": _fused_qkv_rope,
        "rms_norm": _rms_norm,
        "mla_decode_attention": _mla_decode_attention,
        "attention_forward": _attention_forward,
        "causal_conv1d": _causal_conv1d,
        "moe_topk_gating_softmax": _moe_topk_gating_softmax,
        "fused_qk_rmsnorm": _fused_qk_rmsnorm,
        "silu_and_mul": _silu_and_mul,
        "chunk_gated_delta_rule_state": _chunk_gated_delta_rule_state,
        "fused_add_rms_norm": _fused_add_rms_norm,
        "moe_align_block_size": _moe_align_block_size,
        "mrope": _mrope,
        "chunk_delta_rule_output": _chunk_delta_rule_output,
        "fp8_dynamic_per_token_quant": _fp8_dynamic_per_token_quant,
        "linear_sigmoid_mul": _linear_sigmoid_mul,
        "per_token_group_quant_fp8": _per_token_group_quant_fp8,
        "gated_rms_norm": _gated_rms_norm,
        "l2_norm": _l2_norm,
        "moe_count_and_sort": _moe_count_and_sort,
        "fused_rmsnorm_quant": _fused_rmsnorm_quant,
        "moe_sum_reduce": _moe_sum_reduce,
        "layer_norm": _layer_norm,
    }
)
"""By the operator's name: called with the bytes of an element and, by their names, the dimensions."""
