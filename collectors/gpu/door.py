"""The door to NVML: the few calls that are used, in plain types, and nothing of ctypes behind it.

Names and meanings are those of nvml.h. A door may be called from one thread at a time, but for `event_wait`, which
has a thread of its own, as NVML allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol

Handle = object
"""A GPU, a MIG slice, an event set or a GPM buffer, as the door gave it; only the door looks inside."""

ALL_LINKS = 0xFFFFFFFF
"""Scope of a field that adds up all NVLinks (UINT_MAX in nvml.h)."""
XID = 0x8
"""The event type of XID errors."""
NO_INSTANCE = 0xFFFFFFFF
"""What stands for no MIG instance."""


class Code(IntEnum):
    """Those of NVML's return codes (nvmlReturn_t) that mean something to us."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


_CODE_NAMES = {int(code): code.name.lower().replace("_", " ") for code in Code}


class NvmlError(Exception):
    """A call gave another code than success."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"{_CODE_NAMES.get(self.code, 'error')} (NVML {self.code})"


class Number(StrEnum):
    """What one call answers with one number."""

    SM_CLOCK = "sm_clock"
    """MHz, as the other clocks."""
    MEMORY_CLOCK = "memory_clock"
    SM_CLOCK_MAX = "sm_clock_max"
    MEMORY_CLOCK_MAX = "memory_clock_max"
    EVENT_REASONS = "event_reasons"
    """Bits: nvmlClocksEventReason*."""
    THROTTLE_REASONS = "throttle_reasons"
    """The same under the name that older drivers know."""
    POWER = "power"
    """Milliwatts, as the limits."""
    POWER_LIMIT = "power_limit"
    POWER_LIMIT_DEFAULT = "power_limit_default"
    POWER_LIMIT_ENFORCED = "power_limit_enforced"
    TEMPERATURE = "temperature"
    """Degrees Celsius, as the other temperatures."""
    TEMPERATURE_V1 = "temperature_v1"
    """The same by the call that CUDA 13 deprecates."""
    TEMPERATURE_MARGIN = "temperature_margin"
    """Degrees left to the nearest slowdown (T.limit)."""
    TEMPERATURE_SLOWDOWN = "temperature_slowdown"
    PCIE_GENERATION = "pcie_generation"
    PCIE_GENERATION_MAX = "pcie_generation_max"
    PCIE_WIDTH = "pcie_width"
    PCIE_WIDTH_MAX = "pcie_width_max"
    PERSISTENCE_MODE = "persistence_mode"
    """1 is on, as for the other modes."""
    ECC_MODE = "ecc_mode"
    MIG_MODE = "mig_mode"
    CUDA_DRIVER = "cuda_driver"
    """Of the system, not of a GPU: 1000 times the major version and 10 times the minor one."""


class Text(StrEnum):
    """What one call answers in words."""

    NAME = "name"
    UUID = "uuid"
    VBIOS = "vbios"
    DRIVER = "driver"
    """Of the system, not of a GPU, as the next."""
    NVML = "nvml"


class Field(NamedTuple):
    """One of the values of nvmlDeviceGetFieldValues (NVML_FI_*); `scope` is a link, or 0."""

    number: int
    scope: int = 0


class Answer(NamedTuple):
    """One value of several that a call gives; it means nothing where `code` is not success."""

    value: float
    code: int = Code.SUCCESS


class Memory(NamedTuple):
    """Bytes of a GPU or of a MIG slice."""

    total: int
    used: int


class Utilization(NamedTuple):
    """Percent of the last sampling time in which any kernel ran, and in which memory was read or written."""

    gpu: int
    memory: int


class ProcessMemory(NamedTuple):
    """A process with a context on the GPU, by its number on the host; `used` is -1 where it is not told."""

    pid: int
    used: int


class ProcessUse(NamedTuple):
    """Percent of the SMs that a process used in one of the driver's samples, taken at `at_us` of its clock."""

    pid: int
    at_us: int
    sm: int


@dataclass(frozen=True)
class MigSlice:
    """A MIG device: a compute instance of a GPU instance."""

    handle: Handle
    uuid: str
    gpu_instance: int
    compute_instance: int


class Event(NamedTuple):
    """What an event set gave: the GPU, the type, for an XID its number, and the MIG instance or `NO_INSTANCE`."""

    gpu: Handle
    kind: int
    data: int
    gpu_instance: int = NO_INSTANCE


class NvmlDoor(Protocol):
    """NVML. Every call raises `NvmlError`, and may take its time."""

    def open(self) -> None:
        """Load the library and initialise it."""
        ...

    def close(self) -> None:
        """Shut NVML down; all handles are void."""
        ...

    def gpu_count(self) -> int:
        """GPUs of the node."""
        ...

    def gpu(self, index: int) -> Handle:
        """The GPU of that index, from 0."""
        ...

    def number(self, gpu: Handle | None, query: Number) -> int:
        """The answer to `query`; `gpu` is None for what the system is asked."""
        ...

    def text(self, gpu: Handle | None, query: Text) -> str:
        """The answer to `query`; `gpu` is None for what the system is asked."""
        ...

    def fields(self, gpu: Handle, fields: Sequence[Field]) -> list[Answer]:
        """The values of many fields in one call, in their order.

        Bytes over PCIe in 32 bits are not supported: PCIe wraps such a counter in a fraction of a second, so that
        nothing can be told from two readings of it.
        """
        ...

    def memory(self, gpu: Handle) -> Memory:
        """Memory of a GPU or MIG slice; what the driver keeps for itself is not `used`."""
        ...

    def utilization(self, gpu: Handle) -> Utilization:
        """How busy the GPU was; not supported while MIG is on."""
        ...

    def processes(self, gpu: Handle) -> list[ProcessMemory]:
        """Processes that compute on the GPU. Slow: milliseconds."""
        ...

    def process_use(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """Samples after `since_us`, from nvmlDeviceGetProcessesUtilizationInfo."""
        ...

    def process_use_v1(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """The same from nvmlDeviceGetProcessUtilization, which newer chips leave empty."""
        ...

    def mig_slices(self, gpu: Handle) -> list[MigSlice]:
        """The MIG devices that exist at present."""
        ...

    def gpm_supported(self, gpu: Handle) -> bool:
        """Whether the chip has GPU performance monitoring (Hopper and later)."""
        ...

    def gpm_buffer(self) -> Handle:
        """Room for one sample; to be given back with `gpm_free`."""
        ...

    def gpm_free(self, buffer: Handle) -> None:
        """Give a buffer back."""
        ...

    def gpm_sample(self, gpu: Handle, gpu_instance: int | None, buffer: Handle) -> None:
        """Fill a buffer, for the whole GPU or for one of its MIG instances."""
        ...

    def gpm_metrics(self, older: Handle, newer: Handle, metrics: Sequence[int]) -> list[Answer]:
        """What happened between two samples, for each metric (NVML_GPM_METRIC_*)."""
        ...

    def event_set(self) -> Handle:
        """A set to wait on; to be given back with `event_free`."""
        ...

    def event_free(self, events: Handle) -> None:
        """Give a set back."""
        ...

    def event_register(self, events: Handle, gpu: Handle, kinds: int) -> None:
        """Have the events of these types, as far as the GPU has them, end up in the set."""
        ...

    def event_wait(self, events: Handle, timeout_ms: int) -> Event | None:
        """The next event, or None where none came in that time."""
        ...
