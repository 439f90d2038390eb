"""SGLang's own activations: it imports them from here at the end of the module that defines them."""

from sglang.srt.layers.activation import GeluAndMul, SiluAndMul

__all__ = ["GeluAndMul", "SiluAndMul"]
