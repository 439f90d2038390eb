"""Measures the scheduler cycles of the SGLang process it is loaded into and writes them to a ring on tmpfs.

SGLang's scheduler turns a loop: plan a batch, launch it, handle the result of a batch. This module times these
calls, makes of them one record for each result, and writes the records into a file that the cyclewatch daemon reads.
Layout of the file and meaning of the fields: `docs/ring-format.md`. From top to bottom:

- the format, and `RingWriter`, which writes such a file;
- `Cycles`, the accounting: from calls and their times to records, not knowing SGLang;
- `Hooks`, the functions around SGLang's own, which keep every failure of this module away from SGLang;
- the installation: through SGLang's plugin framework, or by itself where a version has none.

What runs in every cycle (the four hooks of the loop, `Cycles.launched` and `processed`, `RingWriter.put`) is written
for speed, and where that made it look odd a comment says what it saves. `benchmarks/hook_cost.py` measures it.

It does nothing unless `CYCLEWATCH_RING_DIR` is set. It imports only the standard library, never raises into SGLang,
never blocks, never touches a tensor or the GPU, keeps no reference to a batch or a result, and switches itself off
after repeated failures. All times are nanoseconds, of the monotonic clock where they are points in time.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import time
import zlib
from collections import deque
from contextlib import suppress
from types import MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module is loaded into every Python process of the server, and `typing` is not free
    import logging
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType
    from typing import Any, Final

    Hook = Callable[..., Any]
    """Called in place of a function of SGLang, with that function and its arguments; gives its result."""

__version__ = "0.1.0"

RING_DIR_VARIABLE: Final = "CYCLEWATCH_RING_DIR"
CAPACITY_VARIABLE: Final = "CYCLEWATCH_RING_RECORDS"
GROUP_VARIABLE: Final = "CYCLEWATCH_RING_GROUP"

# --- The format -----------------------------------------------------------------------------------------------------

MAGIC: Final = b"CYCWATCH"
FORMAT_VERSION: Final = 1
HEADER_BYTES: Final = 4096
RECORD_BYTES: Final = 128
PAYLOAD_BYTES: Final = 108
IDENTITY_OFFSET: Final = 40
IDENTITY_BYTES_MAX: Final = 3000
COUNTERS_OFFSET: Final = 3072
DEFAULT_CAPACITY: Final = 16384
CAPACITY_MIN: Final = 64
CAPACITY_MAX: Final = 1 << 20

PAYLOAD_FIELDS: Final = (
    *("end_ns", "cycle_ns", "schedule_ns", "input_ns", "launch_ns", "wait_ns", "result_ns", "rest_ns", "on_cpu_ns"),
    *("kind", "mode", "launched_mode", "speculative", "flags", "reserved"),
    *("batch_size", "new_tokens", "kv_tokens", "queue_length", "running", "accepted_tokens"),
)
PAYLOAD: Final = struct.Struct("<QQQQQQQQqBBBBHHIIQIII")
_HEADER: Final = struct.Struct("<8sIIIIQI")
_RECORD: Final = struct.Struct("<Q" + PAYLOAD.format[1:] + "Q")  # "<": no padding before the last sequence
_CRC: Final = struct.Struct("<I")
_COUNTERS: Final = struct.Struct("<QQQQQQIII")
COUNTERS_BYTES: Final = _COUNTERS.size + _CRC.size
_pack_record, _crc32, _pwrite = _RECORD.pack_into, zlib.crc32, os.pwrite  # looked up once: called in every cycle
_MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")

CYCLE, FLAGGED, STALL, GARBAGE_COLLECTION = 1, 2, 3, 4

MODE_NONE, MODE_PREBUILT, MODE_SPLIT_PREFILL, MODE_OTHER = 0, 5, 6, 255
MODES: Final = {  # by name: the numbers behind the names differ between SGLang's versions
    "EXTEND": 1,
    "DECODE": 2,
    "MIXED": 3,
    "IDLE": 4,
    "PREBUILT": MODE_PREBUILT,
    "SPLIT_PREFILL": MODE_SPLIT_PREFILL,
    "TARGET_VERIFY": 7,
    "DRAFT_EXTEND": 8,
    "DRAFT_EXTEND_V2": 8,
    "DLLM_EXTEND": 9,
}
_MODES_WITH_NEW_TOKENS: Final = frozenset({1, 3, MODE_SPLIT_PREFILL, 8, 9})
ALGORITHMS: Final = {
    "NONE": 0,
    "EAGLE": 1,
    "EAGLE3": 2,
    "NEXTN": 3,
    "MTP": 3,
    "FROZEN_KV_MTP": 3,
    "NGRAM": 4,
    "STANDALONE": 5,
}
ALGORITHM_OTHER: Final = 255

CUDA_GRAPH, OVERLAP, PROFILED, AFTER_BREAK, PAUSED, WARMUP, MATCHED_IN_ORDER, WAIT_UNKNOWN = (1 << n for n in range(8))

RUNNING, DISABLED_BY_FAILURES, DISABLED_BY_RING = 0, 1, 2


class RingWriter:
    """Writes one ring; made by `create`. Not for use by several threads at once.

    Only `pwrite`, no mapping: with a mapped file a full tmpfs or somebody's `truncate` would kill the server.

    Attributes:
        path: the file.
        written: records written so far, which is also the sequence of the newest.
        record: where a record is put together; of the format `_RECORD`.
    """

    def __init__(self, fd: int, path: str, capacity: int) -> None:
        self.path = path
        self.written = 0
        self.record = bytearray(RECORD_BYTES)
        self._fd = fd
        self._offset = HEADER_BYTES
        self._end = HEADER_BYTES + capacity * RECORD_BYTES
        self._checked = memoryview(self.record)[: _RECORD.size]
        # In the machine's own byte order, which is little-endian wherever SGLang runs: `pack_into` takes 0.05 µs more.
        self._crc = memoryview(self.record)[_RECORD.size :].cast("I")

    @classmethod
    def create(
        cls,
        directory: str | os.PathLike[str],
        identity: Mapping[str, Any],
        capacity: int = DEFAULT_CAPACITY,
        *,
        group: str = "",
        memory_only: bool = True,
    ) -> RingWriter:
        """Make the ring of the process that `identity` names, in place of one it may have had.

        Args:
            directory: must exist.
            identity: the header's keys; `pid_namespace`, `pid` and `start_ticks` give the file its name.
            capacity: records; held between `CAPACITY_MIN` and `CAPACITY_MAX`.
            group: name of the group that may read the file; by default the directory or the process decides.
            memory_only: refuse a directory that is not on tmpfs or ramfs, where a write could wait for a disk.

        Raises:
            ValueError: the directory is not in memory, the identity is too long, or there is no such group.
            OSError: the file cannot be made.
        """
        file_system = _file_system(directory)
        if memory_only and file_system not in _MEMORY_FILE_SYSTEMS:
            raise ValueError(f"{directory} is on {file_system}, not on tmpfs: a write there could block the server")
        text = _identity_text(identity)
        capacity = min(max(capacity, CAPACITY_MIN), CAPACITY_MAX)
        header = bytearray(HEADER_BYTES)
        fixed = (MAGIC, FORMAT_VERSION, HEADER_BYTES, RECORD_BYTES, len(text), capacity, zlib.crc32(text))
        _HEADER.pack_into(header, 0, *fixed)
        _CRC.pack_into(header, _HEADER.size, zlib.crc32(header[: _HEADER.size]))
        header[IDENTITY_OFFSET : IDENTITY_OFFSET + len(text)] = text

        name = "{pid_namespace}-{pid}-{start_ticks}.ring".format_map(identity)
        path = os.path.join(directory, name)
        temporary = f"{path}.tmp"
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, HEADER_BYTES + capacity * RECORD_BYTES)
            if group:
                os.fchown(fd, -1, _group_id(group))
            os.fchmod(fd, 0o640)
            os.pwrite(fd, header, 0)
            ring = cls(fd, path, capacity)
            ring.write_counters()
            os.rename(temporary, path)
        except BaseException:
            os.close(fd)
            os.unlink(temporary)
            raise
        return ring

    def write(
        self,
        end_ns: int,
        cycle_ns: int,
        schedule_ns: int = 0,
        input_ns: int = 0,
        launch_ns: int = 0,
        wait_ns: int = 0,
        result_ns: int = 0,
        rest_ns: int = 0,
        on_cpu_ns: int = -1,
        kind: int = CYCLE,
        mode: int = 0,
        launched_mode: int = 0,
        speculative: int = 0,
        flags: int = 0,
        batch_size: int = 0,
        new_tokens: int = 0,
        kv_tokens: int = 0,
        queue_length: int = 0,
        running: int = 0,
        accepted_tokens: int = 0,
    ) -> None:
        """Write one record.

        Raises:
            OSError: it could not be written as a whole; the next record takes its place.
            struct.error: a number does not fit its field.
        """
        sequence = self.written + 1
        _pack_record(
            self.record,
            0,
            sequence,
            end_ns,
            cycle_ns,
            schedule_ns,
            input_ns,
            launch_ns,
            wait_ns,
            result_ns,
            rest_ns,
            on_cpu_ns,
            kind,
            mode,
            launched_mode,
            speculative,
            flags,
            0,
            batch_size,
            new_tokens,
            kv_tokens,
            queue_length,
            running,
            accepted_tokens,
            sequence,
        )
        self.put(sequence)

    def put(self, sequence: int) -> None:
        """Write what stands in `record`, as the record of this number: one more than `written`.

        Raises:
            OSError: as `write`.
        """
        self._crc[0] = _crc32(self._checked)
        offset = self._offset
        if _pwrite(self._fd, self.record, offset) != RECORD_BYTES:
            raise OSError(f"{self.path}: a record was written only in part")
        self.written = sequence
        offset += RECORD_BYTES
        self._offset = offset if offset != self._end else HEADER_BYTES

    def write_payload(self, payload: bytes) -> None:
        """Write one record, given as its 108 bytes of payload; raises as `write` does."""
        fields = PAYLOAD.unpack(payload)
        reserved = PAYLOAD_FIELDS.index("reserved")
        self.write(*fields[:reserved], *fields[reserved + 1 :])

    def write_counters(
        self,
        *,
        failures: int = 0,
        unmatched: int = 0,
        heartbeat_ns: int = 0,
        stalled_since_ns: int = 0,
        gc_dropped: int = 0,
        disabled: int = RUNNING,
        paused: bool = False,
    ) -> None:
        """Say of the writer how it is; the number of records is added.

        Raises:
            OSError: the block could not be written as a whole.
        """
        block = _COUNTERS.pack(
            self.written, failures, unmatched, heartbeat_ns, stalled_since_ns, gc_dropped, disabled, paused, 0
        )
        if _pwrite(self._fd, block + _CRC.pack(_crc32(block)), COUNTERS_OFFSET) != COUNTERS_BYTES:
            raise OSError(f"{self.path}: the counters were written only in part")

    def close(self) -> None:
        """Close the file, which stays for its reader; writing is an `OSError` from now on."""
        # Never the old number again: by then it may be a file or a connection of SGLang.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _identity_text(identity: Mapping[str, Any]) -> bytes:
    """The identity as JSON; of a server with too many arguments the last ones are left out."""
    import json

    server = dict(identity.get("server", {}))
    while True:
        text = json.dumps({**identity, "server": server}, separators=(",", ":")).encode()
        if len(text) <= IDENTITY_BYTES_MAX:
            return text
        if not server:
            raise ValueError(f"the identity of {len(text)} bytes is too long (at most {IDENTITY_BYTES_MAX})")
        server.popitem()


def _file_system(path: str | os.PathLike[str], mountinfo: str = "/proc/self/mountinfo") -> str:
    """Type of the file system that `path` is on: the deepest mount above it, of several the last."""
    real = os.path.join(os.path.realpath(path), "")
    found, depth = "unknown", -1
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as mounts:
        for mount in mounts:
            place, _, source = mount.partition(" - ")
            point = place.split()[4]
            for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                point = point.replace(code, character)
            point = point.rstrip("/") + "/"
            if real.startswith(point) and len(point) >= depth:
                found, depth = source.split()[0], len(point)
    return found


def _group_id(name: str) -> int:
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ValueError(f"{GROUP_VARIABLE}: there is no group {name}") from None


# --- The accounting -------------------------------------------------------------------------------------------------

PENDING_MAX: Final = 64
WARMUP_RESULTS: Final = 32
_CPU_SAMPLE_CYCLES: Final = 8  # the thread's CPU clock is a system call
_COMMITTED_LAUNCHES: Final = 16  # to ask the requests of a batch takes 0.05 µs each

if TYPE_CHECKING:
    Span = tuple[int, int, int, int, int, int, int, int]
    """A cycle on a CPU: its start and end; the time it took to schedule, to handle input, to launch, to handle results;
    the mode last launched in it; its time on the CPU."""
    Launch = tuple[int, int, int, int, int, int, int, int, int, int, Span | None]
    """A launched batch whose result is awaited: `id` of the result; start of the launch; flags; mode; speculative
    algorithm; batch size, new tokens, KV tokens; queue length, running requests; on a CPU its cycle. Not the batch or
    the result: that would hold GPU memory. A tuple, since an object, made in every cycle, would cost 0.2 µs more."""


class _NoProfiler:
    """Where SGLang's profiler is not found."""

    profile_in_progress = False


class Cycles:
    """Makes records of what SGLang's loop does; `Hooks` tells it of every call.

    A cycle lasts from one boundary to the next. Where the device works on its own, the boundary is the return of
    `process_batch_result`: the launch of the next batch says nothing about the one in flight. On a CPU the batch is
    computed inside `run_batch`, and its return is the boundary. Each record describes the batch whose result was
    processed. After a break (nothing to run, a pause, the first batch) the record is flagged and tells the time since
    the launch instead of a cycle.

    The stages exclude each other, and with the rest they sum to the cycle.

    Args:
        ring: where the records go.
        synchronous: the device is the CPU.
        overlap: SGLang overlaps scheduling with the device.
        slots: microbatches of the pipeline. With more than one a plan without a batch is a break only if it comes for
            every slot in turn, and results are matched in order, since SGLang makes new result objects.
        profiler: has `profile_in_progress`.
        clock: monotonic time.
        cpu_clock: CPU time of the calling thread.
        pauses: garbage collections to record, oldest first: end, length, generation.

    Attributes:
        schedule_ns, input_ns, launch_ns, result_ns: time spent in these stages in the cycle under way. Where the device
            works on its own, a cycle ends with the handling of its result, and `processed` is told that time.
        empty_plans: plans without a batch since the last one with a batch.
        stalled_since_ns: start of the stall under way, 0 without one.
        unmatched: results without a launch and launches without a result.
        paused: SGLang is paused.
    """

    def __init__(
        self,
        ring: RingWriter,
        *,
        synchronous: bool,
        overlap: bool = False,
        slots: int = 1,
        profiler: Any = _NoProfiler,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
        pauses: deque[tuple[int, int, int]] | None = None,
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._profiler = profiler
        self._pauses = deque() if pauses is None else pauses
        self._flags = WARMUP | (OVERLAP if overlap else 0)
        self._slots = slots
        self._in_order = slots > 1
        self.synchronous = synchronous
        self._modes: dict[Any, int] = {}
        self._algorithm: Any = None
        self._speculative = 0
        self._pending: deque[Launch] = deque()
        self._warmup_results = WARMUP_RESULTS
        self._committed_in = 0
        self._committed_mean = 0.0
        self._notes = 0
        self.unmatched = 0
        self.paused = False
        self.reset()

    @property
    def results(self) -> int:
        """Results that have a record."""
        return self._ring.written - self._notes

    def reset(self) -> None:
        """Forget what is under way; the next record is flagged."""
        self._drop_pending()
        self._boundary_ns = self._clock()
        self.schedule_ns = self.input_ns = self.launch_ns = self.result_ns = 0
        self._launched_mode = 0
        self._cpu_ns = 0
        self._cpu_sample_in = _CPU_SAMPLE_CYCLES
        self._break = AFTER_BREAK
        self.empty_plans = 0
        self.stalled_since_ns = 0

    # What SGLang's loop did

    def launched(self, scheduler: Any, batch: Any, result: Any, start_ns: int, now_ns: int) -> None:
        """`run_batch`, called at `start_ns`, has returned. All facts of the batch are read now: it changes later."""
        forward_mode = batch.forward_mode
        try:
            mode = self._modes[forward_mode]
        except KeyError:
            mode = self._modes[forward_mode] = MODES.get(getattr(forward_mode, "name", ""), MODE_OTHER)
        try:  # here and below: costs nothing where the attribute is there, unlike `getattr`
            algorithm = batch.spec_algorithm
        except AttributeError:
            algorithm = None
        if algorithm is not self._algorithm:
            self._algorithm = algorithm
            name = "NONE" if algorithm is None else str(getattr(algorithm, "name", ""))
            self._speculative = ALGORITHMS.get(name.upper(), ALGORITHM_OTHER)
        try:
            kv_tokens = batch.seq_lens_sum
        except AttributeError:
            kv_tokens = 0
        new_tokens = 0
        pending = self._pending
        queue_length = len(scheduler.waiting_queue)
        flags = self._break
        if flags:
            self._break = 0
            self._end_stall(start_ns, queue_length)
            if self.synchronous or not pending:  # what came before this launch is no part of its time
                self.schedule_ns = self.input_ns = self.result_ns = 0
                self.launch_ns = now_ns - start_ns
        if mode in _MODES_WITH_NEW_TOKENS:
            new_tokens = getattr(batch, "extend_num_tokens", 0)
            if mode == MODE_SPLIT_PREFILL:
                start_ns, flags = self._join_parts(start_ns, flags)
        self._launched_mode = mode
        key = id(result)
        if pending and (len(pending) > 1 or pending[0][0] == key):
            self._make_room(key)
        pending.append(
            (
                key,
                start_ns,
                flags,
                mode,
                self._speculative,
                len(batch.reqs),
                new_tokens if type(new_tokens) is int else 0,
                kv_tokens if type(kv_tokens) is int else self._committed(batch.reqs),
                queue_length,
                len(scheduler.running_batch.reqs),
                self._end_on_cpu(now_ns) if self.synchronous else None,
            )
        )

    def _committed(self, requests: Any) -> int:
        """Cached tokens of a batch whose sum is on the GPU alone: about, since each request is asked now and then only.

        So it is with speculation where the attention backend does without lengths on the host (0.5.23: FlashAttention
        3 and TensorRT-LLM among them). The requests know theirs, one verification behind.
        """
        if self._committed_in <= 0:
            self._committed_in = _COMMITTED_LAUNCHES
            try:
                self._committed_mean = sum([request.kv.kv_committed_len for request in requests]) / len(requests)
            except (AttributeError, TypeError, ZeroDivisionError):
                self._committed_mean = 0.0
        self._committed_in -= 1
        return round(self._committed_mean * len(requests))

    def processed(  # noqa: C901, PLR0912 (a call for each step would take 0.1 µs)
        self, batch: Any, result: Any, flags: int, now_ns: int, result_ns: int = 0, wait_ns: int = 0
    ) -> None:
        """`process_batch_result` has returned: it took `result_ns`, and waited `wait_ns` besides."""
        flags |= self._flags
        if self.synchronous:
            self.result_ns += result_ns
        else:  # the cycle ends; the same as in `_end_on_cpu`, once more, since a call would take 0.1 µs
            start_ns, end_ns = self._boundary_ns, now_ns
            schedule_ns, input_ns, launch_ns = self.schedule_ns, self.input_ns, self.launch_ns
            launched_mode = self._launched_mode
            self._boundary_ns = now_ns
            self.schedule_ns = self.input_ns = self.launch_ns = self._launched_mode = 0
            self._cpu_sample_in = sample_in = self._cpu_sample_in - 1
            on_cpu_ns = self._sample_cpu() if sample_in <= 1 else -1
        pending = self._pending
        if pending and pending[0][0] == id(result) and not self._in_order:
            launch = pending.popleft()
        else:
            found = self._take(batch, id(result))
            if found is None:
                self.unmatched += 1
                return
            launch, flag = found
            flags |= flag
        (
            _,
            launched_ns,
            launch_flags,
            mode,
            speculative,
            batch_size,
            new_tokens,
            kv_tokens,
            queue_length,
            running,
            span,
        ) = launch
        if span is not None:
            start_ns, end_ns, schedule_ns, input_ns, launch_ns, result_ns, launched_mode, on_cpu_ns = span
        kind = CYCLE
        if launch_flags:
            kind, start_ns, on_cpu_ns = FLAGGED, launched_ns, -1
            flags |= launch_flags
        if self._warmup_results:
            self._warmup_results -= 1
            if not self._warmup_results:
                self._flags &= ~WARMUP
        try:
            if result.can_run_cuda_graph:
                flags |= CUDA_GRAPH
        except AttributeError:
            pass
        if self._profiler.profile_in_progress:
            flags |= PROFILED
        accepted = 0
        if speculative:  # the second name is 0.5.4's
            accepted = getattr(result, "num_correct_drafts", getattr(result, "num_accepted_tokens", 0))
        if self._pauses:
            self._write_pauses()
        cycle_ns = end_ns - start_ns
        rest_ns = cycle_ns - schedule_ns - input_ns - launch_ns - wait_ns - result_ns
        ring = self._ring
        sequence = ring.written + 1
        _pack_record(  # here and not by `ring.write`, whose twenty arguments would take 0.1 µs more
            ring.record,
            0,
            sequence,
            end_ns,
            cycle_ns,
            schedule_ns,
            input_ns,
            launch_ns,
            wait_ns,
            result_ns,
            rest_ns if rest_ns > 0 else 0,  # noqa: FURB136 (max takes longer); less only if batches in flight were interrupted
            on_cpu_ns,
            kind,
            mode,
            launched_mode,
            speculative,
            flags,
            0,
            batch_size,
            new_tokens,
            kv_tokens,
            queue_length,
            running,
            accepted if type(accepted) is int else 0,
            sequence,
        )
        ring.put(sequence)

    def planned_nothing(self, scheduler: Any, now_ns: int) -> None:
        """A plan was made without a batch."""
        self.empty_plans += 1
        if self.empty_plans >= self._slots:
            self._nothing_to_run(scheduler, now_ns)

    def idle(self, scheduler: Any) -> None:
        """SGLang says it is idle: nothing is in flight, and what still waits for a result waits in vain."""
        self._drop_pending()
        self._nothing_to_run(scheduler, self._clock())

    def interrupted(self, owner: Any = None) -> None:
        """A pause or a weight update: no cycle for the batches in flight, nor for the next one."""
        del owner
        self._break |= PAUSED
        if not self.synchronous:  # there, what was launched has been computed
            self._pending = deque((*launch[:2], launch[2] | PAUSED, *launch[3:]) for launch in self._pending)
        self._end_stall(self._clock(), 0)

    def note_paused(self, scheduler: Any) -> None:
        """A pause began or ended; SGLang says which."""
        self.interrupted()
        self.paused = bool(getattr(scheduler, "_engine_paused", False))

    # From events to records

    def _end_on_cpu(self, now_ns: int) -> Span:
        """End the cycle under way and begin the next, where the batch is computed by its launch."""
        launched_mode = self._launched_mode
        self._cpu_sample_in = sample_in = self._cpu_sample_in - 1
        on_cpu_ns = self._sample_cpu() if sample_in <= 1 else -1
        stages = self.schedule_ns, self.input_ns, self.launch_ns, self.result_ns
        span = (self._boundary_ns, now_ns, *stages, launched_mode, on_cpu_ns)
        self._boundary_ns = now_ns
        self.schedule_ns = self.input_ns = self.launch_ns = self.result_ns = self._launched_mode = 0
        return span

    def _sample_cpu(self) -> int:
        """At the start of a cycle whose CPU time is to be known: -1. At its end: that time."""
        if self._cpu_sample_in:
            self._cpu_ns = self._cpu_clock()
            return -1
        self._cpu_sample_in = _CPU_SAMPLE_CYCLES
        return self._cpu_clock() - self._cpu_ns

    def _make_room(self, key: int) -> None:
        """Give up the launch, if any, whose result died unprocessed, so that a new one has its `id`; or the oldest."""
        pending = self._pending
        if not self._in_order:
            for launch in pending:
                if launch[0] == key:
                    pending.remove(launch)
                    self.unmatched += 1
                    break
        if len(pending) == PENDING_MAX:
            pending.popleft()
            self.unmatched += 1

    def _take(self, batch: Any, key: int) -> tuple[Launch, int] | None:
        """The launch whose result has `key` for its `id`, else the oldest; and the flag for how it was found."""
        pending = self._pending
        if not self._in_order:
            for launch in pending:
                if launch[0] == key:
                    pending.remove(launch)
                    return launch, 0
        while pending:
            launch = pending.popleft()
            if launch[3] != MODE_PREBUILT or self._modes.get(batch.forward_mode) == MODE_PREBUILT:
                return launch, MATCHED_IN_ORDER
            self.unmatched += 1  # pipelines launch prebuilt batches, but never process them
        return None

    def _join_parts(self, start_ns: int, flags: int) -> tuple[int, int]:
        """A split prefill is launched in parts and processed once: all parts together are one launch."""
        for launch in self._pending:
            if launch[3] == MODE_SPLIT_PREFILL:
                self._pending.remove(launch)
                return launch[1], launch[2]
        return start_ns, flags

    def _nothing_to_run(self, scheduler: Any, now_ns: int) -> None:
        self._break |= AFTER_BREAK
        waiting = len(scheduler.waiting_queue)
        if not waiting:
            self._end_stall(now_ns, 0)
        elif not self.stalled_since_ns and not self._pending and not self.paused:
            self.stalled_since_ns = now_ns

    def _end_stall(self, end_ns: int, queue_length: int) -> None:
        since_ns, self.stalled_since_ns = self.stalled_since_ns, 0
        if since_ns:
            self._ring.write(end_ns, end_ns - since_ns, kind=STALL, queue_length=queue_length)
            self._notes += 1

    def _write_pauses(self) -> None:
        while self._pauses:
            end_ns, length_ns, generation = self._pauses.popleft()
            self._ring.write(end_ns, length_ns, kind=GARBAGE_COLLECTION, mode=generation)
            self._notes += 1

    def _drop_pending(self) -> None:
        self.unmatched += len(self._pending)
        self._pending.clear()


class GarbagePauses:
    """Notes long garbage collections; stands in `gc.callbacks`, which may be called anywhere, in any thread.

    Attributes:
        noted: end, length and generation of each.
        dropped: how many were lost because nobody fetched them in time.
    """

    MINIMUM_NS: Final = 1_000_000
    MAXIMUM_NOTED: Final = 64

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.noted: deque[tuple[int, int, int]] = deque(maxlen=self.MAXIMUM_NOTED)
        self.dropped = 0
        self._clock = clock
        self._start_ns = 0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """One call when a collection starts, one when it stops; there is never more than one at a time."""
        now = self._clock()
        if phase == "start":
            self._start_ns = now
        elif self._start_ns and now - self._start_ns >= self.MINIMUM_NS:
            self.dropped += len(self.noted) == self.MAXIMUM_NOTED
            self.noted.append((now, now - self._start_ns, info["generation"]))


# --- The hooks ------------------------------------------------------------------------------------------------------

FAILURES_MAX: Final = 16
_HEARTBEAT_NS: Final = 1_000_000_000
_RETRY_NS: Final = 10_000_000_000
_RETRY_MAX_NS: Final = 320_000_000_000
_ABSENT: Final[Any] = object()


class Hooks:
    """The functions that run around SGLang's own: of one scheduler, in its thread.

    Each calls SGLang's function exactly once, gives back its result and lets its exceptions pass. What goes wrong in
    this module is counted and swallowed; after `FAILURES_MAX` failures in a row everything is switched off. The ring
    is made at the first call, so that only a process whose loop turns has one.

    The four hooks of the loop are alike, and yet written out: what they have in common would be calls, at 0.1 µs each.
    They name the arguments that SGLang gives, because to pass on `*args` and `**kwargs` takes up to 0.2 µs a hook;
    called in another way, they call on as they were called. Of a call within such a call the outer one counts. What
    stands before SGLang's function cannot fail; what stands after it is guarded.

    Args:
        open_ring: makes the ring for a scheduler.
        clock: monotonic time.
        cpu_clock: CPU time of the calling thread.
    """

    def __init__(
        self,
        open_ring: Callable[[Any], RingWriter],
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.cycles: Cycles | None = None
        self.ring: RingWriter | None = None
        self.disabled = RUNNING
        self.failures = 0
        self._open_ring = open_ring
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._pauses = GarbagePauses(clock)
        self._counters_due_ns = 0
        self._retry_ns = 0
        self._retry_after_ns = _RETRY_NS
        self._failures_in_a_row = 0
        self._results_at_failure = 0
        self.process_input_requests = self._input_hook()
        self.get_next_batch_to_run = self._plan_hook()
        self.run_batch = self._launch_hook()
        self.process_batch_result = self._result_hook()
        self.on_idle = self._told(Cycles.idle)
        self.pause = self._told(Cycles.interrupted, Cycles.note_paused)
        self.update_weights = self._told(Cycles.interrupted, Cycles.interrupted)

    def _input_hook(self) -> Hook:
        """Give a sign of life, too: every loop comes by here, busy, idle or paused."""
        clock = self._clock
        inside: Cycles | None = None  # not True: a child forked inside begins anew

        def hook(
            original: Callable[..., Any], scheduler: Any, requests: Any = _ABSENT, /, *args: Any, **kwargs: Any
        ) -> Any:
            nonlocal inside
            if requests is _ABSENT or args or kwargs:
                original = _as_called(original, (scheduler, requests, *args), kwargs)
            cycles = self.cycles or self._start(scheduler)
            if cycles is None or cycles is inside:
                return original(scheduler, requests)
            inside = cycles
            start_ns = clock()
            try:
                returned = original(scheduler, requests)
            finally:
                inside = None
            now_ns = clock()
            try:
                cycles.input_ns += now_ns - start_ns
                if now_ns >= self._counters_due_ns and self.ring is not None:
                    self._counters_due_ns = now_ns + _HEARTBEAT_NS
                    self._write_counters(self.ring, cycles, now_ns)
            except BaseException as error:
                self._failed(error)
            return returned

        return hook

    def _plan_hook(self) -> Hook:
        clock = self._clock
        inside: Cycles | None = None
        holds_batch: bool | None = None

        def hook(
            original: Callable[..., Any],
            scheduler: Any,
            /,
            *args: Any,
            running_batch: Any = _ABSENT,
            last_batch: Any = _ABSENT,
            **kwargs: Any,
        ) -> Any:
            nonlocal inside, holds_batch
            by_name = running_batch is not _ABSENT  # 0.5.4 gives no arguments
            if args or kwargs or by_name is not (last_batch is not _ABSENT):
                named = {"running_batch": running_batch, "last_batch": last_batch, **kwargs}
                original = _as_called(original, (scheduler, *args), named)
            cycles = self.cycles or self._start(scheduler)
            if cycles is None or cycles is inside:
                if by_name:
                    return original(scheduler, running_batch=running_batch, last_batch=last_batch)
                return original(scheduler)
            inside = cycles
            start_ns = clock()
            try:
                if by_name:
                    plan = original(scheduler, running_batch=running_batch, last_batch=last_batch)
                else:
                    plan = original(scheduler)
            finally:
                inside = None
            now_ns = clock()
            try:
                cycles.schedule_ns += now_ns - start_ns
                if holds_batch is None and plan is not None:
                    holds_batch = hasattr(plan, "batch_to_run")  # 0.5.4 gives the batch itself
                if (plan.batch_to_run if holds_batch else plan) is None:
                    cycles.planned_nothing(scheduler, now_ns)
                else:
                    cycles.empty_plans = 0
            except BaseException as error:
                self._failed(error)
            return plan

        return hook

    def _launch_hook(self) -> Hook:
        clock = self._clock
        inside: Cycles | None = None

        def hook(
            original: Callable[..., Any], scheduler: Any, batch: Any = _ABSENT, /, *args: Any, **kwargs: Any
        ) -> Any:
            nonlocal inside
            if batch is _ABSENT or args or kwargs:
                original = _as_called(original, (scheduler, batch, *args), kwargs)
                batch = kwargs.get("batch", batch)
            cycles = self.cycles or self._start(scheduler)
            if cycles is None or cycles is inside:
                return original(scheduler, batch)
            inside = cycles
            start_ns = clock()
            try:
                result = original(scheduler, batch)
            finally:
                inside = None
            now_ns = clock()
            try:
                cycles.launch_ns += now_ns - start_ns
                cycles.launched(scheduler, batch, result, start_ns, now_ns)
            except BaseException as error:
                self._failed(error)
            return result

        return hook

    def _result_hook(self) -> Hook:  # noqa: C901 (a call for each step would take 0.1 µs)
        """Time, too, the call by which the handling of a result waits until it has been copied to the host.

        While a result is handled, its event has a `synchronize` of its own, a method of the one that its class has.
        """
        clock = self._clock
        inside: Cycles | None = None
        wait_ns = 0

        def synchronize(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            nonlocal wait_ns
            start_ns = clock()
            try:
                return original(*args, **kwargs) if args or kwargs else original()
            finally:
                wait_ns += clock() - start_ns

        def hook(
            original: Callable[..., Any],
            scheduler: Any,
            batch: Any = _ABSENT,
            result: Any = _ABSENT,
            /,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            nonlocal inside, wait_ns
            if result is _ABSENT or args or kwargs:
                original = _as_called(original, (scheduler, batch, result, *args), kwargs)
                batch, result = kwargs.get("batch", batch), kwargs.get("result", result)
            cycles = self.cycles or self._start(scheduler)
            if cycles is None or cycles is inside:
                return original(scheduler, batch, result)
            flags = wait_ns = 0
            shadowed = None
            if not cycles.synchronous:
                flags = WAIT_UNKNOWN
                try:
                    event = result.copy_done
                    if event is not None:
                        attributes = event.__dict__
                        if "synchronize" not in attributes:  # else somebody was first
                            attributes["synchronize"] = MethodType(synchronize, event.synchronize)
                            shadowed = attributes
                            flags = 0
                except AttributeError:  # a result without an event, or an event that takes no attributes
                    pass
                except BaseException as error:
                    self._failed(error)
            inside = cycles
            start_ns = clock()
            try:
                returned = original(scheduler, batch, result)
            finally:
                inside = None
                if shadowed is not None:  # leave the event as it was, since this was a reference cycle
                    shadowed.pop("synchronize", None)
            now_ns = clock()
            try:
                cycles.processed(batch, result, flags, now_ns, now_ns - start_ns - wait_ns, wait_ns)
            except BaseException as error:
                self._failed(error)
            return returned

        return hook

    def _told(self, before: Callable[[Cycles, Any], None], after: Callable[[Cycles, Any], None] | None = None) -> Hook:
        """A hook that tells the accounting of a call, before it and after it."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._tell(before, args[0])
            try:
                return original(*args, **kwargs)
            finally:
                if after is not None:
                    self._tell(after, args[0])

        return hook

    def _tell(self, event: Callable[[Cycles, Any], None], owner: Any) -> None:
        try:
            if self.cycles is not None:
                event(self.cycles, owner)
        except BaseException as error:
            self._failed(error)

    def _write_counters(self, ring: RingWriter, cycles: Cycles, now_ns: int) -> None:
        ring.write_counters(
            failures=self.failures,
            unmatched=cycles.unmatched,
            heartbeat_ns=now_ns,
            stalled_since_ns=cycles.stalled_since_ns,
            gc_dropped=self._pauses.dropped,
            disabled=self.disabled,
            paused=cycles.paused,
        )

    # Start, failure, end

    def after_fork(self) -> None:
        """Drop the ring in a child: it is the parent's. The child makes its own if its own loop turns."""
        ring, self.ring, self.cycles = self.ring, None, None
        self._stop_watching_garbage()
        if ring is not None:
            ring.close()

    def _start(self, scheduler: Any) -> Cycles | None:
        """The first call of the loop in this process: make the ring. None where there is none to be had."""
        if self.disabled or self._clock() < self._retry_ns:
            return None
        try:
            pauses = GarbagePauses(self._clock)
            ring = self._open_ring(scheduler)
            self.cycles = Cycles(
                ring,
                synchronous=_device(scheduler) == "cpu",
                overlap=bool(getattr(scheduler, "enable_overlap", False)),
                slots=_pipeline_slots(scheduler),
                profiler=_profiler(scheduler),
                clock=self._clock,
                cpu_clock=self._cpu_clock,
                pauses=pauses.noted,
            )
            self.ring, self._pauses, self._results_at_failure = ring, pauses, 0
            gc.callbacks.append(pauses)
            _logger().info("cyclewatch: writing cycles to %s", ring.path)
        except (OSError, ValueError) as error:
            if not self._retry_ns:
                _logger().warning("cyclewatch: cycles are not measured, there is no ring: %s", error)
            if isinstance(error, ValueError):
                self.disabled = DISABLED_BY_RING
            else:  # the directory may come later, or have room again
                self._retry_ns = self._clock() + self._retry_after_ns
                self._retry_after_ns = min(2 * self._retry_after_ns, _RETRY_MAX_NS)
        except BaseException as error:
            self._failed(error, limit=1)
        return self.cycles

    def _failed(self, error: BaseException, limit: int = FAILURES_MAX) -> None:
        """Swallow a failure of this module; Ctrl-C is the user's and passes."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        self.failures += 1
        try:
            results = 0 if self.cycles is None else self.cycles.results
            if results - self._results_at_failure > 1:  # one alone may be of a cycle with a failure in another step
                self._failures_in_a_row = 0
            self._results_at_failure = results
            self._failures_in_a_row += 1
            if self.failures == 1:
                _logger().warning("cyclewatch: a failure of its own, swallowed: %r", error)
            if self._failures_in_a_row >= limit:
                self._switch_off(DISABLED_BY_RING if isinstance(error, OSError) else DISABLED_BY_FAILURES)
            elif self.cycles is not None:
                self.cycles.reset()
        except Exception:
            self.cycles, self.disabled = None, DISABLED_BY_FAILURES

    def _switch_off(self, reason: int) -> None:
        """For the rest of this process."""
        if self.disabled:
            return
        cycles, ring = self.cycles, self.ring
        self.cycles, self.ring, self.disabled = None, None, reason
        self._stop_watching_garbage()
        _logger().warning("cyclewatch: switched off after %d failures of its own", self.failures)
        if ring is not None and cycles is not None:
            with suppress(OSError):
                self._write_counters(ring, cycles, self._clock())
            ring.close()

    def _stop_watching_garbage(self) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._pauses)


def _as_called(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """Calls `original` with those of these arguments that are there, whatever it is called with itself."""
    args = tuple(value for value in args if value is not _ABSENT)
    kwargs = {name: value for name, value in kwargs.items() if value is not _ABSENT}
    return lambda *_, **__: original(*args, **kwargs)


# --- What SGLang says of itself -------------------------------------------------------------------------------------

SERVER_ARGUMENTS: Final = (
    # Those that influence performance and where the server is found; in the order in which they are kept if there is
    # not room for all. A dot leads into an argument that has parts. Never a key, a token, a password or a command line.
    *("host", "port", "model_path", "served_model_name", "revision", "tp_size", "pp_size", "dp_size", "ep_size"),
    *("nnodes", "node_rank", "device", "dtype", "quantization", "kv_cache_dtype", "context_length", "page_size"),
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "sampling_backend"),
    *("moe_runner_backend", "moe_a2a_backend", "disable_overlap_schedule", "disable_cuda_graph", "cuda_graph_max_bs"),
    *("cuda_graph_max_bs_decode", "enable_torch_compile", "mem_fraction_static", "max_running_requests"),
    *("max_total_tokens", "max_prefill_tokens", "chunked_prefill_size", "enable_mixed_chunk", "schedule_policy"),
    *("disable_radix_cache", "enable_hierarchical_cache", "enable_dp_attention", "disaggregation_mode"),
    *("enable_two_batch_overlap", "enable_lora", "num_continuous_decode_steps", "stream_interval", "load_format"),
    *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
    *("schedule_conservativeness", "grammar_backend", "cuda_graph_bs", "cuda_graph_config.decode.backend"),
    *("cuda_graph_config.decode.bs", "cuda_graph_config.prefill.backend", "cuda_graph_config.prefill.max_bs"),
    *("speculative_draft_model_path", "speculative_attention_mode", "speculative_draft_attention_backend"),
    *("disable_cuda_graph_padding", "enable_piecewise_cuda_graph", "piecewise_cuda_graph_max_tokens"),
    *("fp8_gemm_runner_backend", "fp4_gemm_runner_backend", "bf16_gemm_backend", "mm_attention_backend"),
    *("nsa_prefill_backend", "nsa_decode_backend", "dsa_prefill_backend", "dsa_decode_backend", "mamba_backend"),
    *("linear_attn_backend", "lora_backend", "max_loras_per_batch", "torchao_config", "torch_compile_max_bs"),
    *("disable_custom_all_reduce", "enable_flashinfer_allreduce_fusion", "enable_mscclpp", "enable_nccl_nvls"),
    *("enable_symm_mem", "enable_torch_symm_mem", "enable_single_batch_overlap", "enable_dp_lm_head"),
    *("moe_dense_tp_size", "deepep_mode", "enable_eplb", "ep_num_redundant_experts", "disable_shared_experts_fusion"),
    *("attn_cp_size", "dcp_size", "load_balance_method", "cpu_offload_gb", "enable_deterministic_inference"),
    *("scheduler_recv_interval", "prefill_max_requests", "prefill_decode_interval", "enable_dynamic_chunking"),
    *("swa_full_tokens_ratio", "radix_eviction_policy", "hicache_ratio", "hicache_io_backend"),
    *("disaggregation_transfer_backend", "tokenizer_worker_num", "sleep_on_idle", "enable_trace"),
    *("enable_forward_pass_metrics", "forward_pass_metrics_ipc_name"),
)
_TEXT_MAX: Final = 200
KERNEL_PACKAGES: Final = (
    # Where a server's kernels and collectives come from, beside torch: the version of each that is installed.
    *("sgl-kernel", "sglang-kernel", "flashinfer-python", "triton", "flash-attn-4", "sgl-flash-mla", "sgl-deep-gemm"),
    *("sgl-deep-ep", "tilelang", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cublas-cu12", "nvidia-cublas"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "transformers"),
)


def identity(scheduler: Any) -> dict[str, Any]:
    """Who writes the ring: the keys of its header, but for the hooks."""
    pid, parent_pid = os.getpid(), os.getppid()
    return {
        "pid": pid,
        "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
        "start_ticks": _start_ticks(pid),
        "parent_pid": parent_pid,
        "parent_start_ticks": _start_ticks(parent_pid),
        "tp_rank": _whole_number(_parallel(scheduler, "tp_rank")),
        "pp_rank": _whole_number(_parallel(scheduler, "pp_rank")) if _pipeline_slots(scheduler) > 1 else None,
        "dp_rank": _whole_number(_parallel(scheduler, "dp_rank")),
        "device": _device(scheduler),
        "synchronous": _device(scheduler) == "cpu",
        "sglang_version": _sglang_version(),
        "plugin_version": __version__,
        "monotonic_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        "software": dict(_software()),
        "server": dict(_server_arguments(getattr(scheduler, "server_args", None))),
    }


def _start_ticks(pid: int) -> int:
    """Start of a process in clock ticks since boot, 0 where it cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _device(scheduler: Any) -> str:
    return str(getattr(scheduler, "device", "")).partition(":")[0]


def _parallel(scheduler: Any, name: str) -> Any:
    """A rank or a size; an attribute of the scheduler once, of its process's context in later versions."""
    context = sys.modules.get("sglang.srt.runtime_context")
    for holder in (scheduler, getattr(context, "get_parallel", lambda: None)()):
        with suppress(Exception):  # the context raises several kinds for what it does not know
            return getattr(holder, name)
    return None


def _whole_number(value: Any) -> int | None:
    return value if type(value) is int else None


def _pipeline_slots(scheduler: Any) -> int:
    """Microbatches under way in turn; 1 without pipeline parallelism."""
    slots = getattr(scheduler, "pp_loop_size", None) or _parallel(scheduler, "pp_size")
    return _whole_number(slots) or 1


def _profiler(scheduler: Any) -> Any:
    """Where to see whether SGLang's profiler runs: the scheduler itself, or a part of it in later versions."""
    for holder in (getattr(scheduler, "profiler_manager", None), scheduler):
        if hasattr(holder, "profile_in_progress"):
            return holder
    return _NoProfiler


def _sglang_version() -> str:
    version = getattr(sys.modules.get("sglang.version"), "__version__", None)
    if version is None:
        from importlib import metadata

        with suppress(metadata.PackageNotFoundError):
            version = metadata.version("sglang")
    return str(version or "")


def _software() -> Iterator[tuple[str, str]]:
    """Versions of Python, torch with what it was built for, and the kernel packages; nothing is imported for it."""
    from importlib import metadata

    yield "python", sys.version.split()[0]
    built = sys.modules.get("torch.version")
    for name, attribute in (("torch", "__version__"), ("torch_cuda", "cuda"), ("torch_hip", "hip")):
        if version := getattr(built, attribute, None):
            yield name, str(version)[:_TEXT_MAX]
    for name in KERNEL_PACKAGES:
        with suppress(Exception):  # not installed, mostly; damaged metadata raises what it likes
            yield name, metadata.version(name)[:_TEXT_MAX]


def _server_arguments(arguments: Any) -> Iterator[tuple[str, Any]]:
    """The arguments that are set. A flag that is off is left out: there is not room for all that are."""
    with suppress(Exception):
        # Later versions leave what was given as it was, and keep elsewhere what they made of it.
        arguments = arguments.resolved_dict()
    for name in SERVER_ARGUMENTS:
        value = arguments
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
        if isinstance(value, (bool, int, float)):
            if value is not False:
                yield name, value
        elif value is not None:
            yield name, _public(value)[:_TEXT_MAX]


def _public(value: Any) -> str:
    """As text; numbers of a list with commas between them, an address without what it may have of credentials."""
    if isinstance(value, (list, tuple)) and all(type(one) is int for one in value):
        return ",".join(map(str, value))
    text = str(value)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    place, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return scheme + separator + place.rpartition("@")[2] + slash + path


# --- Installation ---------------------------------------------------------------------------------------------------

PLUGIN_NAME: Final = "cyclewatch"
PLUGINS_VARIABLE: Final = "SGLANG_PLUGINS"
SCHEDULER_MODULE: Final = "sglang.srt.managers.scheduler"
REGISTRY_MODULE: Final = "sglang.srt.plugins.hook_registry"

HOOK_POINTS: Final = (
    # The hook, and the function of SGLang that it goes around: the first of these that there is.
    ("run_batch", ("run_batch",)),
    ("process_batch_result", ("process_batch_result",)),
    ("process_batch_result", ("process_batch_result_disagg_prefill",)),
    ("get_next_batch_to_run", ("get_next_batch_to_run",)),
    ("get_next_batch_to_run", ("get_next_disagg_prefill_batch_to_run", "get_new_batch_prefill")),
    ("get_next_batch_to_run", ("get_next_disagg_decode_batch_to_run",)),
    ("process_input_requests", ("process_input_requests",)),
    ("on_idle", ("on_idle", "self_check_during_idle")),
    ("pause", ("pause_generation",)),
    ("pause", ("continue_generation",)),
    ("update_weights", ("update_weights_from_disk",)),
    ("update_weights", ("update_weights_from_distributed",)),
    ("update_weights", ("update_weights_from_tensor",)),
    ("update_weights", ("update_weights_from_ipc",)),
)
_CLASSES: Final = (
    (SCHEDULER_MODULE, "Scheduler"),
    # Where later versions update weights.
    ("sglang.srt.managers.scheduler_components.weight_updater", "SchedulerWeightUpdaterManager"),
)


class Installation:
    """Puts the hooks into SGLang's scheduler, once in a process, whichever way it is asked first.

    SGLang's plugin framework calls `load`. Versions without it are served by the `.pth` file, which calls `arm` when
    Python starts; where the framework exists, `arm` leaves the work to it.
    """

    def __init__(self) -> None:
        self.hooks = Hooks(self._open_ring)
        self._directory = ""
        self._by_framework = False
        self._installed = False
        self._finder: _Finder | None = None
        self._points: list[tuple[str, type, object]] = []
        self._missing: list[str] = []

    def load(self) -> None:
        """SGLang's plugin framework loads this plugin."""
        self._by_framework = True
        self.arm()

    def arm(self) -> None:
        """Install now if the scheduler's module is there, else as soon as it has been imported: not because of us."""
        self._directory = os.environ.get(RING_DIR_VARIABLE, "")
        if not self._directory or not _allowed(os.environ.get(PLUGINS_VARIABLE, "")):
            return
        if SCHEDULER_MODULE in sys.modules:
            self.install()
        elif self._finder is None:
            self._finder = _Finder(self._imported)
            sys.meta_path.insert(0, self._finder)

    def install(self) -> None:
        """Put the hooks around SGLang's functions, unless that was done before or the framework will do it."""
        registry = _hook_registry()
        if self._installed or (registry is not None and not self._by_framework):
            return
        self._installed = True
        targets = list(self._targets())
        for hook, owner, name in targets:
            self._points.append((name, owner, getattr(owner, name)))
            if registry is None:
                setattr(owner, name, around(getattr(owner, name), hook))
            else:
                path = f"{owner.__module__}.{owner.__qualname__}.{name}"
                registry.HookRegistry.register(path, hook, registry.HookType.AROUND)
        # While SGLang loads plugins it applies all hooks at the end by itself. To do it now would lose the hooks that
        # a plugin after this one registers for the same functions.
        if registry is not None and not _plugins_are_loading(registry):
            registry.HookRegistry.apply_hooks()
        os.register_at_fork(after_in_child=self.hooks.after_fork)

    def _targets(self) -> Iterator[tuple[Hook, type, str]]:
        """For every hook point: the hook, the class and the name of the function in it."""
        owners = [getattr(sys.modules.get(module), name, None) for module, name in _CLASSES]
        for hook, names in HOOK_POINTS:
            for owner, name in ((owner, name) for name in names for owner in owners):
                if isinstance(owner, type) and callable(getattr(owner, name, None)):
                    yield getattr(self.hooks, hook), owner, name
                    break
            else:
                self._missing.append(names[0])

    def _imported(self) -> None:
        """The scheduler's module has been executed."""
        self._finder = None
        _guarded(self.install)

    def _open_ring(self, scheduler: Any) -> RingWriter:
        # Asked first, since to tell who writes takes milliseconds, at every try.
        if not os.access(self._directory, os.W_OK | os.X_OK):
            raise OSError(f"{self._directory} is not there, or must not be written to")
        applied = [name for name, owner, original in self._points if getattr(owner, name) is not original]
        points = [name for name, _, _ in self._points]
        hooks = {
            "hooks_applied": applied,
            "hooks_missing": self._missing + [name for name in points if name not in applied],
        }
        return RingWriter.create(
            self._directory, {**identity(scheduler), **hooks}, _capacity(), group=os.environ.get(GROUP_VARIABLE, "")
        )


class _Finder:
    """Waits in `sys.meta_path` until the scheduler's module is imported by somebody, and then leaves it."""

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders find, with a loader that tells when it is done."""
        if name != SCHEDULER_MODULE:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)  # finders of old have none
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Shadow the loader's `exec_module` for one call; the loader itself stays what it is."""

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            original(module)
            # A new list: another thread may be going through the old one.
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
            self._imported()

        with suppress(AttributeError):
            original = loader.exec_module
            loader.exec_module = exec_module


def around(original: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    """`original` with a hook around it, as SGLang's own registry makes it."""
    import functools

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    return wrapper


def _hook_registry() -> Any:
    """SGLang's registry of hooks, None in versions without."""
    import importlib

    try:
        return importlib.import_module(REGISTRY_MODULE)
    except ModuleNotFoundError:
        return None


def _plugins_are_loading(registry: Any) -> bool:
    source = getattr(registry, "_current_plugin_source", None)
    return source is not None and source.get() is not None


def _allowed(allow_list: str) -> bool:
    """SGLang's own switch, for the versions that do not know it, too."""
    return not allow_list or PLUGIN_NAME in (name.strip() for name in allow_list.split(","))


def _capacity() -> int:
    text = os.environ.get(CAPACITY_VARIABLE, "")
    try:
        return int(text or DEFAULT_CAPACITY)
    except ValueError:
        _logger().warning(
            "cyclewatch: %s is not a whole number: %r; using %d", CAPACITY_VARIABLE, text, DEFAULT_CAPACITY
        )
        return DEFAULT_CAPACITY


def _logger() -> logging.Logger:
    import logging

    return logging.getLogger(__name__)


def _guarded(step: Callable[[], None]) -> None:
    """Do a step of the installation; whatever goes wrong is said and stays here."""
    try:
        step()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        with suppress(Exception):
            _logger().warning("cyclewatch: cycles are not measured: %r", error)


_installation: Final = Installation()


def load() -> None:
    """Entry point of SGLang's plugin framework."""
    _guarded(_installation.load)


def arm() -> None:
    """Entry point of the `.pth` file."""
    _guarded(_installation.arm)
