"""The name SGLang stores on its rotary embedding for other devices; on a CPU it computes natively instead."""

from typing import NoReturn


def rotary_embedding(*_args: object, **_kwargs: object) -> NoReturn:
    """Refuse: there is no kernel here."""
    raise NotImplementedError("vllm._custom_ops.rotary_embedding: this is an import-only stand-in")
