"""The shortest time a step can take: its bytes over the memory's bandwidth, its operations over the peak.

Both count what any implementation must do, for the share of one GPU: every weight that is used is read once, the KV
cache of all attended tokens is read once; a multiplication with its addition is two operations. Activations,
collectives, norms, sampling and launches are left out, so real steps take longer: a shorter one is measured wrongly.
"""

import math
from dataclasses import dataclass

from cyclewatch.collectors.model_shape import ModelShape


@dataclass(frozen=True)
class Hardware:
    """One GPU: `peak_flops` a second for the type that the model computes in, `bandwidth` in bytes a second."""

    peak_flops: float
    bandwidth: float


@dataclass(frozen=True)
class Load:
    """One step: requests, tokens computed (in a decode one a request), and cached tokens with the new ones."""

    batch_size: float
    new_tokens: float
    kv_tokens: float


@dataclass(frozen=True)
class PhysicalBound:
    """What one GPU must do in a step, and how long that takes at least."""

    weight_bytes: float
    kv_bytes: float
    flops: float
    memory_s: float
    compute_s: float

    @property
    def seconds(self) -> float:
        """The bound: memory and arithmetic may overlap, so it is the larger of the two."""
        return max(self.memory_s, self.compute_s)

    @property
    def bound_by(self) -> str:
        """Which of the two it is: `memory` or `compute`."""
        return "memory" if self.memory_s >= self.compute_s else "compute"


def physical_bound(
    shape: ModelShape, load: Load, gpu: Hardware, *, tp_size: int = 1, kv_element_bytes: float | None = None
) -> PhysicalBound:
    """The bound of one step on each of `tp_size` GPUs that share it evenly.

    `kv_element_bytes` is for a KV cache of another type than the model's. Of experts, as many are read as are hit when
    every token draws evenly; routing that is less even hits fewer, and the bound is then a little too high.

    Raises:
        ValueError: no GPUs, or no tokens.
    """
    if tp_size < 1 or load.new_tokens <= 0 or load.batch_size <= 0:
        raise ValueError(f"a step needs GPUs and tokens: {tp_size} GPUs, {load}")
    weights = _read_bytes(shape, load) / tp_size
    kv_bytes = _attended_layers(shape, load) * _kv_bytes(shape, tp_size, kv_element_bytes or shape.dtype_bytes)
    flops = (_linear_flops(shape, load) + _attention_flops(shape, load)) / tp_size
    return PhysicalBound(
        weight_bytes=weights,
        kv_bytes=kv_bytes,
        flops=flops,
        memory_s=(weights + kv_bytes) / gpu.bandwidth,
        compute_s=flops / gpu.peak_flops,
    )


def _attention(shape: ModelShape) -> float:
    """Weights of the attention of one layer."""
    if not shape.kv_rank:
        return shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    query = shape.heads * (shape.head_dim + shape.rope_dim)
    queries = shape.query_rank * (shape.hidden + query) if shape.query_rank else shape.hidden * query
    latent = shape.hidden * (shape.kv_rank + shape.rope_dim)
    restored = shape.kv_rank * shape.heads * (shape.head_dim + shape.value_dim)
    return queries + latent + restored + shape.heads * shape.value_dim * shape.hidden


def _dense(shape: ModelShape) -> float:
    return 3 * shape.hidden * shape.intermediate


def _expert(shape: ModelShape) -> float:
    return 3 * shape.hidden * shape.expert_intermediate


def _shared(shape: ModelShape) -> float:
    return 3 * shape.hidden * shape.shared_intermediate


def _embedding(shape: ModelShape) -> float:
    return shape.vocabulary * shape.hidden


def _read_bytes(shape: ModelShape, load: Load) -> float:
    """Bytes of the weights that a step uses: all, but of experts those hit, and of the input embedding a few rows."""
    moe_layers = shape.layers - shape.dense_layers
    hit = 0.0
    if shape.experts:
        hit = shape.experts * (1 - math.pow(1 - shape.experts_per_token / shape.experts, load.new_tokens))
    quantized = (
        shape.layers * _attention(shape)
        + shape.dense_layers * _dense(shape)
        + moe_layers * (hit * _expert(shape) + _shared(shape))
    )
    plain = moe_layers * shape.experts * shape.hidden + _embedding(shape) + load.new_tokens * shape.hidden
    return quantized * shape.weight_bytes + plain * shape.dtype_bytes


def _kv_bytes(shape: ModelShape, tp_size: int, element_bytes: float) -> float:
    """Bytes of the cache of one token and layer on one GPU: KV heads are shared out, a latent row is on every GPU."""
    if shape.kv_rank:
        return (shape.kv_rank + shape.rope_dim) * element_bytes
    return 2 * max(shape.kv_heads / tp_size, 1) * shape.head_dim * element_bytes


def _attended_layers(shape: ModelShape, load: Load) -> float:
    """Cached tokens times the layers that look at them."""
    seen = min(load.kv_tokens, load.batch_size * shape.window + load.new_tokens)
    return (shape.layers - shape.sliding_layers) * load.kv_tokens + shape.sliding_layers * seen


def _linear_flops(shape: ModelShape, load: Load) -> float:
    """Two operations for each weight that a token meets; logits are made for the last token of a request alone."""
    moe_layers = shape.layers - shape.dense_layers
    used = (
        shape.layers * _attention(shape)
        + shape.dense_layers * _dense(shape)
        + moe_layers * (shape.experts_per_token * _expert(shape) + _shared(shape) + shape.experts * shape.hidden)
    )
    return 2 * (used * load.new_tokens + _embedding(shape) * load.batch_size)


def _attention_flops(shape: ModelShape, load: Load) -> float:
    """Scores and weighted sums over the pairs of a new token and one that it attends to, requests taken to be alike.

    With latent attention the cheaper of its two ways counts: on the latent rows themselves, or with keys and values
    restored from them first.
    """
    pairs = load.new_tokens * max(load.kv_tokens - (load.new_tokens - load.batch_size) / 2, 0.0) / load.batch_size
    if not shape.kv_rank:
        in_window = min(pairs, load.new_tokens * shape.window)
        seen = (shape.layers - shape.sliding_layers) * pairs + shape.sliding_layers * in_window
        return 4 * shape.heads * shape.head_dim * seen
    absorbed = 2 * (2 * shape.kv_rank + shape.rope_dim) * pairs
    direct = 2 * (shape.head_dim + shape.rope_dim + shape.value_dim) * pairs
    cached = max(load.kv_tokens - load.new_tokens, 0.0)
    restoring = 2 * shape.kv_rank * (shape.head_dim + shape.value_dim) * cached
    return shape.layers * shape.heads * min(absorbed, direct + restoring)
