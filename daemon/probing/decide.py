"""When a probe is taken, and which GPUs it may touch: decisions alone, no clock, no files."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.collectors.records import NODE, Reading
from cyclewatch.config.settings import Probe
from cyclewatch.detectors.probe import HISTORY_MIN

_GIB = 2**30


class Reason(StrEnum):
    """Why a probe is taken."""

    ASKED = "asked"
    SUSPICION = "suspicion"
    BASELINE = "baseline"


@dataclass(frozen=True)
class Situation:
    """How it stands.

    `age_s` is since the last probe, infinite for none; `known` counts earlier ones; `cpu_pressure` is the share of the
    time in which work of the node waits for a CPU, None where nobody knows.
    """

    suspected: bool
    age_s: float
    known: int
    cpu_pressure: float | None


def too_soon(age_s: float, settings: Probe) -> bool:
    """Whether there can be no reason so soon after the last probe, however it stands otherwise."""
    return age_s < settings.suspicion_interval_s


def reason_for(situation: Situation, settings: Probe) -> Reason | None:
    """Why a probe should be taken now, if one should."""
    if too_soon(situation.age_s, settings):
        return None
    if situation.suspected:
        return Reason.SUSPICION
    if situation.cpu_pressure is not None and situation.cpu_pressure > settings.max_cpu_pressure:
        return None
    if situation.known < HISTORY_MIN or situation.age_s >= settings.interval_s:
        return Reason.BASELINE
    return None


def cpu_pressure(readings: Iterable[Reading]) -> float | None:
    """Share of the time in which some work of the node waited for a CPU, as last read."""
    wanted = {("resource", "cpu"), ("kind", "some")}
    for reading in readings:
        if reading.target == NODE and reading.name == "host.pressure_ratio" and set(reading.labels) == wanted:
            return reading.value
    return None


@dataclass(frozen=True)
class GpuState:
    """A GPU as it was last read: bytes free, and the share in use; None for what is not known."""

    free_bytes: float | None = None
    load: float | None = None
    sliced: bool = False

    def obstacle(self, settings: Probe) -> str:
        """What stands against a probe of it; empty where nothing does."""
        if self.sliced:
            return "it is cut into MIG slices"
        if self.free_bytes is None or self.load is None:
            return "its memory or its load is not known"
        if self.free_bytes < settings.gpu_free_bytes:
            needed = settings.gpu_free_bytes / _GIB
            return f"{self.free_bytes / _GIB:.1f} GiB of its memory are free, {needed:.1f} are needed"
        if self.load > settings.max_gpu_load:
            return f"{self.load:.0%} of it are in use, at most {settings.max_gpu_load:.0%} may be"
        return ""


def gpu_states(readings: Iterable[Reading]) -> dict[str, GpuState]:
    """Every GPU of the node by its number, in order.

    The load is the share of the multiprocessors that were busy where the chip tells it, else the share of the time in
    which any kernel ran.
    """
    values: dict[str, dict[str, float]] = {}
    for reading in readings:
        labels = dict(reading.labels)
        if reading.name.startswith("gpu.") and "gpu" in labels and labels.keys() <= {"gpu", "mig"}:
            of_gpu = values.setdefault(labels["gpu"], {})
            of_gpu["mig" if "mig" in labels else reading.name] = reading.value
    return {gpu: _state(values[gpu]) for gpu in sorted(values, key=lambda name: (len(name), name))}


def _state(values: dict[str, float]) -> GpuState:
    total, used = values.get("gpu.memory_total_bytes"), values.get("gpu.memory_used_bytes")
    return GpuState(
        free_bytes=total - used if total is not None and used is not None else None,
        load=values.get("gpu.sm_ratio", values.get("gpu.utilization_ratio")),
        sliced="mig" in values,
    )
