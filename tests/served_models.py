"""Llama-3-8B as a server on an H200 runs it."""

from cyclewatch.collectors.model_shape import ModelShape
from cyclewatch.detectors.load.physical_bound import Hardware
from cyclewatch.detectors.load.speed_of_light import ServedModel

H200 = Hardware(peak_flops=989.4e12, bandwidth=4.8e12)
LLAMA_ON_H200 = ServedModel(
    ModelShape(
        architecture="LlamaForCausalLM",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocabulary=128_256,
        intermediate=14_336,
        dtype="bfloat16",
        dtype_bytes=2.0,
        quantization="",
        weight_bytes=2.0,
        dense_layers=32,
    ),
    "H200",
    H200,
)
