"""Bounds held against figures computed by hand from the published sizes of each model.

Weights of a layer, in elements:

- Llama-3-8B: attention 4096 * (4096 + 1024 + 1024 + 4096) = 41,943,040; feed-forward 3 * 4096 * 14336 = 176,160,768.
- Qwen3-8B: the same attention; feed-forward 3 * 4096 * 12288 = 150,994,944.
- Mixtral-8x7B: the same attention; an expert 176,160,768; router 4096 * 8 = 32,768.
- DeepSeek-V3: attention 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168 = 187,105,280;
  dense feed-forward 3 * 7168 * 18432 = 396,361,728; an expert 3 * 7168 * 2048 = 44,040,192; router 7168 * 256.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.model_shape import ModelShape, read_model_shape
from cyclewatch.detectors.load.physical_bound import Hardware, Load, PhysicalBound, physical_bound
from model_configs import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_8B, MIXTRAL_8X7B, QWEN3_8B

H200 = Hardware(peak_flops=989.4e12, bandwidth=4.8e12)
ATTENTION = 41_943_040
LLAMA_LAYERS = 32 * (ATTENTION + 176_160_768)
LLAMA_HEAD = 128_256 * 4096
MIXTRAL_EXPERT = 176_160_768
MLA = 187_105_280
DEEPSEEK_EXPERT = 44_040_192


def read(config: dict[str, Any], directory: Path) -> ModelShape:
    (directory / "config.json").write_text(json.dumps(config))
    return read_model_shape(directory / "config.json")


def decode(shape: ModelShape, requests: int, context: int, **changes: Any) -> PhysicalBound:
    return physical_bound(shape, Load(requests, requests, requests * context), H200, **changes)


def prefill(shape: ModelShape, tokens: int, **changes: Any) -> PhysicalBound:
    """One request without a cached prefix."""
    return physical_bound(shape, Load(1, tokens, tokens), H200, **changes)


class TestLlama:
    def test_one_request_reads_all_weights(self, tmp_path: Path) -> None:
        """15 GB, so 3.1 ms: a decode of Llama-3-8B on an H200 cannot do more than 320 steps a second."""
        bound = decode(read(LLAMA_3_8B, tmp_path), 1, 1)
        assert bound.weight_bytes == 2 * (LLAMA_LAYERS + LLAMA_HEAD + 4096) == 15_009_325_056
        assert bound.kv_bytes == 131_072  # 2 * 32 layers * 8 heads * 128 * 2 bytes
        assert bound.seconds == bound.memory_s == pytest.approx(3.127e-3, rel=1e-3)

    def test_the_cache_counts_for_every_request(self, tmp_path: Path) -> None:
        """64 requests with 4096 tokens each: 34 GB of cache beside 15 GB of weights."""
        bound = decode(read(LLAMA_3_8B, tmp_path), 64, 4096)
        assert bound.kv_bytes == 64 * 4096 * 131_072
        assert bound.memory_s == pytest.approx((15_009_325_056 + 63 * 8192 + 34_359_738_368) / 4.8e12)

    def test_a_prefill_is_bound_by_its_operations(self, tmp_path: Path) -> None:
        """8192 tokens: 2 operations a weight and token, logits of the last token, and 4 * 32 * 128 a pair and layer."""
        bound = prefill(read(LLAMA_3_8B, tmp_path), 8192)
        pairs = 8192 * 8193 / 2
        assert bound.flops == 2 * (LLAMA_LAYERS * 8192 + LLAMA_HEAD) + 32 * 16_384 * pairs
        assert bound.seconds == bound.compute_s == pytest.approx(0.1334, rel=1e-3)

    def test_gpus_share_weights_heads_and_operations(self, tmp_path: Path) -> None:
        """From the ninth GPU on, KV heads are doubled."""
        one, four, sixteen = (decode(read(LLAMA_3_8B, tmp_path), 8, 1000, tp_size=size) for size in (1, 4, 16))
        assert (four.weight_bytes, four.kv_bytes, four.flops) == (
            one.weight_bytes / 4,
            one.kv_bytes / 4,
            one.flops / 4,
        )
        assert sixteen.kv_bytes == one.kv_bytes / 8

    def test_types_of_the_weights_and_of_the_cache(self, tmp_path: Path) -> None:
        """The output embedding is not quantized."""
        shape = replace(read(LLAMA_3_8B, tmp_path), quantization="fp8", weight_bytes=1.0)
        bound = decode(shape, 1, 100, kv_element_bytes=1)
        assert bound.weight_bytes == LLAMA_LAYERS + 2 * (LLAMA_HEAD + 4096)
        assert bound.kv_bytes == 100 * 131_072 / 2


def test_qwen3_8b(tmp_path: Path) -> None:
    bound = decode(read(QWEN3_8B, tmp_path), 32, 2000)
    layers, head = 36 * (ATTENTION + 150_994_944), 151_936 * 4096
    assert bound.weight_bytes == 2 * (layers + head + 32 * 4096)
    assert bound.kv_bytes == 32 * 2000 * 2 * 36 * 8 * 128 * 2
    assert bound.flops == 2 * 32 * (layers + head) + 36 * 4 * 32 * 128 * 32 * 2000
    assert (
        bound.seconds
        == bound.memory_s
        == pytest.approx((15_136_194_560 + 32 * 8192 + 9_437_184_000) / 4.8e12, rel=1e-3)
    )


class TestMixtral:
    def test_one_token_reads_two_experts(self, tmp_path: Path) -> None:
        bound = decode(read(MIXTRAL_8X7B, tmp_path), 1, 1)
        layers = 32 * (ATTENTION + 2 * MIXTRAL_EXPERT + 32_768)
        assert bound.weight_bytes == pytest.approx(2 * (layers + 32_000 * 4096 + 4096))
        assert bound.flops == 2 * (layers + 32_000 * 4096) + 32 * 4 * 4096

    def test_many_tokens_read_all(self, tmp_path: Path) -> None:
        """46.6 billion weights but the input embedding, 12.7 of them used by a token."""
        bound = prefill(read(MIXTRAL_8X7B, tmp_path), 4096)
        layers = 32 * (ATTENTION + 8 * MIXTRAL_EXPERT + 32_768)
        assert bound.weight_bytes == pytest.approx(2 * (layers + 32_000 * 4096 + 4096 * 4096))
        used = 32 * (ATTENTION + 2 * MIXTRAL_EXPERT + 32_768)
        assert bound.flops == 2 * (used * 4096 + 32_000 * 4096) + 32 * 16_384 * 4096 * 4097 / 2

    def test_experts_hit_by_four_tokens(self, tmp_path: Path) -> None:
        """8 * (1 - 0.75 ** 4) = 5.47."""
        bound = decode(read(MIXTRAL_8X7B, tmp_path), 4, 1)
        layers = 32 * (ATTENTION + 5.46875 * MIXTRAL_EXPERT + 32_768)
        assert bound.weight_bytes == pytest.approx(2 * (layers + 32_000 * 4096 + 4 * 4096))


class TestDeepSeek:
    def test_one_token(self, tmp_path: Path) -> None:
        """Eight experts and a shared one in 58 layers; 70 KB of cache a token."""
        bound = decode(read(DEEPSEEK_V3, tmp_path), 1, 1000)
        quantized = 61 * MLA + 3 * 396_361_728 + 58 * 9 * DEEPSEEK_EXPERT
        plain = 58 * 1_835_008 + 129_280 * 7168 + 7168
        assert bound.weight_bytes == pytest.approx(quantized + 2 * plain)
        assert bound.kv_bytes == 1000 * 61 * 576 * 2 == 70_272_000

    def test_a_prefill_reads_all_experts(self, tmp_path: Path) -> None:
        """671 billion weights, input embedding aside."""
        bound = prefill(read(DEEPSEEK_V3, tmp_path), 16_384, tp_size=8)
        quantized = 61 * MLA + 3 * 396_361_728 + 58 * 257 * DEEPSEEK_EXPERT
        plain = 58 * 256 * 7168 + 129_280 * 7168 + 16_384 * 7168
        assert bound.weight_bytes == pytest.approx((quantized + 2 * plain) / 8)

    def test_the_latent_cache_is_on_every_gpu(self, tmp_path: Path) -> None:
        assert decode(read(DEEPSEEK_V3, tmp_path), 1, 1000, tp_size=8).kv_bytes == 70_272_000

    def test_decodes_attend_to_latent_rows_and_prefills_to_restored_ones(self, tmp_path: Path) -> None:
        """2 * (512 + 64 + 512) a pair and head, or 2 * (128 + 64 + 128) once keys and values are there."""
        shape = read(DEEPSEEK_V3, tmp_path)
        used = 61 * MLA + 3 * 396_361_728 + 58 * (9 * DEEPSEEK_EXPERT + 1_835_008)
        bound = decode(shape, 16, 1000)
        assert bound.flops == 2 * 16 * (used + 129_280 * 7168) + 61 * 128 * 2 * 1088 * 16_000
        bound = prefill(shape, 4096)
        assert bound.flops == 2 * (used * 4096 + 129_280 * 7168) + 61 * 128 * 2 * 320 * 4096 * 4097 / 2


def test_half_of_the_layers_see_a_window(tmp_path: Path) -> None:
    """gpt-oss: 18 of 36 layers see 128 tokens and the new one."""
    bound = decode(read(GPT_OSS_120B, tmp_path), 4, 10_000)
    a_token = 2 * 8 * 64 * 2
    assert bound.kv_bytes == 18 * 40_000 * a_token + 18 * 4 * 129 * a_token


@pytest.mark.parametrize(("load", "tp_size"), [(Load(1, 0, 5), 1), (Load(0, 1, 5), 1), (Load(1, 1, 5), 0)])
def test_no_step_has_no_bound(tmp_path: Path, load: Load, tp_size: int) -> None:
    with pytest.raises(ValueError, match="a step needs GPUs and tokens"):
        physical_bound(read(LLAMA_3_8B, tmp_path), load, H200, tp_size=tp_size)


@given(
    st.sampled_from([LLAMA_3_8B, MIXTRAL_8X7B, DEEPSEEK_V3, GPT_OSS_120B]),
    st.integers(1, 512),
    st.integers(1, 64),
    st.integers(0, 100_000),
)
def test_more_work_never_takes_less(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], requests: int, new: int, prefix: int
) -> None:
    shape = read(config, tmp_path_factory.getbasetemp())
    base = physical_bound(shape, Load(requests, requests * new, requests * (new + prefix)), H200)
    more_cached = physical_bound(shape, Load(requests, requests * new, requests * (new + prefix + 1)), H200)
    more_new = physical_bound(shape, Load(requests, requests * (new + 1), requests * (new + 1 + prefix)), H200)
    more_gpus = physical_bound(shape, Load(requests, requests * new, requests * (new + prefix)), H200, tp_size=2)
    assert base.seconds <= more_cached.seconds
    assert base.seconds <= more_new.seconds
    assert more_gpus.seconds <= base.seconds
