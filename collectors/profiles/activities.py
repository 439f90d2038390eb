"""What ran on the devices, as columns, and what can be said of it: the uses of each kernel, busy time, idle time."""

from array import array
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cyclewatch.collectors.profiles.records import KernelKind, KernelUse, ProfileError, Totals

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

KINDS = tuple(KernelKind)
KERNEL = KINDS.index(KernelKind.KERNEL)
CPU_OP = KINDS.index(KernelKind.CPU_OP)

NONE = -1
"""Of a correlation: the file tells none. Of a step or a launch: it has none."""

NEVER_NS = 2**62
"""Later than any event."""

MAX_DEVICES = 128
"""Each is looked at by itself; a merged trace has one a rank."""

_MAX_SUM_NS = 2.0**62
_MAX_NAMES = 200_000
_MAX_NAMES_CHARS = 64 << 20


@dataclass(frozen=True, slots=True)
class Activities:
    """Kernels, copies and fills of the devices, or operators of the CPU: columns of shape (n,), in order of start.

    `start_ns` and `end_ns` are relative to one instant of the file, at or before the first of them.
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    name: Integers
    """Index into `names`."""
    kind: Integers
    """Index into `KINDS`."""
    device: Integers
    """Index into `devices`."""
    start_ns: Integers
    end_ns: Integers
    correlation: Integers
    """The number of the launch, or `NONE`."""

    def __len__(self) -> int:
        return len(self.name)

    @property
    def duration_ns(self) -> Integers:
        """Shape (n,)."""
        return self.end_ns - self.start_ns

    @property
    def is_kernel(self) -> Bools:
        """Shape (n,)."""
        return np.equal(self.kind, KERNEL)


class Recorder:
    """Takes activities one by one, in any order, and keeps them in few bytes."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._names_chars = 0
        self._devices: dict[str, int] = {}
        self._columns = tuple(array("q") for _ in range(6))

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, name: str, kind: int, device: str, start_ns: int, duration_ns: int, correlation: int = NONE) -> None:
        """One activity; `kind` is an index into `KINDS`.

        Raises:
            ProfileError: there are more names or devices than any profile has.
        """
        names, kinds, devices, starts, durations, correlations = self._columns
        index = self._names.get(name)
        names.append(self._add_name(name) if index is None else index)
        kinds.append(kind)
        index = self._devices.get(device)
        devices.append(self._add_device(device) if index is None else index)
        starts.append(start_ns)
        durations.append(duration_ns)
        correlations.append(correlation)

    def _add_name(self, name: str) -> int:
        self._names_chars += len(name)
        if len(self._names) == _MAX_NAMES or self._names_chars > _MAX_NAMES_CHARS:
            raise ProfileError(f"more than {_MAX_NAMES} names, or {_MAX_NAMES_CHARS >> 20} MB of them: no profile")
        return self._names.setdefault(name, len(self._names))

    def _add_device(self, device: str) -> int:
        if len(self._devices) == MAX_DEVICES:
            raise ProfileError(f"more than {MAX_DEVICES} devices: give the files of the ranks one by one")
        return self._devices.setdefault(device, len(self._devices))

    def first_ns(self) -> int:
        """The earliest start, or `NEVER_NS`."""
        return min(self._columns[3], default=NEVER_NS)

    def activities(self, origin_ns: int) -> Activities:
        """The columns, with times relative to `origin_ns`.

        Raises:
            ProfileError: the durations add up to more than can be counted.
        """
        name, kind, device, start, duration, correlation = (np.array(column, np.int64) for column in self._columns)
        if float(duration.sum(dtype=float)) > _MAX_SUM_NS:
            raise ProfileError("the durations add up to more than a century: no trace")
        start = start - origin_ns
        order = np.lexsort((duration, start))
        columns = (name[order], kind[order], device[order], start[order], (start + duration)[order], correlation[order])
        return Activities(tuple(self._names), tuple(self._devices), *columns)


def kernel_uses(activities: Activities, time_ns: Integers, phase: Integers, phases: tuple[str, ...]) -> list[KernelUse]:
    """The activities by name, kind, device and phase, those with most time first.

    Args:
        activities: of shape (n,).
        time_ns: what of each counts, shape (n,): its duration, or its self time.
        phase: the phase of each, as an index into `phases`, shape (n,).
        phases: names of phases.
    """
    if not len(activities):
        return []
    sizes = (len(activities.names), len(KINDS), len(activities.devices), len(phases))
    key = np.ravel_multi_index((activities.name, activities.kind, activities.device, phase), sizes)
    order = np.lexsort((time_ns, key))
    sorted_ns = time_ns[order]
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    uses = []
    for begin, end in pairwise([*begins.tolist(), len(order)]):
        times = sorted_ns[begin:end]
        at = order[begin]
        uses.append(
            KernelUse(
                name=activities.names[activities.name[at]],
                kind=KINDS[activities.kind[at]],
                device=activities.devices[activities.device[at]],
                phase=phases[phase[at]],
                calls=len(times),
                total_ns=int(times.sum()),
                min_ns=int(times[0]),
                max_ns=int(times[-1]),
                median_ns=int(times[(len(times) - 1) // 2] + times[len(times) // 2]) // 2,
                std_ns=float(times.std(ddof=1)) if len(times) > 1 else 0.0,
                truncated=False,
            )
        )
    return sorted(uses, key=lambda use: (-use.total_ns, use.name, use.device, use.phase))


def union_ns(start_ns: Integers, end_ns: Integers) -> int:
    """The length of the union of intervals, shape (n,), which are in order of start."""
    if not len(start_ns):
        return 0
    return int(np.maximum(end_ns - np.maximum(start_ns, _reach(start_ns, end_ns)), 0).sum())


def totals(activities: Activities, launched_ns: Integers) -> Totals:
    """Sums over the devices of a file, each between its first kernel and the end of its last.

    What no kernel fills is idle. Where a copy fills it, it is copying; the rest are gaps, each of which ends with an
    activity. Up to the end of the call that launched this one, the device waited for the host; what remains is
    dispatch, a dependency, or a place inside a graph. A gap whose launch the file does not tell is in neither.

    Args:
        activities: of shape (n,).
        launched_ns: the end of the call that launched each, or `NONE` where it is unknown; shape (n,).
    """
    kernels = activities.is_kernel
    devices = [_device_time(activities, launched_ns, at) for at in np.unique(activities.device[kernels]).tolist()]
    busy_ns, span_ns, copying_ns, waiting_ns, between_ns = (
        sum(times) for times in zip((0,) * 5, *devices, strict=True)
    )
    launches_known, any_kernel = bool((launched_ns != NONE).any()), len(devices) > 0
    return Totals(
        kernel_ns=int(activities.duration_ns[kernels].sum()),
        calls=int(kernels.sum()),
        distinct=len(np.unique(activities.name[kernels])),
        busy_ns=busy_ns,
        span_ns=span_ns if any_kernel else None,
        idle_ns=span_ns - busy_ns if any_kernel else None,
        copying_ns=copying_ns if any_kernel else None,
        waiting_for_host_ns=waiting_ns if launches_known and any_kernel else None,
        between_kernels_ns=between_ns if launches_known and any_kernel else None,
    )


def _device_time(activities: Activities, launched_ns: Integers, device: int) -> tuple[int, int, int, int, int]:
    """Busy, span, copying, waiting for the host, between kernels: of one device that ran a kernel."""
    here = activities.device == device
    kernels = here & activities.is_kernel
    begin_ns, end_ns = activities.start_ns[kernels].min(), activities.end_ns[kernels].max()
    here &= (activities.start_ns < end_ns) & (activities.end_ns > begin_ns) | kernels
    starts_ns = np.maximum(activities.start_ns[here], begin_ns)
    ends_ns = np.minimum(activities.end_ns[here], end_ns)
    reach_ns = _reach(starts_ns, ends_ns)
    gap_ns = np.maximum(starts_ns - reach_ns, 0)
    known = launched_ns[here] != NONE
    waited_ns = np.where(known, np.clip(launched_ns[here] - reach_ns, 0, gap_ns), 0)
    busy_ns = union_ns(activities.start_ns[kernels], activities.end_ns[kernels])
    copying_ns = union_ns(starts_ns, ends_ns) - busy_ns
    return busy_ns, int(end_ns - begin_ns), copying_ns, int(waited_ns.sum()), int((gap_ns - waited_ns)[known].sum())


def _reach(start_ns: Integers, end_ns: Integers) -> Integers:
    """The end of everything that began before each interval; its own start for the first."""
    return np.concatenate((start_ns[:1], np.maximum.accumulate(end_ns)[:-1]))
