"""Traces of Kineto: PyTorch's profiler on NVIDIA, AMD and CPU, of every version seen.

Times are microseconds, whatever "displayTimeUnit" says; with "baseTimeNanoseconds" they count from there, without from
the Unix epoch. Categories are spelled in two ways, and the process of a kernel is its device.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import numpy as np

from cyclewatch.collectors.profiles import flaws
from cyclewatch.collectors.profiles.activities import (
    CPU_OP,
    KINDS,
    MAX_DEVICES,
    NEVER_NS,
    NONE,
    Recorder,
    kernel_uses,
    totals,
)
from cyclewatch.collectors.profiles.calls import CallRecorder
from cyclewatch.collectors.profiles.cpu_ops import self_times
from cyclewatch.collectors.profiles.graphs import graphs
from cyclewatch.collectors.profiles.records import KernelKind, Profile, ProfileError, ProfileFormat
from cyclewatch.collectors.profiles.steps import MAX_MARKS, Mark, cut, process_of, step_name, steps_of
from cyclewatch.collectors.profiles.trace_events import Distributed, Event, ExactEvent, Head, Scalar, TraceEvents
from cyclewatch.collectors.profiles.unpack import Limits

_CALL = len(KINDS)
_MARK = _CALL + 1
_DEVICE_MARK = _CALL + 2
_ROLES: dict[Scalar, int] = {
    "kernel": KINDS.index(KernelKind.KERNEL),
    "Kernel": KINDS.index(KernelKind.KERNEL),
    "gpu_memcpy": KINDS.index(KernelKind.MEMCPY),
    "Memcpy": KINDS.index(KernelKind.MEMCPY),
    "gpu_memset": KINDS.index(KernelKind.MEMSET),
    "Memset": KINDS.index(KernelKind.MEMSET),
    "cpu_op": CPU_OP,
    "Operator": CPU_OP,
    "cuda_runtime": _CALL,
    "cuda_driver": _CALL,
    "hip_runtime": _CALL,
    "xpu_runtime": _CALL,
    "Runtime": _CALL,
    "user_annotation": _MARK,
    "gpu_user_annotation": _DEVICE_MARK,
}
"""What is kept, by category; the old ones begin with a capital."""

_LATEST_US = 4e15
"""The year 2096."""
_LONGEST_US = 1e12
_CORRELATIONS = 1 << 44
"""Above the numbers of launches, those of merged processes are kept apart."""
_PID = re.compile(r"[0-9]{1,10}")
"""Of 32 bits at most."""
_SHOWN_CHARS = 60


def read_kineto(chunks: Iterator[bytes], limits: Limits) -> Profile:
    """The profile in a trace.

    Args:
        chunks: the bytes of the trace.
        limits: on the number of events and the length of names.

    Raises:
        ProfileError: it is no trace, is cut off, tells an impossible time, or exceeds the limits.
    """
    trace = _Trace(limits.name_chars)
    events = TraceEvents(chunks, limits.events)
    for some in events:
        for event in some:
            trace.take(event)
    return trace.profile(events.head)


class _Trace:
    """What of the events is kept."""

    def __init__(self, name_chars: int) -> None:
        self._name_chars = name_chars
        self._device = Recorder()
        self._cpu = Recorder()
        self._calls = CallRecorder()
        self._marks: list[Mark] = []
        self._threads: dict[tuple[Scalar, Scalar], int] = {}
        self._processes: dict[str, int] = {"": 0}
        self._pids: set[Scalar] = set()

    def take(self, event: Event | ExactEvent) -> None:
        """One event of the trace."""
        role = _ROLES.get(event.cat)
        if role is None or event.ph != "X":
            if event.ph == "M" and event.args is not None and event.args.labels == "CPU":
                self._pids.add(event.pid)
            return
        name = self._name(event.name)
        start_ns, duration_ns = _times_ns(name, event)
        if role < CPU_OP:
            self._device.add(name, role, _device(event), start_ns, duration_ns, self._correlation(event))
            return
        if role == _CALL:
            self._pids.add(event.pid)
            self._calls.add(name, self._correlation(event), start_ns, duration_ns)
            return
        said = step_name(name)
        if said is not None:
            on_device, number = role == _DEVICE_MARK, _positive(event.args.external_id if event.args else None)
            process = process_of(event.pid)
            if len(self._marks) == MAX_MARKS:
                raise ProfileError(f"more than {MAX_MARKS} marks of steps: cut the capture shorter")
            self._marks.append(Mark(name, said, on_device, process, number, start_ns, start_ns + duration_ns))
        elif role == CPU_OP:
            self._pids.add(event.pid)
            thread = self._threads.setdefault((event.pid, event.tid), len(self._threads))
            self._cpu.add(name, CPU_OP, "", start_ns, duration_ns, thread)

    def profile(self, head: Head) -> Profile:
        """What the events say together."""
        first_ns = min(self._device.first_ns(), self._cpu.first_ns(), self._calls.first_ns())
        if first_ns == NEVER_NS:
            raise ProfileError("no kernel, no call and no operator in it: was anything profiled?")
        device, calls = self._device.activities(first_ns), self._calls.calls(first_ns)
        shown = device if len(device) else self._cpu.activities(first_ns)
        call = calls.of(device.correlation if len(device) else np.full(len(shown), NONE))
        called_ns, returned_ns = calls.times_ns(call)
        marks = [replace(one, start_ns=one.start_ns - first_ns, end_ns=one.end_ns - first_ns) for one in self._marks]
        steps = cut(shown, marks, called_ns)
        phases, phase = steps.phases()
        time_ns = shown.duration_ns if len(device) else self_times(shown)
        found = [
            *flaws.no_kernels(device, calls),
            *flaws.lost_records(device, calls),
            *flaws.logged(bytes(head.logged_warnings), bytes(head.logged_errors)),
            *flaws.clocks(shown, called_ns),
            *flaws.pauses(
                *(np.concatenate(both) for both in ((shown.start_ns, calls.start_ns), (shown.end_ns, calls.end_ns)))
            ),
            *flaws.outside_of_steps(device, steps),
        ]
        job = head.distributed or Distributed()
        return Profile(
            format=ProfileFormat.KINETO,
            kernels=tuple(kernel_uses(shown, time_ns, phase, phases)),
            totals=totals(device, returned_ns[: len(device)]),
            steps=tuple(steps_of(shown, steps)),
            graphs=tuple(graphs(device, phase, phases)),
            flaws=tuple(found),
            device=_device_name(head, device.devices),
            rank=None if job.rank is None else str(job.rank),
            world_size=job.world_size if isinstance(job.world_size, int) else None,
            pids=_pids(self._pids),
            started_at_ns=first_ns + _base_ns(head),
        )

    def _name(self, given: Scalar) -> str:
        name = given if isinstance(given, str) else str(given or "")
        if len(name) > self._name_chars:
            raise ProfileError(f"a name of {len(name)} characters: at most {self._name_chars} are read")
        return name

    def _correlation(self, event: Event | ExactEvent) -> int:
        number = _positive(event.args.correlation if event.args else None)
        if isinstance(event.pid, str) and number != NONE:
            process = self._processes.setdefault(process_of(event.pid), len(self._processes))
            if process > MAX_DEVICES:
                raise ProfileError(f"more than {MAX_DEVICES} processes: give the files of the ranks one by one")
            number += process * _CORRELATIONS
        return number


def _times_ns(name: str, event: Event | ExactEvent) -> tuple[int, int]:
    start_us, duration_us = event.ts, event.dur
    if start_us is None or duration_us is None:
        raise ProfileError(f"an event without a time: {_shown(name)}")
    if not (-_LATEST_US < start_us < _LATEST_US and duration_us < _LONGEST_US):
        raise ProfileError(f"an event at an impossible time: {_shown(name)}")
    if duration_us < 0:
        raise ProfileError(f"an event of negative duration: {_shown(name)}")
    return _ns(start_us), _ns(duration_us)


def _ns(time_us: float | Decimal) -> int:
    """To the nanosecond, also where microseconds times 1,000 would not be exact."""
    if isinstance(time_us, int):
        return time_us * 1000
    whole = int(time_us)
    return whole * 1000 + round((time_us - whole) * 1000)


def _positive(number: Scalar) -> int:
    """The number, or `NONE` for what is none."""
    return int(number) if isinstance(number, int | float) and 0 < number < _CORRELATIONS else NONE


def _device(event: Event | ExactEvent) -> str:
    index = event.args.device if event.args else None
    known = isinstance(index, int) and index >= 0 and not isinstance(event.pid, str)
    return str(index if known else event.pid)


def _device_name(head: Head, used: tuple[str, ...]) -> str:
    """The name of the devices that were used; where the trace numbers them otherwise, the one name that all have."""
    names = {str(one.id): str(one.name or "") for one in head.devices}
    chosen = {names[index] for index in used if index in names} or set(names.values())
    return ", ".join(sorted(chosen))


def _base_ns(head: Head) -> int:
    """The instant that times count from, since the Unix epoch; 0 where the trace tells none that can be."""
    return head.base_ns if isinstance(head.base_ns, int) and 0 < head.base_ns < _LATEST_US * 1000 else 0


def _pids(given: set[Scalar]) -> tuple[int, ...]:
    """The process numbers, also in the form that SGLang's merging gives them: "[TP00] 4711"."""
    numbers = {str(pid).rpartition(" ")[2] for pid in given}
    return tuple(sorted(int(number) for number in numbers if _PID.fullmatch(number)))


def _shown(name: str) -> str:
    text = "".join(character if character.isprintable() else "?" for character in name[:_SHOWN_CHARS])
    return text + "..." if len(name) > _SHOWN_CHARS else text
