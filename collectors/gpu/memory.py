"""How full the memory of a GPU or of a MIG slice is."""

from collections.abc import Iterator

from cyclewatch.collectors.gpu.calls import GpuCalls
from cyclewatch.collectors.gpu.door import Handle, NvmlDoor
from cyclewatch.collectors.records import NODE, Reading

BYTES_MAX = 2**50


def memory_readings(
    door: NvmlDoor, gpu: Handle, calls: GpuCalls, labels: tuple[tuple[str, str], ...]
) -> Iterator[Reading]:
    """Bytes used and there, and the share; nothing where they make no sense."""
    memory = calls.ask("memory", door.memory, gpu)
    if memory is None or not 0 <= memory.used <= memory.total <= BYTES_MAX or not memory.total:
        return
    yield Reading(NODE, "gpu.memory_used_bytes", float(memory.used), labels)
    yield Reading(NODE, "gpu.memory_total_bytes", float(memory.total), labels)
    yield Reading(NODE, "gpu.memory_used_ratio", memory.used / memory.total, labels)
