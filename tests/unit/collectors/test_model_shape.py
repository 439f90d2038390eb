import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.model_shape import CONFIG_BYTES_MAX, ModelShape, find_config, read_model_shape
from model_configs import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_8B, MIXTRAL_8X7B, QWEN3_8B


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def shape(file: Path, values: object) -> ModelShape:
    file.write_text(json.dumps(values))
    return read_model_shape(file)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            LLAMA_3_8B,
            "LlamaForCausalLM: 32 layers of 4096, 32 heads of 128, 8 KV heads, 14336 wide, vocabulary 128256, bfloat16",
        ),
        (
            QWEN3_8B,
            "Qwen3ForCausalLM: 36 layers of 4096, 32 heads of 128, 8 KV heads, 12288 wide, vocabulary 151936, bfloat16",
        ),
        (
            MIXTRAL_8X7B,
            (
                "MixtralForCausalLM: 32 layers of 4096, 32 heads of 128, 8 KV heads, 2 of 8 experts 14336 wide, "
                "vocabulary 32000, bfloat16"
            ),
        ),
        (
            DEEPSEEK_V3,
            (
                "DeepseekV3ForCausalLM: 61 layers of 7168, 128 heads of 128, latent 512+64, "
                "8 of 256 experts 2048 wide, vocabulary 129280, bfloat16, fp8"
            ),
        ),
        (
            GPT_OSS_120B,
            (
                "GptOssForCausalLM: 36 layers of 2880, 64 heads of 64, 8 KV heads, 4 of 128 experts 2880 wide, "
                "vocabulary 201088, bfloat16, mxfp4"
            ),
        ),
    ],
    ids=lambda value: value["architectures"][0] if isinstance(value, dict) else "",
)
def test_known_models(file: Path, config: dict[str, Any], text: str) -> None:
    assert shape(file, config).text == text


def test_experts_dense_layers_and_latent_attention(file: Path) -> None:
    found = shape(file, DEEPSEEK_V3)
    assert (found.dense_layers, found.shared_intermediate, found.expert_intermediate) == (3, 2048, 2048)
    assert (found.kv_rank, found.rope_dim, found.query_rank, found.value_dim) == (512, 64, 1536, 128)
    assert shape(file, LLAMA_3_8B).dense_layers == 32
    assert shape(file, MIXTRAL_8X7B).dense_layers == 0


def test_layers_with_a_window(file: Path) -> None:
    """Named one by one, all of them, or switched off."""
    found = shape(file, GPT_OSS_120B)
    assert (found.sliding_layers, found.window) == (18, 128)
    assert shape(file, LLAMA_3_8B | {"sliding_window": 4096}).sliding_layers == 32
    assert shape(file, QWEN3_8B | {"sliding_window": 4096}).sliding_layers == 0


@pytest.mark.parametrize(
    ("quantization", "name", "weight_bytes"),
    [
        (None, "", 2),
        ({"quant_method": "fp8"}, "fp8", 1),
        ({"quant_method": "gptq", "bits": 8}, "gptq", 1),
        ({"quant_method": "awq"}, "awq", 0.5),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}}},
            "compressed-tensors",
            0.5,
        ),
        ({"quant_algo": "NVFP4"}, "nvfp4", 0.5),
        ({"quant_method": "new"}, "new", 2),
        ({"quant_method": "awq", "bits": "many"}, "awq", 2),
        ({"quant_method": "awq", "bits": 64}, "awq", 2),
    ],
)
def test_quantization(file: Path, quantization: object, name: str, weight_bytes: float) -> None:
    """Of one that is not known the name is told, and its weights count as they would without."""
    found = shape(file, LLAMA_3_8B | {"quantization_config": quantization})
    assert (found.quantization, found.weight_bytes) == (name, weight_bytes)
    assert found.dtype_bytes == 2


def test_the_language_part_of_a_multimodal_model(file: Path) -> None:
    values = {"architectures": ["Gemma3"], "hidden_size": 1, "text_config": LLAMA_3_8B | {"architectures": ["Gemma3"]}}
    assert shape(file, values).hidden == 4096


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"{" + b" " * CONFIG_BYTES_MAX + b"}", "is not JSON of at most"),
        (b"[]", "is not a JSON object"),
        (b"{}", "hidden_size is missing"),
        (json.dumps(LLAMA_3_8B | {"num_hidden_layers": "many"}).encode(), "num_hidden_layers is many, not a size"),
        (json.dumps(LLAMA_3_8B | {"vocab_size": -1}).encode(), "vocab_size is -1, not a size"),
        (json.dumps(LLAMA_3_8B | {"num_attention_heads": 0}).encode(), "num_attention_heads is 0, not a size"),
        (json.dumps(LLAMA_3_8B | {"layer_types": ["linear_attention"]}).encode(), "layers of linear_attention"),
    ],
)
def test_what_is_no_decoder_is_refused(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        read_model_shape(file)
    assert str(file) in str(caught.value)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3))


@given(
    st.dictionaries(
        st.sampled_from([*DEEPSEEK_V3, *GPT_OSS_120B, "text_config", "mlp_only_layers"]),
        VALUES | st.dictionaries(st.text(max_size=5), VALUES),
    ),
    st.sampled_from([{}, LLAMA_3_8B, DEEPSEEK_V3, GPT_OSS_120B]),
)
def test_any_object_is_a_shape_or_the_documented_error(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], base: dict[str, Any]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    with contextlib.suppress(ValueError):
        found = shape(file, base | changes)
        assert found.experts_per_token <= found.experts
        assert found.dense_layers <= found.layers


class TestFindConfig:
    def test_a_folder(self, tmp_path: Path) -> None:
        assert find_config(str(tmp_path), "", tmp_path / "hub") is None
        (tmp_path / "config.json").touch()
        assert find_config(str(tmp_path), "", tmp_path / "hub") == tmp_path / "config.json"

    def test_the_cache_of_the_hub(self, tmp_path: Path) -> None:
        """By the branch's name, or by the revision itself."""
        cached = tmp_path / "models--org--tiny"
        config = cached / "snapshots/abc/config.json"
        config.parent.mkdir(parents=True)
        config.touch()
        assert find_config("org/tiny", "", tmp_path) is None
        assert find_config("org/tiny", "abc", tmp_path) == config
        (cached / "refs").mkdir()
        (cached / "refs/main").write_text("abc\n")
        assert find_config("org/tiny", "", tmp_path) == config

    @pytest.mark.parametrize(("model", "revision"), [("../../etc", ""), ("org/tiny", "../../x"), ("", "")])
    def test_never_outside_of_the_cache(self, tmp_path: Path, model: str, revision: str) -> None:
        assert find_config(model, revision, tmp_path) is None
