"""How fast an operator could be at best: the roofline of a GPU, and how near a measured time comes to it.

The speed of light is the longer of computing and moving: T_SOL = max(work / peak, bytes / bandwidth), and S is T_SOL
over the time measured (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cyclewatch.config.catalogues import Hardware, Operator
from cyclewatch.detectors.kernels.work import FORMULAS

BYTES_BY_DTYPE = {
    "fp4": 0.5,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "int8": 1.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "tf32": 4.0,
    "fp32": 4.0,
    "int32": 4.0,
}
"""Bytes of one element."""

DTYPE_ALIASES = {
    "fp8": "fp8_e4m3",
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}
"""Other names of the types, as torch and configurations write them."""

_PEAKS = {"fp8_e4m3": ("fp8",), "fp8_e5m2": ("fp8",), "fp16": ("fp16", "bf16")}
"""The peaks of hardware.toml that hold for a type, the first that is there; for other types the one of their name."""


class RooflineError(ValueError):
    """There is no roofline for this; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The best that one GPU can do for one call of an operator.

    `flops` and `bytes` are what the call must do at least, `intensity` is their ratio, and `ridge` the ratio in
    FLOP/byte from which on the GPU is bound by computing; None where it has no such peak, which indexing does not need.
    `s` is None where no time was given; above 1 the time, the shape or the peaks are wrong, or the data was in a cache.
    """

    flops: float
    bytes: float
    compute_s: float
    memory_s: float
    ridge: float | None
    time_s: float | None = None

    @property
    def t_sol_s(self) -> float:
        """The shortest time that is possible, in seconds."""
        return max(self.compute_s, self.memory_s)

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.flops / self.bytes

    @property
    def regime(self) -> str:
        """What bounds the call on this GPU: "compute" or "memory"."""
        return "compute" if self.compute_s > self.memory_s else "memory"

    @property
    def s(self) -> float | None:
        """The speed of light over the measured time."""
        return None if self.time_s is None else self.t_sol_s / self.time_s


def roofline(
    operator: Operator, shape: Mapping[str, int], dtype: str, gpu: Hardware, *, time_s: float | None = None
) -> Roofline:
    """The roofline of `operator` for a complete `shape` (see `operators.shape_of`) and a key of `BYTES_BY_DTYPE`.

    Raises:
        RooflineError: the GPU has no peak for the type.
    """
    cost = FORMULAS[operator.name](BYTES_BY_DTYPE[dtype], **shape)
    peak = next((gpu.flops[one] for one in _PEAKS.get(dtype, (dtype,)) if one in gpu.flops), None)
    if peak is None and cost.flops:
        raise RooflineError(f"no peak for {dtype} on {gpu.name} is known; known are {', '.join(gpu.flops)}")
    return Roofline(
        flops=cost.flops,
        bytes=cost.bytes,
        compute_s=cost.flops / peak if peak else 0.0,
        memory_s=cost.bytes / gpu.bandwidth,
        ridge=peak / gpu.bandwidth if peak else None,
        time_s=time_s,
    )
