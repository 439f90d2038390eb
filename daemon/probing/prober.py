"""The prober: takes a probe now and then, on suspicion and when asked, and never beside a kernel profile."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.probe.programs import ProbeError
from cyclewatch.collectors.records import Reading
from cyclewatch.config.settings import Probe
from cyclewatch.daemon.control import Answer
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.probing.decide import Reason, Situation, cpu_pressure, reason_for, too_soon
from cyclewatch.daemon.probing.taking import Probed, Taking
from cyclewatch.daemon.reports.probe import probe_document
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.probes import ProbeHistory

log = structlog.get_logger(__name__)

_TICK_S = 2.0
_SETTLE_NS = 60 * 10**9
"""A daemon that has just started knows neither the load of the node nor what is suspected."""

_STOP_S = 10.0


class Gate(Protocol):
    """One of kernel profiles, pauses and probes at a time."""

    def hold(self) -> bool:
        """Let none of the others begin until `release`; False where one is under way."""
        ...

    def release(self) -> None:
        """Let them begin again."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What the prober asks of the rest of the daemon, from its own thread.

    `readings` are the latest of the node, `suspected` tells whether any series is under suspicion at an instant
    (monotonic), `gate` keeps a probe from what may not be beside it.
    """

    readings: Callable[[], Sequence[Reading]]
    suspected: Callable[[int], bool]
    gate: Gate


class Prober:
    """Runs in a thread of its own; `answer` is called from others. What is read goes to `take`."""

    def __init__(
        self,
        settings: Probe,
        history: ProbeHistory,
        surroundings: Surroundings,
        take: Callable[[Reading], None],
        metrics: Metrics,
        clock: Callable[[], Now],
    ) -> None:
        self._settings = settings
        self._history = history
        self._around = surroundings
        self._take = take
        self._metrics = metrics
        self._clock = clock
        self._stopping = threading.Event()
        self._taking = Taking(settings, history.before, self._stopping)
        self._begin_ns = clock().monotonic_ns + _SETTLE_NS
        self._last_ns: int | None = None
        self._known: int | None = None
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)

    def start(self) -> None:
        """Take probes from now on, if that is wanted."""
        if self._settings.enabled:
            self._thread.start()

    def stop(self) -> None:
        """Take no more; one under way is ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def answer(self, question: Mapping[str, Any]) -> Answer | None:
        """Take the probe that the command line asks for; None for a question about something else."""
        match question:
            case {"do": "probe", "gpu": bool(gpu)}:
                return self._asked(gpus=gpu)
        return None

    def tick(self) -> None:
        """One look: is there a reason, and nothing against it?"""
        now = self._clock()
        if now.monotonic_ns < self._begin_ns or too_soon(self._age_s(now), self._settings):
            return  # most of the time: to look at the situation means to look at all readings
        reason = reason_for(self._situation(now), self._settings)
        if reason is not None and self._around.gate.hold():
            try:
                self._probe(reason, gpus=self._settings.gpu)
            except ProbeError as error:
                log.warning("no probe", why=reason.value, reason=str(error))
            finally:
                self._around.gate.release()

    def _run(self) -> None:
        while not self._stopping.wait(_TICK_S):
            try:
                self.tick()
            except Exception:
                log.exception("the prober failed; it goes on")

    def _age_s(self, now: Now) -> float:
        return math.inf if self._last_ns is None else (now.monotonic_ns - self._last_ns) / 1e9

    def _situation(self, now: Now) -> Situation:
        if self._known is None:
            self._remember(now)
        return Situation(
            suspected=self._around.suspected(now.monotonic_ns),
            age_s=self._age_s(now),
            known=self._known or 0,
            cpu_pressure=cpu_pressure(self._around.readings()),
        )

    def _remember(self, now: Now) -> None:
        """What daemons before this one have probed."""
        self._known = 0
        try:
            times = [trace.at_ns for trace in self._history.before(now.wall_ns)]
        except SQLAlchemyError as error:
            log.warning("the probe's history cannot be read", reason=reason_of(error))
            return
        if times:
            self._known = max(len(at_ns) for at_ns in times)
            self._last_ns = max(int(at_ns[-1]) for at_ns in times) - now.wall_ns + now.monotonic_ns

    def _asked(self, *, gpus: bool) -> Answer:
        if not self._around.gate.hold():
            return {"error": "a kernel profile, a probe or a pause is under way: try again in some seconds"}
        try:
            return {"probe": probe_document(self._probe(Reason.ASKED, gpus=gpus))}
        except ProbeError as error:
            return {"error": str(error)}
        finally:
            self._around.gate.release()

    def _probe(self, reason: Reason, *, gpus: bool) -> Probed:
        now = self._clock()
        self._last_ns = now.monotonic_ns  # also where it fails: it is not tried again at once
        probed = self._taking.take(reason, now.wall_ns, self._around.readings(), gpus=gpus)
        if self._known is not None:  # else the store is asked for all of them at the next look
            self._known += 1
        for reading in probed.readings:
            self._take(reading)
        self._metrics.probes.labels(reason.value, probed.verdict.value).inc()
        slower = {_place(one.name, one.labels): f"{one.factor:.2f}" for one in probed.comparisons if one.slower}
        log.info("probe", why=reason.value, verdict=probed.verdict.value, slower=slower, notes=list(probed.notes))
        return probed


def _place(name: str, labels: Mapping[str, str]) -> str:
    return " ".join((name, *(value for label, value in labels.items() if label != "software")))
