"""SGLang's own normalisations: it imports them from here at the end of the module that defines them."""

from sglang.srt.layers.layernorm import GemmaRMSNorm, RMSNorm

__all__ = ["GemmaRMSNorm", "RMSNorm"]
