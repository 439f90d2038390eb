"""What every reader of kernel profiles gives: a `Profile`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ProfileError(ValueError):
    """The file is no profile that can be read; the message is one sentence that names the file and the reason."""


class ProfileFormat(StrEnum):
    """Who wrote the file."""

    KINETO = "kineto"
    NSYS = "nsys"
    TORCH_TABLE = "torch-table"
    ROCPROFV3 = "rocprofv3"


class KernelKind(StrEnum):
    """What ran."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    CPU_OP = "cpu_op"


class FlawKind(StrEnum):
    """What can be wrong with a profile that could be read."""

    NO_KERNELS = "no_kernels"
    INCOMPLETE = "incomplete"
    DROPPED = "dropped"
    CLOCK_JUMP = "clock_jump"
    OTHER_PROCESS = "other_process"
    INEXACT = "inexact"
    """Not wrong, but less than it looks: rounded figures, shortened names, steps by the launching thread."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong with a profile."""

    kind: FlawKind
    text: str
    """One sentence for people."""


@dataclass(frozen=True, slots=True)
class KernelUse:
    """All calls of one name on one device in one phase. Times are ``None`` where a table does not tell them."""

    name: str
    """As the file spells it."""
    kind: KernelKind
    device: str
    """The device's index in the file ("0"), "" where the file does not tell."""
    phase: str
    """"extend", "decode", ... of the steps that held the calls, "" outside of steps."""
    calls: int
    total_ns: int
    """The sum of the durations; of a CPU operator its self time, without the operators it called."""
    min_ns: int | None
    max_ns: int | None
    median_ns: int | None
    std_ns: float | None
    """Sample standard deviation (n-1)."""
    truncated: bool
    """The file cut the name."""
    source: str = ""
    """The source file, where the profile itself names one."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine: what its device did between two marks. Times are relative to the first event."""

    name: str
    phase: str
    """"extend", "decode", "mixed", "" where the name does not tell."""
    batch_size: int | None
    start_ns: int
    end_ns: int
    kernel_ns: int
    """Sum of the kernels' durations."""
    busy_ns: int
    """Length of the union of the kernels, by device."""


@dataclass(frozen=True, slots=True)
class GraphKernel:
    """One place in a graph, over all its replays."""

    name: str
    kind: KernelKind
    total_ns: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A CUDA or HIP graph: activities that one launch starts again and again, known by their order.

    The launch says nothing of which kernel is which; name and place do.
    """

    phase: str
    replays: int
    kernels: tuple[GraphKernel, ...]
    """In the order in which they begin."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole of a profile. With several devices, busy, idle and span are sums over them. ``None`` is unknown."""

    kernel_ns: int
    """Sum of the kernels' durations, without copies; overlapping kernels count twice."""
    calls: int
    """Kernels, without copies and CPU operators."""
    distinct: int
    """Different kernel names."""
    busy_ns: int | None = None
    """Length of the union of the kernels."""
    span_ns: int | None = None
    """From the beginning of the first kernel to the end of the last."""
    idle_ns: int | None = None
    """span - busy; the three that follow are its parts."""
    copying_ns: int | None = None
    """The idle time in which a copy or a fill ran."""
    waiting_for_host_ns: int | None = None
    """The idle time in which what came next had not been launched yet."""
    between_kernels_ns: int | None = None
    """The idle time in which what came next had been launched: dispatch, dependencies, gaps in a graph."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile of one process, in the order of total time."""

    format: ProfileFormat
    kernels: tuple[KernelUse, ...]
    totals: Totals
    steps: tuple[Step, ...] = ()
    graphs: tuple[Graph, ...] = ()
    flaws: tuple[Flaw, ...] = ()
    device: str = ""
    """The name of the GPU, "" where the file does not tell."""
    rank: str | None = None
    world_size: int | None = None
    pids: tuple[int, ...] = ()
    """The processes that the file names."""
    started_at_ns: int | None = None
    """The instant of the first event, nanoseconds since the Unix epoch (UTC), where the file tells it."""
    cycles: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many cycles the server made meanwhile, by phase, where whoever took the profile counted them."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The flaws as sentences."""
        return tuple(flaw.text for flaw in self.flaws)
