"""XID errors, waited for in a thread of its own: NVML's wait blocks, and knows only what happens during it."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence

from cyclewatch.collectors.gpu.calls import NONSENSE
from cyclewatch.collectors.gpu.door import NO_INSTANCE, XID, Code, Event, Handle, NvmlDoor, NvmlError
from cyclewatch.collectors.gpu.xids import meaning
from cyclewatch.collectors.records import NODE, Happening

WAIT_S = 1.0
PENDING_MAX = 1000
"""XIDs kept between two collections: a storm of them is one message, not a leak."""

_ENDED = {Code.UNINITIALIZED, Code.INVALID_ARGUMENT, Code.FUNCTION_NOT_FOUND, Code.NOT_SUPPORTED}


class XidQueue:
    """XIDs on their way from the thread that hears of them to whoever tells them.

    It outlives every initialisation of NVML and every call that hangs: those are when XIDs matter most.
    """

    def __init__(self) -> None:
        self._waiting: queue.Queue[Happening] = queue.Queue(PENDING_MAX)

    def put(self, xid: Happening) -> None:
        """Add one; of a storm of them, those beyond `PENDING_MAX` are dropped."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(xid)

    def take(self) -> list[Happening]:
        """The XIDs since the last time."""
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]


class XidWatch:
    """Waits for XIDs of GPUs from its making to its `stop`; a new one is made when NVML is initialised anew."""

    def __init__(
        self,
        door: NvmlDoor,
        gpus: Sequence[tuple[int, Handle]],
        found: XidQueue,
        wait_s: float = WAIT_S,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._door = door
        self._gpus = gpus
        self._found = found
        self._wait_s = wait_s
        self._wall = wall
        self._stop = threading.Event()
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which takes a wait at most."""
        self._stop.set()
        self._thread.join(2 * self._wait_s)

    def _run(self) -> None:
        try:
            events = self._door.event_set()
        except (NvmlError, *NONSENSE) as error:
            self.problem = f"XID errors cannot be watched: {error}"
            return
        watched = sum(self._registered(events, gpu) for _, gpu in self._gpus)
        if watched < len(self._gpus):
            self.problem = f"XID errors of {len(self._gpus) - watched} of {len(self._gpus)} GPUs cannot be watched"
        while watched and not self._stop.is_set():
            self._wait(events)
        try:
            self._door.event_free(events)
        except (NvmlError, *NONSENSE):
            return  # gone with the driver

    def _registered(self, events: Handle, gpu: Handle) -> bool:
        try:
            self._door.event_register(events, gpu, XID)
        except (NvmlError, *NONSENSE):
            return False
        return True

    def _wait(self, events: Handle) -> None:
        try:
            event = self._door.event_wait(events, int(self._wait_s * 1000))
        except (NvmlError, *NONSENSE) as error:
            if isinstance(error, NvmlError) and error.code in _ENDED:
                self.problem = f"XID errors are no longer watched: {error}"
                self._stop.set()
            self._stop.wait(self._wait_s)  # an error comes at once: do not turn without rest
            return
        if event is not None and event.kind & XID:
            self._note(event)

    def _note(self, event: Event) -> None:
        index = next((index for index, gpu in self._gpus if gpu == event.gpu), None)
        slice_ = f" in MIG instance {event.gpu_instance}" if event.gpu_instance != NO_INSTANCE else ""
        subject = "gpu" if index is None else f"gpu{index}"
        self._found.put(Happening(NODE, "xid", subject, meaning(event.data) + slice_, self._wall()))
