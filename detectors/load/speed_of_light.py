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


def speed_of_light_ratios(served: ServedModel, cells: Iterable[CellWindow]) -> dict[Phase, float]:
    """T_SOL / T of prefills and decodes, each phase as a whole: the bounds of all its cycles over their times.

    The bound of a cell is that of its mean load, which is where its cycles lie close together. A ratio above 1 is no
    speed: the GPU, the model or the load is not what it was taken for.
    """
    least_ns: dict[Phase, float] = {}
    took_ns: dict[Phase, float] = {}
    for cell in cells:
        # A decode computes one token a request; what its records say of new tokens is left over from before.
        new_tokens = cell.batch_size if cell.phase is Phase.DECODE else cell.new_tokens
        if cell.phase not in _STEPS or cell.batch_size <= 0 or new_tokens <= 0:
            continue
        bound = served.bound(Load(cell.batch_size, new_tokens, cell.kv_tokens))
        least_ns[cell.phase] = least_ns.get(cell.phase, 0.0) + cell.count * bound.seconds * 1e9
        took_ns[cell.phase] = took_ns.get(cell.phase, 0.0) + cell.count * cell.mean_ns
    return {phase: least_ns[phase] / took_ns[phase] for phase in least_ns if took_ns[phase] > 0}
