"""Part of the vLLM stand-in."""
