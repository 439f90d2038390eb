"""A stand-in for the parts of vLLM that SGLang 0.5.4 asks for on a CPU without AMX.

It gives SGLang's own classes back, which run on plain PyTorch.
"""
