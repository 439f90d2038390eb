"""The connection to NVML: a session while there is one, and when to begin the next."""

from collections.abc import Callable

from cyclewatch.collectors.gpu.calls import NONSENSE, Clock, LibraryGoneError
from cyclewatch.collectors.gpu.capabilities import Support
from cyclewatch.collectors.gpu.door import Code, NvmlError
from cyclewatch.collectors.gpu.session import Session, sentence
from cyclewatch.collectors.gpu.worker import Turn
from cyclewatch.collectors.records import Failure, NoData, Sample

OPEN_AGAIN_NS = 30_000_000_000
"""Between two attempts to initialise NVML."""
LOST_AGAIN_NS = 300_000_000_000
"""Between two initialisations while a GPU is lost: they alone bring it back, and disturb the others a little."""

_ABSENT = {Code.LIBRARY_NOT_FOUND, Code.DRIVER_NOT_LOADED}


class Connection:
    """Opens sessions, and closes them when NVML, or one of its GPUs, is gone. Nothing of that leaves it but samples."""

    def __init__(self, open_session: Callable[[], Session], clock: Clock) -> None:
        self._open_session = open_session
        self._clock = clock
        self._session: Session | None = None
        self._tried_ns: int | None = None
        self._shut_for: Sample | None = None

    def turn(self, turn: Turn) -> None:
        """One turn of the session, or what to say as long as there is none."""
        now_ns = self._clock()
        if self._session is not None and self._session.lost and self._due(now_ns, LOST_AGAIN_NS):
            self.close()
        if self._session is None and self._due(now_ns, OPEN_AGAIN_NS):
            self._tried_ns = now_ns
            self._shut_for = self._open()
        if self._session is not None:
            try:
                self._session.turn(turn)
            except LibraryGoneError as error:
                self.close()
                self._tried_ns = now_ns
                self._shut_for = Failure("nvml", sentence("NVML does not answer any more", error.code))
        if self._shut_for is not None:
            turn.samples.append(self._shut_for)

    def capabilities(self) -> dict[str, dict[str, Support]]:
        """What each GPU can tell, by call and field, as far as it was asked."""
        devices = self._session.devices if self._session is not None else {}
        return {f"GPU {index}": dict(device.calls.capabilities.known) for index, device in devices.items()}

    def close(self) -> None:
        """Shut NVML down."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _due(self, now_ns: int, interval_ns: int) -> bool:
        return self._tried_ns is None or now_ns - self._tried_ns >= interval_ns

    def _open(self) -> Sample | None:
        try:
            session = self._open_session()
        except NvmlError as error:
            if error.code in _ABSENT:
                return NoData("no NVIDIA driver here: there is no GPU to read")
            return Failure("nvml", sentence("NVML cannot be initialised", error.code))
        except NONSENSE as error:
            return Failure("nvml", f"NVML cannot be initialised: {type(error).__name__}: {error}")
        if not session.devices and not session.lost:
            session.close()
            return NoData("the NVIDIA driver knows no GPU")
        self._session = session
        return None
