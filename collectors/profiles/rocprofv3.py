"""JSON of rocprofv3 (`--output-format json`): dispatches of kernels, and copies, in nanoseconds.

The names stand apart, thousands for the few that were used. Nothing else of the file is decoded, and what is has
fields that must be there: otherwise `{},{},{},…` would take forty times its size in memory.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from cyclewatch.collectors.profiles.activities import KINDS, NEVER_NS, NONE, Recorder, kernel_uses, totals
from cyclewatch.collectors.profiles.flaws import pauses
from cyclewatch.collectors.profiles.records import Flaw, FlawKind, KernelKind, Profile, ProfileError, ProfileFormat
from cyclewatch.collectors.profiles.unpack import Limits

_KERNEL = KINDS.index(KernelKind.KERNEL)
_MEMCPY = KINDS.index(KernelKind.MEMCPY)
_GPU = (2, "GPU")
_LATEST_NS = 4 * 10**18
_LONGEST_NS = 10**15


class _Handle(msgspec.Struct, gc=False):
    handle: int


class _DispatchInfo(msgspec.Struct, gc=False):
    kernel_id: int
    agent_id: _Handle


class _Span(msgspec.Struct, gc=False):
    start_timestamp: int
    end_timestamp: int


class _Dispatch(_Span, gc=False):
    dispatch_info: _DispatchInfo


class _Copy(_Span, gc=False):
    src_agent_id: _Handle
    dst_agent_id: _Handle


class _Records(msgspec.Struct, gc=False):
    kernel_dispatch: tuple[_Dispatch, ...] = ()
    memory_copy: tuple[_Copy, ...] = ()


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int
    formatted_kernel_name: str | None = None
    demangled_kernel_name: str | None = None
    kernel_name: str | None = None

    @property
    def name(self) -> str:
        return self.formatted_kernel_name or self.demangled_kernel_name or self.kernel_name or ""


class _Agent(msgspec.Struct, gc=False):
    id: _Handle
    type: int | str | None = None
    product_name: str | None = None
    name: str | None = None
    logical_node_type_id: int | None = None


class _Metadata(msgspec.Struct, gc=False):
    pid: int | None = None


class _Process(msgspec.Struct, gc=False):
    buffer_records: _Records
    metadata: _Metadata | None = None
    agents: tuple[_Agent, ...] = ()
    kernel_symbols: tuple[_Symbol, ...] = ()


class _Document(msgspec.Struct):
    processes: tuple[_Process, ...] | _Process = msgspec.field(name="rocprofiler-sdk-tool")


def read_rocprofv3(data: bytes, limits: Limits) -> Profile:
    """The kernels and copies of all processes in a file.

    Raises:
        ProfileError: it is cut off or damaged, holds no dispatch, tells an impossible time, or exceeds the limits.
    """
    processes = _processes(data)
    recorder = Recorder()
    agents: dict[int, _Agent] = {}
    without_times = 0
    for process in processes:
        records = process.buffer_records
        names = _names(process.kernel_symbols, limits)
        here = {agent.id.handle: agent for agent in process.agents}
        agents |= here
        for dispatch in records.kernel_dispatch:
            info = dispatch.dispatch_info
            name = names.get(info.kernel_id, f"kernel {info.kernel_id}")
            without_times += not _record(recorder, dispatch, name, _KERNEL, _index(here, info.agent_id))
        for copy in records.memory_copy:
            name, device = _copy(here, copy)
            without_times += not _record(recorder, copy, name, _MEMCPY, device)
        if len(recorder) > limits.events:
            raise ProfileError(f"more than {limits.events} dispatches: cut the capture shorter")
    first_ns = recorder.first_ns()
    if first_ns == NEVER_NS:
        raise ProfileError("no dispatch of a kernel in it: was it recorded with --kernel-trace?")
    activities = recorder.activities(first_ns)
    unknown = np.full(len(activities), NONE)
    flaws = pauses(activities.start_ns, activities.end_ns)
    if without_times:
        flaws.append(Flaw(FlawKind.DROPPED, f"{without_times} dispatches have no times: their records were lost"))
    return Profile(
        format=ProfileFormat.ROCPROFV3,
        kernels=tuple(kernel_uses(activities, activities.duration_ns, np.zeros_like(unknown), ("",))),
        totals=totals(activities, unknown),
        flaws=tuple(flaws),
        device=", ".join(sorted({_product(agent) for agent in agents.values() if agent.type in _GPU})),
        pids=tuple(sorted({one.metadata.pid for one in processes if one.metadata and one.metadata.pid is not None})),
    )


def _processes(data: bytes) -> tuple[_Process, ...]:
    try:
        processes = msgspec.json.decode(data, type=_Document).processes
    except msgspec.ValidationError as error:
        raise ProfileError(f"not as rocprofv3 writes it: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ProfileError("not valid JSON, or cut off in the middle: is it still being written?") from None
    except RecursionError:
        raise ProfileError("JSON that is nested too deeply: not of rocprofv3") from None
    return processes if isinstance(processes, tuple) else (processes,)


def _names(symbols: Sequence[_Symbol], limits: Limits) -> dict[int, str]:
    """Names by the number that dispatches give."""
    longest = max((len(symbol.name) for symbol in symbols), default=0)
    if longest > limits.name_chars:
        raise ProfileError(f"a name of {longest} characters: at most {limits.name_chars} are read")
    return {symbol.kernel_id: symbol.name for symbol in symbols}


def _record(recorder: Recorder, span: _Span, name: str, kind: int, device: str) -> bool:
    """Keep a span; whether it has times."""
    start_ns, duration_ns = span.start_timestamp, span.end_timestamp - span.start_timestamp
    if start_ns == 0:
        return False
    if not (0 < start_ns < _LATEST_NS and duration_ns < _LONGEST_NS):
        raise ProfileError(f"a dispatch at an impossible time: {start_ns} to {span.end_timestamp}")
    if duration_ns < 0:
        raise ProfileError(f"a dispatch of negative duration: {start_ns} to {span.end_timestamp}")
    recorder.add(name, kind, device, start_ns, duration_ns)
    return True


def _index(agents: Mapping[int, _Agent], handle: _Handle) -> str:
    """The index of a GPU as HIP counts it, where the file tells it; otherwise its handle."""
    agent = agents.get(handle.handle)
    index = agent.logical_node_type_id if agent else None
    return str(handle.handle if index is None else index)


def _copy(agents: Mapping[int, _Agent], copy: _Copy) -> tuple[str, str]:
    """The name of a copy by its direction, and the device that it belongs to."""
    ends = []
    for handle in (copy.src_agent_id, copy.dst_agent_id):
        agent = agents.get(handle.handle)
        ends.append((handle, "D" if agent and agent.type in _GPU else "H"))
    device = next((handle for handle, side in reversed(ends) if side == "D"), copy.dst_agent_id)
    return f"Memcpy {ends[0][1]}to{ends[1][1]}", _index(agents, device)


def _product(agent: _Agent) -> str:
    return agent.product_name or agent.name or ""
