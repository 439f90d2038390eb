"""The GPU collector.

All calls are made by one thread, one after the other, because NVML's calls wait for each other anyhow, and because
one that hangs can be neither cancelled nor waited for.
"""

import time
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.calls import CallWatch, Clock
from cyclewatch.collectors.gpu.capabilities import Support
from cyclewatch.collectors.gpu.connection import Connection
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.gpu.events import WAIT_S, XidQueue
from cyclewatch.collectors.gpu.pynvml_door import PynvmlDoor
from cyclewatch.collectors.gpu.quantities import QUANTITIES
from cyclewatch.collectors.gpu.session import Session
from cyclewatch.collectors.gpu.worker import Worker
from cyclewatch.collectors.records import Sample
from cyclewatch.config.settings import Gpu

DEADLINE_S = 2.0
"""How long a call is waited for."""


class GpuCollector:
    """Reads all GPUs of the node through NVML.

    A node without a driver gives `NoData`; a GPU that is lost, a call that fails or hangs gives a `Failure`, and
    everything else goes on.
    """

    name = "gpu"
    quantities = QUANTITIES

    def __init__(
        self,
        settings: Gpu,
        discovery: Discovery,
        proc: Path,
        door: NvmlDoor | None = None,
        clock: Clock = time.monotonic_ns,
        *,
        deadline_s: float = DEADLINE_S,
        event_wait_s: float = WAIT_S,
    ) -> None:
        self.interval_s = settings.interval_s
        self._settings = settings
        self._discovery = discovery
        self._proc = proc
        self._door = door or PynvmlDoor()
        self._clock = clock
        self._deadline_s = deadline_s
        self._event_wait_s = event_wait_s
        self._begin()

    def collect(self, now: Now) -> list[Sample]:
        """What is due, and the XIDs since the last time; what NVML does not answer in time is left out, and said.

        Intervals are measured at the moment of each call, not with `now`.
        """
        del now
        samples = self._worker.run(self._connection.turn)
        return [*samples, *self._xids.take()]

    def close(self) -> None:
        """Shut NVML down and end the threads; what hangs is left to itself. The next call begins anew."""
        self._worker.close(self._connection.close)
        self._begin()

    def capabilities(self) -> dict[str, dict[str, Support]]:
        """What each GPU can tell, by call and field, as far as it was asked."""
        return self._connection.capabilities()

    def _begin(self) -> None:
        watch = CallWatch(self._clock)
        xids = XidQueue()

        def session() -> Session:
            return Session(self._door, self._settings, self._discovery, self._proc, watch, xids, self._event_wait_s)

        self._xids = xids
        self._worker = Worker(watch, self._deadline_s)
        self._connection = Connection(session, self._clock)
