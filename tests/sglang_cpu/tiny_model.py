"""Write the folder of a tiny Llama model that SGLang serves with random weights.

The tests need the real scheduler, not real text: two small layers keep a decode step at a few milliseconds
on a CPU, and `--load-format dummy` needs no weight files. Plain JSON, so that any Python writes it.

    python tests/sglang_cpu/tiny_model.py DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CONTEXT_LENGTH: Final = 2048
VOCABULARY: Final = 1024
HIDDEN: Final = 256
LAYERS: Final = 2
HEADS: Final = 4
SPECIAL_TOKENS: Final = {"<unk>": 0, "<s>": 1, "</s>": 2}
"""Ids that a random prompt should not contain; ordinary tokens start after them."""


def model_config() -> dict[str, object]:
    """Return `config.json`: a Llama of 2 layers, hidden size 256, 4 heads of 64."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": CONTEXT_LENGTH,
        "vocab_size": VOCABULARY,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "use_cache": True,
        "bos_token_id": SPECIAL_TOKENS["<s>"],
        "eos_token_id": SPECIAL_TOKENS["</s>"],
        "dtype": "bfloat16",
    }


def tokenizer() -> dict[str, object]:
    """Return `tokenizer.json`: one word `tN` for each id N, separated by spaces."""
    vocabulary = SPECIAL_TOKENS | {f"t{number}": number for number in range(len(SPECIAL_TOKENS), VOCABULARY)}
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in SPECIAL_TOKENS.items()
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }


def tokenizer_config() -> dict[str, object]:
    """Return `tokenizer_config.json`: load `tokenizer.json` as it is."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": CONTEXT_LENGTH,
        "clean_up_tokenization_spaces": False,
    }


def write_model(directory: Path) -> Path:
    """Write the model folder, replacing files of an older one, and return it."""
    files = {
        "config.json": model_config(),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": tokenizer_config(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return directory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write the folder of a tiny Llama model.")
    parser.add_argument("directory", type=Path, help="where to write it")
    write_model(parser.parse_args(arguments).directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
