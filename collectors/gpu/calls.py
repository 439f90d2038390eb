"""Asking NVML: every call is timed, watched while it lasts, rested when slow, and left out where it is refused."""

import time
from collections.abc import Callable
from typing import TypeVar

from cyclewatch.collectors.gpu.backoff import Pace
from cyclewatch.collectors.gpu.capabilities import CapabilityMap, Support, refusal
from cyclewatch.collectors.gpu.door import Code, NvmlError

Result = TypeVar("Result")
Clock = Callable[[], int]
"""Monotonic nanoseconds."""

REFUSAL_NS = 3600 * 1_000_000_000
"""How long a refused call is not asked: permissions and modes of a GPU change seldom, but they do."""
NONSENSE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""What a binding may raise besides, over an answer that makes no sense."""

_LIBRARY_GONE = {Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH, Code.LIBRARY_NOT_FOUND}
# nvidia-ml-py raises success where a list of samples is empty.
_NOTHING_YET = {Code.SUCCESS, Code.NOT_FOUND, Code.NO_DATA, Code.NOT_READY}
_GPU_GONE = {Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.GPU_NOT_FOUND}


class LibraryGoneError(Exception):
    """NVML as a whole does not answer any more, and must be initialised anew."""

    def __init__(self, error: NvmlError) -> None:
        super().__init__(str(error))
        self.code = error.code


class GpuGoneError(Exception):
    """One GPU does not answer any more."""

    def __init__(self, error: NvmlError) -> None:
        super().__init__(str(error))
        self.code = error.code


class CallWatch:
    """Which call is under way, and what the calls of all GPUs took since this was last taken away.

    `serial` counts the calls: as long as it stands still, the same call, or none, is under way.
    """

    def __init__(self, clock: Clock = time.monotonic_ns) -> None:
        self.clock = clock
        self.current = ""
        self.serial = 0
        self.ended_ns = 0
        self.last_ns = 0
        self._busy_ns = 0
        self._slowest: tuple[int, str] = (0, "")

    def call(self, name: str, function: Callable[..., Result], *arguments: object) -> Result:
        """Call, and leave in `last_ns` how long it took, and in `ended_ns` when it ended.

        Raises:
            Exception: what the call raises.
        """
        self.serial += 1
        self.current = name
        started_ns = self.clock()
        try:
            return function(*arguments)
        finally:
            self.current = ""
            self.ended_ns = self.clock()
            self.last_ns = self.ended_ns - started_ns
            self._busy_ns += self.last_ns
            self._slowest = max(self._slowest, (self.last_ns, name))

    def take(self) -> tuple[int, int, str]:
        """Nanoseconds in all calls, those of the slowest call and its name, since the last time."""
        taken = (self._busy_ns, *self._slowest)
        self._busy_ns, self._slowest = 0, (0, "")
        return taken


class GpuCalls:
    """The calls of one GPU."""

    def __init__(self, gpu: str, watch: CallWatch) -> None:
        self.capabilities = CapabilityMap()
        self.clock = watch.clock
        self._gpu = gpu
        self._watch = watch
        self._paces: dict[str, Pace] = {}
        self._problems: dict[str, str] = {}

    def ask(self, name: str, function: Callable[..., Result], *arguments: object) -> Result | None:
        """The answer; None where there is none at present: the call is refused, rests, or failed.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        pace = self._paces.get(name)
        if pace is None:
            pace = self._paces[name] = Pace()
        if self.clock() < pace.due_ns:
            return None
        try:
            answer = self._watch.call(name, function, *arguments)
        except NvmlError as error:
            if self.failed(name, error.code):
                pace.due_ns = self._watch.ended_ns + REFUSAL_NS
            else:
                pace.took(self._watch.last_ns, self._watch.ended_ns)
            return None
        except NONSENSE as error:
            self._problems[name] = f"gave nonsense: {type(error).__name__}: {error}"
            return None
        pace.took(self._watch.last_ns, self._watch.ended_ns)
        self.capabilities.note(name, Support.YES)
        return answer

    def first(self, *ways: tuple[str, Callable[..., Result], *tuple[object, ...]]) -> Result | None:
        """The answer of the first way that is not refused; each is a name, a function and its arguments."""
        for name, function, *arguments in ways:
            answer = self.ask(name, function, *arguments)
            if not self.capabilities.refused(name):
                return answer
        return None

    def failed(self, name: str, code: int) -> bool:
        """Judge the failure of a call, or of one field of it; tells whether it is a refusal.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        if code in _LIBRARY_GONE:
            raise LibraryGoneError(NvmlError(code))
        if code in _GPU_GONE:
            raise GpuGoneError(NvmlError(code))
        support = refusal(code)
        if support is not None:
            self.capabilities.note(name, support)
        elif code not in _NOTHING_YET:
            self._problems[name] = f"failed: {NvmlError(code)}"
        return support is not None

    def take_problems(self) -> list[str]:
        """One sentence for each call that failed since the last time."""
        problems, self._problems = self._problems, {}
        return [f"{self._gpu}: {name} {problem}" for name, problem in problems.items()]
