"""What a model is made of, from the `config.json` beside its weights: the sizes that its work follows from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG_BYTES_MAX = 2**20
_NUMBER_MAX = 2**40
_BITS_A_BYTE = 8
_DTYPE_BYTES = {"float32": 4.0, "float": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "fp8": 1.0, "int8": 1.0}
_METHOD_BITS = {"fp8": 8, "fbgemm_fp8": 8, "w8a8_fp8": 8, "w8a8_int8": 8, "mxfp4": 4, "awq": 4, "gptq": 4, "nvfp4": 4}
"""Bits of a weight where a quantization method does not say them itself."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder, in elements unless named otherwise. 0 for what a model does not have.

    `intermediate` is that of dense layers, `expert_intermediate` of one expert; `dense_layers` of the layers have no
    experts. `kv_rank`, above 0 with multi-head latent attention, is what the cache keeps of a token and layer beside
    `rope_dim`; `query_rank` is the rank of its queries, `head_dim` then the part of a head without position, and
    `value_dim` the values' part. `sliding_layers` of the layers see `window` tokens, the others all. `weight_bytes` and
    `dtype_bytes` are of one quantized and of one other weight.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    intermediate: int
    dtype: str
    dtype_bytes: float
    quantization: str
    weight_bytes: float
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    query_rank: int = 0
    value_dim: int = 0
    sliding_layers: int = 0
    window: int = 0

    @property
    def text(self) -> str:
        """The shape in one line, for people and for telling a change."""
        attention = f"latent {self.kv_rank}+{self.rope_dim}" if self.kv_rank else f"{self.kv_heads} KV heads"
        feed_forward = f"{self.intermediate} wide"
        if self.experts:
            feed_forward = f"{self.experts_per_token} of {self.experts} experts {self.expert_intermediate} wide"
        quantized = f", {self.quantization}" if self.quantization else ""
        return (
            f"{self.architecture}: {self.layers} layers of {self.hidden}, {self.heads} heads of {self.head_dim}, "
            f"{attention}, {feed_forward}, vocabulary {self.vocabulary}, {self.dtype}{quantized}"
        )


def find_config(model: str, revision: str, hub: Path) -> Path | None:
    """The `config.json` of a model in a folder or in the cache of the Hugging Face hub; None where it is in neither.

    Nothing is asked over the network. `hub` is the cache's folder, by default `~/.cache/huggingface/hub`.
    """
    if (folder := Path(model)).is_absolute():
        found = folder / "config.json"
        return found if found.is_file() else None
    cached = hub / f"models--{model.replace('/', '--')}"
    revision = revision or "main"
    if ".." in model or ".." in revision:
        return None
    named = cached / "refs" / revision
    snapshot = _text(named, 100).strip() if named.is_file() else revision
    found = cached / "snapshots" / snapshot / "config.json"
    return found if found.is_file() else None


def read_model_shape(path: Path) -> ModelShape:
    """The shape of the model that a `config.json` describes.

    Raises:
        ValueError: not a JSON object, or a size of a decoder is missing or not a number; one sentence.
        OSError: it cannot be read.
    """
    try:
        values = json.loads(_text(path, CONFIG_BYTES_MAX))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not JSON of at most {CONFIG_BYTES_MAX} bytes") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is not a JSON object")  # noqa: TRY004 (a bad file, not a bad call)
    try:
        return _shape(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}: the model's work cannot be told") from None


def _text(path: Path, limit: int) -> str:
    with path.open("rb") as file:
        content = file.read(limit + 1)
    return content.decode() if len(content) <= limit else ""


def _shape(values: Mapping[str, Any]) -> ModelShape:
    architectures = values.get("architectures")
    text = values.get("text_config")
    decoder = {**values, **text} if isinstance(text, dict) else dict(values)  # the language part of a multimodal model
    hidden, heads = _size(decoder, "hidden_size"), _size(decoder, "num_attention_heads")
    experts = _size(decoder, "num_local_experts", "n_routed_experts", "num_experts", default=0)
    intermediate = _size(decoder, "intermediate_size", default=0 if experts else None)
    expert = _size(decoder, "moe_intermediate_size", default=intermediate) if experts else 0
    latent = _size(decoder, "kv_lora_rank", default=0)
    layers = _size(decoder, "num_hidden_layers")
    dtype = str(decoder.get("torch_dtype") or decoder.get("dtype") or "bfloat16").removeprefix("torch.")[:20]
    quantization, weight_bytes = _quantization(decoder, dtype)
    sliding, window = _sliding(decoder, layers)
    plain = decoder.get("mlp_only_layers")
    dense = _size(decoder, "first_k_dense_replace", default=len(plain) if isinstance(plain, list) else 0)
    return ModelShape(
        architecture=str(architectures[0] if isinstance(architectures, list) and architectures else "unknown")[:60],
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_size(decoder, "num_key_value_heads", default=heads),
        head_dim=_size(decoder, *(["qk_nope_head_dim"] if latent else []), "head_dim", default=hidden // heads),
        vocabulary=_size(decoder, "vocab_size"),
        intermediate=intermediate,
        dtype=dtype,
        dtype_bytes=_DTYPE_BYTES.get(dtype, 2.0),
        quantization=quantization,
        weight_bytes=weight_bytes,
        experts=experts,
        experts_per_token=min(_size(decoder, "num_experts_per_tok", "moe_topk", default=1), experts),
        expert_intermediate=expert,
        shared_intermediate=_size(
            decoder,
            "shared_expert_intermediate_size",
            default=_size(decoder, "n_shared_experts", default=0) * expert,
        ),
        dense_layers=min(dense, layers) if experts else layers,
        kv_rank=latent,
        rope_dim=_size(decoder, "qk_rope_head_dim", default=0) if latent else 0,
        query_rank=_size(decoder, "q_lora_rank", default=0) if latent else 0,
        value_dim=_size(decoder, "v_head_dim", default=0) if latent else 0,
        sliding_layers=sliding,
        window=window,
    )


def _size(values: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first of these that is set; a `default` of None means that one must be.

    Raises:
        ValueError: not a whole number of reasonable size, or missing.
    """
    for name in names:
        value = values.get(name)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value <= _NUMBER_MAX or (value == 0 and default is None):
            raise ValueError(f"{name} is {str(value)[:40]}, not a size")
        return value
    if default is None:
        raise ValueError(f"{names[0]} is missing")
    return default


def _sliding(values: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """How many layers see only a window, and how long it is.

    Raises:
        ValueError: there are layers that do not attend at all, whose work follows from other sizes.
    """
    window = _size(values, "sliding_window", default=0)
    kinds = values.get("layer_types")
    if isinstance(kinds, list):
        other = {str(kind)[:40] for kind in kinds} - {"full_attention", "sliding_attention"}
        if other:
            raise ValueError(f"layers of {', '.join(sorted(other))} are not known")
        sliding = kinds.count("sliding_attention")
    else:
        sliding = layers if values.get("use_sliding_window") is not False else 0
    return (min(sliding, layers), window) if window else (0, 0)


def _quantization(values: Mapping[str, Any], dtype: str) -> tuple[str, float]:
    """How weights are quantized, and the bytes of one; an empty text and those of `dtype` where they are not."""
    own = _DTYPE_BYTES.get(dtype, 2.0)
    found = values.get("quantization_config")
    if not isinstance(found, dict):
        return "", own
    method = str(found.get("quant_method") or found.get("quant_algo") or "unknown").lower()[:40]
    bits = found.get("bits") or found.get("w_bit") or _group_bits(found) or _METHOD_BITS.get(method)
    if type(bits) is not int or not 1 <= bits <= own * _BITS_A_BYTE:
        return method, own
    return method, bits / _BITS_A_BYTE


def _group_bits(found: Mapping[str, Any]) -> object:
    """Bits of a weight as compressed-tensors writes them, of the first group."""
    groups = found.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    return weights.get("num_bits") if isinstance(weights, dict) else None
