"""NVML from one initialisation to its end: which GPUs there are, which loop is due, and what to do when one is gone."""

from collections.abc import Iterable
from pathlib import Path

from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.calls import NONSENSE, CallWatch, GpuCalls, GpuGoneError
from cyclewatch.collectors.gpu.device import Device
from cyclewatch.collectors.gpu.door import Code, Number, NvmlDoor, NvmlError, Text
from cyclewatch.collectors.gpu.events import XidQueue, XidWatch
from cyclewatch.collectors.gpu.processes import GpuProcesses, Owners
from cyclewatch.collectors.gpu.quantities import STEADY
from cyclewatch.collectors.gpu.steady import SteadyReadings
from cyclewatch.collectors.gpu.worker import Turn
from cyclewatch.collectors.records import NODE, Fact, Failure, NoData, Reading
from cyclewatch.config.settings import Gpu

PROCESSES_NS = 30_000_000_000
FACTS_NS = 60_000_000_000
GPUS_MAX = 1024

_MENDS: dict[int, str] = {
    Code.LIB_RM_VERSION_MISMATCH: "the driver was updated: load the new one or restart the node, then this daemon",
    Code.NO_PERMISSION: "let this user read and write /dev/nvidiactl and /dev/nvidia0 and so on",
    Code.GPU_IS_LOST: "it has fallen off the bus: see dmesg for NVRM and restart the node",
    Code.RESET_REQUIRED: "stop what uses it, this daemon too, and reset it: nvidia-smi --gpu-reset",
}


def sentence(what: str, code: int) -> str:
    """What failed, why, and the mend where one is known."""
    mend = _MENDS.get(code)
    return f"{what}: {NvmlError(code)}" + (f"; {mend}" if mend else "")


class _Due:
    """Something that is due again and again; a turn that comes a little early counts for the one meant."""

    def __init__(self, interval_ns: int, tolerance_ns: int) -> None:
        self._interval_ns = interval_ns
        self._tolerance_ns = tolerance_ns
        self._next_ns: int | None = None

    def now(self, now_ns: int) -> bool:
        """Whether it is; if so, it is next after the interval."""
        if self._next_ns is not None and now_ns < self._next_ns - self._tolerance_ns:
            return False
        self._next_ns = now_ns + self._interval_ns
        return True


class Session:
    """Reads all GPUs of a door that it opens, one turn at a time; the XIDs it hears of go into `xids`.

    Raises:
        NvmlError: NVML cannot be initialised.
        OSError: the same, said by the binding; `NONSENSE` has what else it may be.
    """

    def __init__(
        self,
        door: NvmlDoor,
        settings: Gpu,
        discovery: Discovery,
        proc: Path,
        watch: CallWatch,
        xids: XidQueue,
        event_wait_s: float,
    ) -> None:
        self._door = door
        self._discovery = discovery
        self._watch = watch
        self._system = GpuCalls("NVML", watch)
        self._processes = GpuProcesses(door, discovery, proc)
        self._steady = SteadyReadings()
        tolerance_ns = int(settings.interval_s * 5e8)
        self._slow = _Due(int(settings.slow_interval_s * 1e9), tolerance_ns)
        self._process_list = _Due(PROCESSES_NS, tolerance_ns)
        self._facts = _Due(FACTS_NS, tolerance_ns)
        self._listed_for: frozenset[int] = frozenset()
        self._unseen = ""
        self._told_ns: int | None = None
        self._slow_problems: dict[int, list[str]] = {}
        self.devices: dict[int, Device] = {}
        self.lost: dict[int, str] = {}
        """What to say of the GPUs that do not answer, by index."""
        watch.call("open", door.open)
        try:
            for index in range(min(watch.call("gpu_count", door.gpu_count), GPUS_MAX)):
                self._find(index)
        except (NvmlError, *NONSENSE):
            self._shut()
            raise
        gpus = [(device.index, device.handle) for device in self.devices.values()]
        self._xids = XidWatch(door, gpus, xids, event_wait_s)

    def _find(self, index: int) -> None:
        try:
            handle = self._watch.call("gpu", self._door.gpu, index)
        except NvmlError as error:
            if error.code == Code.UNINITIALIZED:
                raise
            self.lost[index] = sentence(f"GPU {index} cannot be read", error.code)
            return
        self.devices[index] = Device(self._door, handle, index, self._watch)

    def close(self) -> None:
        """Give all back."""
        self._xids.stop()
        for device in self.devices.values():
            device.close()
        self._shut()

    def _shut(self) -> None:
        try:
            self._watch.call("close", self._door.close)
        except (NvmlError, *NONSENSE):
            return  # gone with the driver; the next session initialises anew all the same

    def turn(self, turn: Turn) -> None:
        """Add what is due to the samples of the turn.

        Raises:
            LibraryGoneError: NVML does not answer any more; the session must be closed.
        """
        now_ns = self._watch.clock()
        slow, facts = self._slow.now(now_ns), self._facts.now(now_ns)
        schedulers = frozenset(process.pid for process in self._discovery.schedulers())
        listing = self._process_list.now(now_ns) or schedulers != self._listed_for
        owners = self._processes.owners() if listing else None
        self._listed_for = schedulers
        if facts:
            self._tell_of_the_system(turn)
        for device in list(self.devices.values()):
            if turn.abandoned:
                return
            try:
                self._read(device, turn, now_ns, owners, slow=slow, facts=facts)
            except GpuGoneError as error:
                self.lost[device.index] = sentence(f"GPU {device.index} does not answer any more", error.code)
                self.devices.pop(device.index).close()
        if owners is not None:
            self._unseen = owners.problem()
        if slow:
            lost = (Reading(NODE, "gpu.answering", 0.0, (("gpu", str(index)),)) for index in self.lost)
            self._tell(turn, [*lost, *self._time_in_nvml(now_ns)], now_ns)
        turn.samples += [Failure(f"gpu{index}", reason) for index, reason in self.lost.items()]
        turn.samples += [NoData(problem) for problem in (self._unseen, self._xids.problem) if problem]

    def _read(self, device: Device, turn: Turn, now_ns: int, owners: Owners | None, *, slow: bool, facts: bool) -> None:
        self._tell(turn, device.fast(), now_ns)
        problems = device.take_problems()
        if slow:
            self._tell(turn, device.slow(), now_ns)
            self._slow_problems[device.index] = device.take_problems()
        if owners is not None:
            self._tell(turn, self._processes.read(device, owners), now_ns)
        if facts:
            turn.samples += device.facts()
        # What failed in the slow loop stays told until that loop is run again, so that it does not flicker.
        for problem in (*problems, *self._slow_problems.get(device.index, ())):
            turn.samples.append(Failure(f"gpu{device.index}", problem))

    def _tell(self, turn: Turn, readings: Iterable[Reading], now_ns: int) -> None:
        for reading in readings:
            if reading.name not in STEADY or self._steady.is_news(reading, now_ns):
                turn.samples.append(reading)

    def _time_in_nvml(self, now_ns: int) -> Iterable[Reading]:
        busy_ns, slowest_ns, slowest = self._watch.take()
        since_ns, self._told_ns = self._told_ns, now_ns
        if since_ns is not None and now_ns > since_ns:
            yield Reading(NODE, "gpu.nvml_busy_ratio", busy_ns / (now_ns - since_ns))
        if slowest:
            yield Reading(NODE, "gpu.nvml_slowest_call_s", slowest_ns / 1e9, (("call", str(slowest)),))

    def _tell_of_the_system(self, turn: Turn) -> None:
        try:
            turn.samples += self._system_facts()
        except GpuGoneError as error:  # no GPU was asked
            turn.samples.append(Failure("nvml", sentence("NVML does not tell its version", error.code)))
        turn.samples += [Failure("nvml", problem) for problem in self._system.take_problems()]

    def _system_facts(self) -> Iterable[Fact]:
        yield Fact(NODE, "gpus", str(len(self.devices) + len(self.lost)))
        for subject, query in (("driver", Text.DRIVER), ("nvml", Text.NVML)):
            words = self._system.ask(query, self._door.text, None, query)
            if words:
                yield Fact(NODE, subject, words)
        cuda = self._system.ask(Number.CUDA_DRIVER, self._door.number, None, Number.CUDA_DRIVER)
        if cuda is not None and cuda > 0:
            yield Fact(NODE, "cuda", f"{cuda // 1000}.{cuda % 1000 // 10}")
