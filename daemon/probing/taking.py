"""One probe: the fixed work of the CPU and, where it is wanted and harmless, of the GPUs, against its history."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.probe.programs import ProbeError, StuckError, probe_cpu, probe_gpus
from cyclewatch.collectors.records import Reading
from cyclewatch.config.settings import Probe
from cyclewatch.daemon.probing.decide import Reason, gpu_states
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.detectors.attribution import Trace
from cyclewatch.detectors.probe import Comparison, Verdict, compare, verdict_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Probed:
    """One probe at an instant (UTC nanoseconds). `notes` are sentences on what is not in it, and why."""

    at_ns: int
    reason: Reason
    readings: tuple[Reading, ...]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """What it says of the machine."""
        return verdict_of(self.comparisons)


class Taking:
    """Takes probes, one at a time. `before` gives the history up to an instant; `stopping` ends a probe early."""

    def __init__(self, settings: Probe, before: Callable[[int], list[Trace]], stopping: threading.Event) -> None:
        self._settings = settings
        self._before = before
        self._stopping = stopping
        self._stuck = ""

    def take(self, reason: Reason, at_ns: int, known: Sequence[Reading], *, gpus: bool) -> Probed:
        """Take one now. `known` is what was last read of the node, by which GPUs are left alone.

        Raises:
            ProbeError: not even the CPU's work could be done.
        """
        notes: list[str] = []
        readings = list(probe_cpu(self._stopping))
        if gpus:
            readings += self._gpus(known, notes)
        return Probed(at_ns, reason, tuple(readings), self._compared(readings, at_ns, notes), tuple(notes))

    def _gpus(self, known: Sequence[Reading], notes: list[str]) -> Sequence[Reading]:
        states = gpu_states(known)
        obstacles = {gpu: state.obstacle(self._settings) for gpu, state in states.items()}
        notes += [f"GPU {gpu} was left alone: {obstacle}" for gpu, obstacle in obstacles.items() if obstacle]
        free = [gpu for gpu, obstacle in obstacles.items() if not obstacle]
        if not states:
            notes.append("no GPU was probed: none is read; see `cyclewatch doctor`")
        elif not self._settings.gpu_python:
            notes.append("no GPU was probed: probe.gpu_python is not set: name a Python that has torch, SGLang's own")
        elif self._stuck:
            notes.append(f"no GPU was probed: {self._stuck}")
        elif free:
            try:
                return probe_gpus(self._settings.gpu_python, free, self._stopping)
            except ProbeError as error:
                if isinstance(error, StuckError):
                    self._stuck = str(error)
                notes.append(f"no GPU was probed: {error}")
        return ()

    def _compared(self, readings: Sequence[Reading], at_ns: int, notes: list[str]) -> tuple[Comparison, ...]:
        past: dict[tuple[str, frozenset[tuple[str, str]]], Trace] = {}
        try:
            past = {(one.name, frozenset(one.labels.items())): one for one in self._before(at_ns)}
        except SQLAlchemyError as error:
            notes.append(f"there is nothing to compare with: {reason_of(error)}")
        none = np.zeros(0)
        return tuple(
            compare(
                one.name,
                dict(one.labels),
                one.value,
                past[key].values if (key := (one.name, frozenset(one.labels))) in past else none,
            )
            for one in readings
        )
