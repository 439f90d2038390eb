"""A probe without a daemon: nothing is kept, and what there is in the store is what it is compared with."""

import threading
import time

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.collector import GpuCollector
from cyclewatch.collectors.records import Reading
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.probing.decide import Reason
from cyclewatch.daemon.probing.taking import Probed, Taking
from cyclewatch.daemon.store.database import StoreError, open_database
from cyclewatch.daemon.store.probes import ProbeHistory
from cyclewatch.detectors.attribution import Trace


def probe_alone(settings: Settings, *, gpus: bool) -> Probed:
    """Take a probe in this process.

    Raises:
        ProbeError: not even the CPU's work could be done.
    """

    def before(at_ns: int) -> list[Trace]:
        try:
            engine = open_database(settings.database_url, create=False)
        except StoreError:
            return []  # no daemon has ever run here
        try:
            return ProbeHistory(engine).before(at_ns)
        finally:
            engine.dispose()

    known = _gpu_readings(settings) if gpus and settings.gpu.enabled else []
    taking = Taking(settings.probe, before, threading.Event())
    return taking.take(Reason.ASKED, time.time_ns(), known, gpus=gpus)


def _gpu_readings(settings: Settings) -> list[Reading]:
    """One look at the GPUs, as the daemon has it from its collector."""
    collector = GpuCollector(settings.gpu, Discovery(()), settings.host.proc)
    try:
        samples = collector.collect(Now(time.monotonic_ns(), time.time_ns()))
    finally:
        collector.close()
    return [one for one in samples if isinstance(one, Reading)]
