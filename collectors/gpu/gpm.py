"""GPU performance monitoring (Hopper and later): what happened on the chip between two samples of its counters."""

import contextlib
import math
from collections.abc import Iterator

from cyclewatch.collectors.gpu.calls import GpuCalls
from cyclewatch.collectors.gpu.door import Code, Handle, NvmlDoor, NvmlError
from cyclewatch.collectors.gpu.fields import BYTES_PER_S_MAX
from cyclewatch.collectors.records import NODE, Reading

WINDOW_MIN_NS = 100_000_000
"""Samples that are closer together give nothing of use (nvml.h)."""
WINDOW_MAX_NS = 60_000_000_000
"""A longer window comes from a machine that slept, or from calls that rested: not of the present."""

SAMPLE = "gpm_sample"
"""The call that samples a whole GPU."""

_MIB = 2.0**20
_METRICS = {
    2: ("gpu.sm_ratio", 0.01, 1.0),
    3: ("gpu.sm_occupancy_ratio", 0.01, 1.0),
    5: ("gpu.tensor_ratio", 0.01, 1.0),
    10: ("gpu.memory_bandwidth_ratio", 0.01, 1.0),
    20: ("gpu.pcie_sent_bytes_per_s", _MIB, BYTES_PER_S_MAX),
    21: ("gpu.pcie_received_bytes_per_s", _MIB, BYTES_PER_S_MAX),
    61: ("gpu.nvlink_sent_bytes_per_s", _MIB, BYTES_PER_S_MAX),
    60: ("gpu.nvlink_received_bytes_per_s", _MIB, BYTES_PER_S_MAX),
}
"""NVML_GPM_METRIC_*: its reading, what NVML's percent and MiB/s are multiplied by, and the largest value."""
_NUMBERS = tuple(_METRICS)
_ROUNDING = 1.01
"""A share may come out a little above one."""


class GpmMeter:
    """One GPU's, or one MIG instance's, two buffers: one has the last sample, the other takes the next."""

    def __init__(self, door: NvmlDoor, gpu: Handle, gpu_instance: int | None, calls: GpuCalls) -> None:
        self._door = door
        self._gpu = gpu
        self._gpu_instance = gpu_instance
        self._calls = calls
        # A MIG instance is asked by a call of its own, which may be refused where that of the GPU is not.
        self._call = SAMPLE if gpu_instance is None else "gpm_mig_sample"
        self._buffers: list[Handle] = []
        self._sampled_ns: int | None = None

    def read(self, labels: tuple[tuple[str, str], ...]) -> Iterator[Reading]:
        """Means since the last call that gave a sample; nothing at the first.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        while len(self._buffers) < 2:  # noqa: PLR2004 (the last sample and the next)
            buffer = self._calls.ask("gpm_buffer", self._door.gpm_buffer)
            if buffer is None:
                return
            self._buffers.append(buffer)
        last_ns, now_ns = self._sampled_ns, self._calls.clock()
        if last_ns is not None and 0 <= now_ns - last_ns < WINDOW_MIN_NS:
            return
        older, newer = self._buffers
        if self._calls.ask(self._call, self._sample, newer) is None:
            return
        self._buffers = [newer, older]
        self._sampled_ns = now_ns
        if last_ns is None or not 0 < now_ns - last_ns <= WINDOW_MAX_NS:
            return
        answers = self._calls.ask("gpm_metrics", self._door.gpm_metrics, older, newer, _NUMBERS)
        for (reading, scale, top), (value, code) in zip(_METRICS.values(), answers or (), strict=False):
            scaled = value * scale
            if code == Code.SUCCESS and math.isfinite(scaled) and 0 <= scaled <= top * _ROUNDING:
                yield Reading(NODE, reading, min(scaled, top), labels)

    def _sample(self, buffer: Handle) -> bool:
        """Fill the buffer; true, so that success can be told from none."""
        self._door.gpm_sample(self._gpu, self._gpu_instance, buffer)
        return True

    def close(self) -> None:
        """Give the buffers back; failures do not matter any more."""
        for buffer in self._buffers:
            with contextlib.suppress(NvmlError):
                self._door.gpm_free(buffer)
        self._buffers = []
