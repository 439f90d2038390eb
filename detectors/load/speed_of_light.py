"""Speed of light of a step: the shortest time that the hardware allows for it, over the time that it took."""

from collections.abc import Iterable
from dataclasses import dataclass

from cyclewatch.collectors.model_shape import ModelShape
from cyclewatch.detectors.load.physical_bound import Hardware, Load, PhysicalBound, physical_bound
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.windows import CellWindow

_STEPS = (Phase.EXTEND, Phase.DECODE)
"""Phases whose cycles are one step each; in the others a cycle holds a part of another one."""


@dataclass(frozen=True)
class ServedModel:
    """A model as one server runs it, each step on `tp_size` GPUs called `gpu_name`.

    `kv_element_bytes` is for a KV cache of another type than the model's, None for the same.
    """

    shape: ModelShape
    gpu_name: str
    gpu: Hardware
    tp_size: int = 1
    kv_element_bytes: float | None = None

    def bound(self, load: Load) -> PhysicalBound:
        """What a step of this load takes at least.

        Raises:
            ValueError: a load without requests or tokens.
        """
        return physical_bound(self.shape, load, self.gpu, tp_size=self.tp_size, kv_element_bytes=self.kv_element_bytes)


def step_load(phase: Phase, batch_size: float, new_tokens: float, kv_tokens: float) -> Load | None:
    """The load of a cycle of this phase as a step; None where a cycle is no step of its own, or nothing is computed."""
    # A decode computes one token a request; what its records say of new tokens is left over from before.
    computed = batch_size if phase is Phase.DECODE else new_tokens
    return Load(batch_size, computed, kv_tokens) if phase in _STEPS and batch_size > 0 and computed > 0 else None


def speed_of_light_ratios(served: ServedModel, cells: Iterable[CellWindow]) -> dict[Phase, float]:
    """T_SOL / T of prefills and decodes, each phase as a whole: the bounds of all its cycles over their times.

    The bound of a cell is that of its mean load, which is where its cycles lie close together. A ratio above 1 is no
    speed: the GPU, the model or the load is not what it was taken for.
    """
    least_ns: dict[Phase, float] = {}
    took_ns: dict[Phase, float] = {}
    for cell in cells:
        load = step_load(cell.phase, cell.batch_size, cell.new_tokens, cell.kv_tokens)
        if load is None:
            continue
        bound = served.bound(load)
        least_ns[cell.phase] = least_ns.get(cell.phase, 0.0) + cell.count * bound.seconds * 1e9
        took_ns[cell.phase] = took_ns.get(cell.phase, 0.0) + cell.count * cell.mean_ns
    return {phase: least_ns[phase] / took_ns[phase] for phase in least_ns if took_ns[phase] > 0}
