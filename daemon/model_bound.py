"""What a server runs, as the physical bound takes it: the model's sizes, the GPU's peaks, how many share the work."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from cyclewatch.collectors.model_shape import ModelShape, find_config, read_model_shape
from cyclewatch.collectors.records import Reading
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.kernels.hardware import find_hardware
from cyclewatch.detectors.load.load_rows import attended_pairs
from cyclewatch.detectors.load.physical_bound import Hardware, Load
from cyclewatch.detectors.load.speed_of_light import ServedModel, speed_of_light_ratios
from cyclewatch.detectors.load.workload import FEATURES, Coefficient
from cyclewatch.detectors.windows import CellWindow

log = structlog.get_logger(__name__)

_GPU = "gpu0.model"


def served_model(run: Run, hub: Path) -> ServedModel:
    """The model that a run serves, and what it serves it on; `hub` may begin with a `~`.

    Raises:
        ValueError: it cannot be told; one sentence says what is missing.
        OSError: the model's config.json cannot be read.
    """
    if run.arguments.get("device") == "cpu":
        raise ValueError("the server runs on a CPU")
    name = run.environment.get(_GPU, "")
    gpu = find_hardware(name)
    if gpu is None:
        raise ValueError(f"the peaks of {name or 'the GPU'} are not known")
    if (run.arguments.get("pp_size") or 1) != 1 or run.arguments.get("enable_dp_attention"):
        raise ValueError("what each GPU does with pipeline parallelism or data-parallel attention is not known")
    path = find_config(run.model, str(run.arguments.get("revision") or ""), _expanded(hub))
    if path is None:
        raise ValueError(f"there is no config.json of {run.model or 'the model'} here")
    shape = _as_served(read_model_shape(path), run.arguments)
    tp_size = run.arguments.get("tp_size")
    computes_in = "fp8" if shape.weight_bytes == 1 and "fp8" in shape.quantization else "bf16"
    return ServedModel(
        shape,
        gpu.name,
        Hardware(gpu.flops.get(computes_in, gpu.flops["bf16"]), gpu.bandwidth),
        tp_size=tp_size if isinstance(tp_size, int) and tp_size > 0 else 1,
        kv_element_bytes=1.0 if str(run.arguments.get("kv_cache_dtype", "")).startswith("fp8") else None,
    )


def bound_of(run: Run, costs: tuple[Coefficient, ...], hub: Path) -> dict[str, Any]:
    """The most loaded cycle of the baseline: what the model expects, and what it takes at least.

    Raises:
        ValueError: it cannot be told; one sentence says what is missing.
        OSError: the model's config.json cannot be read.
    """
    served = served_model(run, hub)
    most = {cost.feature: cost.highest for cost in costs}
    requests, kv_tokens = max(most["batch_size"], 1.0), most["kv_tokens"]
    new_tokens = most["new_tokens"]
    bound = served.bound(Load(requests, new_tokens or requests, kv_tokens))
    load = {"fixed": 1.0, "batch_size": requests, "new_tokens": new_tokens, "kv_tokens": kv_tokens}
    load["attended_pairs"] = float(attended_pairs(requests, new_tokens, kv_tokens))
    expected_ns = sum(cost.ns * load[cost.feature] for cost in costs if cost.feature in FEATURES)
    return {
        "gpu": served.gpu_name,
        "batch_size": requests,
        "new_tokens": new_tokens,
        "kv_tokens": kv_tokens,
        "expected_ns": expected_ns,
        "at_least_ns": bound.seconds * 1e9,
        "speed_of_light_ratio": bound.seconds * 1e9 / expected_ns,
        "bound_by": bound.bound_by,
    }


class SpeedOfLight:
    """How near the steps of each server come to what its GPUs allow; says nothing where that is not known."""

    def __init__(self, hub: Path) -> None:
        self._hub = hub
        self._served: dict[str, tuple[tuple[str, str], ServedModel | None]] = {}

    def readings(self, run: Run, rank: str, cells: Iterable[CellWindow]) -> Iterator[Reading]:
        """The ratios of one window of a rank, by phase."""
        served = self.of(run)
        if served is not None:
            for phase, ratio in speed_of_light_ratios(served, cells).items():
                labels = (("rank", rank), ("phase", phase.value))
                yield Reading(run.target, "cycles.speed_of_light_ratio", ratio, labels)

    def of(self, run: Run) -> ServedModel | None:
        """What a run serves; looked up once a run, and again when its GPU becomes known, which takes some seconds."""
        known_by = run.key, run.environment.get(_GPU, "")
        if run.target not in self._served or self._served[run.target][0] != known_by:
            try:
                served = served_model(run, self._hub)
            except (OSError, ValueError) as error:
                log.info("the speed of light of a step is not known", target=run.target, reason=str(error))
                served = None
            self._served[run.target] = known_by, served
        return self._served[run.target][1]


def _expanded(hub: Path) -> Path:
    try:
        return hub.expanduser()
    except RuntimeError:
        raise ValueError(f"{hub}: this user has no home directory: give engine.hub in full") from None


def _as_served(shape: ModelShape, arguments: Mapping[str, Any]) -> ModelShape:
    """The shape, quantized while it was loaded if the server was told so."""
    asked = str(arguments.get("quantization") or "")
    if shape.quantization or "fp8" not in asked:
        return shape
    return replace(shape, quantization=asked, weight_bytes=1.0)
