"""The physical bound of what a workload model expects, from the sizes of the model and the peaks of the GPU."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cyclewatch.collectors.model_shape import ModelShape, find_config, read_model_shape
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.kernels.hardware import find_hardware
from cyclewatch.detectors.load_rows import attended_pairs
from cyclewatch.detectors.physical_bound import Hardware, Load, physical_bound
from cyclewatch.detectors.workload import FEATURES, Coefficient


def bound_of(run: Run, costs: tuple[Coefficient, ...], hub: Path) -> dict[str, Any]:
    """The most loaded cycle of the baseline: what the model expects, and what it takes at least.

    Raises:
        ValueError: it cannot be told; one sentence says what is missing.
        OSError: the model's config.json cannot be read.
    """
    name = run.environment.get("gpu0.model", "")
    gpu = find_hardware(name)
    if gpu is None:
        raise ValueError(f"the peaks of {name or 'the GPU'} are not known")
    path = find_config(run.model, str(run.arguments.get("revision") or ""), hub)
    if path is None:
        raise ValueError(f"there is no config.json of {run.model or 'the model'} here")
    shape = _as_served(read_model_shape(path), run.arguments)
    most = {cost.feature: cost.highest for cost in costs}
    requests, kv_tokens = max(most["batch_size"], 1.0), most["kv_tokens"]
    new_tokens = most["new_tokens"]
    tp_size = run.arguments.get("tp_size")
    computes_in = "fp8" if shape.weight_bytes == 1 and "fp8" in shape.quantization else "bf16"
    bound = physical_bound(
        shape,
        Load(requests, new_tokens or requests, kv_tokens),
        Hardware(gpu.flops.get(computes_in, gpu.flops["bf16"]), gpu.bandwidth),
        tp_size=tp_size if isinstance(tp_size, int) else 1,
        kv_element_bytes=1.0 if str(run.arguments.get("kv_cache_dtype", "")).startswith("fp8") else None,
    )
    load = {"fixed": 1.0, "batch_size": requests, "new_tokens": new_tokens, "kv_tokens": kv_tokens}
    load["attended_pairs"] = float(attended_pairs(requests, new_tokens, kv_tokens))
    return {
        "gpu": gpu.name,
        "batch_size": requests,
        "new_tokens": new_tokens,
        "kv_tokens": kv_tokens,
        "expected_ns": sum(cost.ns * load[cost.feature] for cost in costs if cost.feature in FEATURES),
        "at_least_ns": bound.seconds * 1e9,
        "bound_by": "memory" if bound.memory_s >= bound.compute_s else "compute",
    }


def _as_served(shape: ModelShape, arguments: Mapping[str, Any]) -> ModelShape:
    """The shape, quantized while it was loaded if the server was told so."""
    asked = str(arguments.get("quantization") or "")
    if shape.quantization or "fp8" not in asked:
        return shape
    return replace(shape, quantization=asked, weight_bytes=1.0)
