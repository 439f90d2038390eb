"""MIG slices of a GPU: which there are, and what can be told of each."""

from collections.abc import Iterator

from cyclewatch.collectors.gpu.calls import CallWatch, GpuCalls
from cyclewatch.collectors.gpu.door import Handle, MigSlice, NvmlDoor
from cyclewatch.collectors.gpu.gpm import GpmMeter
from cyclewatch.collectors.gpu.memory import memory_readings
from cyclewatch.collectors.records import Reading

Labels = tuple[tuple[str, str], ...]


class _Slice:
    """One slice: its calls, of which each may be slow or refused apart from those of the others."""

    def __init__(self, door: NvmlDoor, gpu: Handle, name: str, slice_: MigSlice, watch: CallWatch) -> None:
        self.calls = GpuCalls(f"{name} MIG {slice_.gpu_instance}", watch)
        self.meter = GpmMeter(door, gpu, slice_.gpu_instance, self.calls)
        self.handle = slice_.handle


class MigSlices:
    """The slices of one GPU, one a GPU instance: the instance is what has memory and counters of its own.

    Whoever changes them at run time may give a new one the number of an old one; their UUIDs differ.
    """

    def __init__(self, door: NvmlDoor, gpu: Handle, name: str, calls: GpuCalls, watch: CallWatch) -> None:
        self._door = door
        self._gpu = gpu
        self._name = name
        self._calls = calls
        self._watch = watch
        self._slices: dict[tuple[int, str], _Slice] = {}

    def refresh(self) -> None:
        """Look which slices there are.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        found = self._calls.ask("mig_slices", self._door.mig_slices, self._gpu)
        if found is None:
            return
        first = {one.gpu_instance: one for one in sorted(found, key=lambda one: -one.compute_instance)}
        present = {(instance, one.uuid): one for instance, one in sorted(first.items())}
        for key in self._slices.keys() - present.keys():
            self._slices.pop(key).meter.close()
        for key, one in present.items():
            if key in self._slices:
                self._slices[key].handle = one.handle
            else:
                self._slices[key] = _Slice(self._door, self._gpu, self._name, one, self._watch)

    def fast(self, labels: Labels) -> Iterator[Reading]:
        """What happened in each instance since the last call."""
        for (instance, _), slice_ in self._slices.items():
            yield from slice_.meter.read((*labels, ("mig", str(instance))))

    def slow(self, labels: Labels) -> Iterator[Reading]:
        """The memory of each instance."""
        for (instance, _), slice_ in self._slices.items():
            yield from memory_readings(self._door, slice_.handle, slice_.calls, (*labels, ("mig", str(instance))))

    def take_problems(self) -> list[str]:
        """One sentence for each call that failed since the last time."""
        return [problem for slice_ in self._slices.values() for problem in slice_.calls.take_problems()]

    def close(self) -> None:
        """Give back what is held."""
        for slice_ in self._slices.values():
            slice_.meter.close()
        self._slices = {}
