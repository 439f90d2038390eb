"""What flows: the records of the ring, and the samples that collectors give."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

# One record of the ring: see docs/ring-format.md. Durations in nanoseconds.
RECORD = np.dtype(
    [
        ("sequence", "<u8"),
        ("end_ns", "<u8"),
        ("cycle_ns", "<u8"),
        ("schedule_ns", "<u8"),
        ("input_ns", "<u8"),
        ("launch_ns", "<u8"),
        ("wait_ns", "<u8"),
        ("result_ns", "<u8"),
        ("rest_ns", "<u8"),
        ("on_cpu_ns", "<i8"),
        ("kind", "u1"),
        ("mode", "u1"),
        ("launched_mode", "u1"),
        ("speculative", "u1"),
        ("flags", "<u2"),
        ("reserved", "<u2"),
        ("batch_size", "<u4"),
        ("new_tokens", "<u4"),
        ("kv_tokens", "<u8"),
        ("queue_length", "<u4"),
        ("running", "<u4"),
        ("accepted_tokens", "<u4"),
        ("sequence_end", "<u8"),
        ("crc", "<u4"),
    ]
)
NODE = "node"
"""Target of what belongs to the whole node, and to no server alone."""

_INTEGER_MAX = 2**63
"""What databases can keep."""

STAGES = ("schedule", "input", "launch", "wait", "result", "rest")

Records = npt.NDArray[np.void]
"""Records of one ring, shape (n,), dtype `RECORD`, in order of sequence."""


def joined(parts: Sequence[Records]) -> Records:
    """Records of one dtype, one part after the other.

    As plain bytes: NumPy copies structures field by field, which takes 20 times as long. `compress` and `take` do not.
    """
    if len(parts) == 1:
        return parts[0]
    plain = np.dtype((np.void, parts[0].dtype.itemsize))
    return np.concatenate([part.view(plain) for part in parts]).view(parts[0].dtype)


class RecordKind(IntEnum):
    """What a record tells of."""

    CYCLE = 1
    FLAGGED = 2
    STALL = 3
    GARBAGE_COLLECTION = 4


class ForwardMode(IntEnum):
    """SGLang's forward mode of a batch, by the ring's numbers."""

    NONE = 0
    EXTEND = 1
    DECODE = 2
    MIXED = 3
    IDLE = 4
    PREBUILT = 5
    SPLIT_PREFILL = 6
    TARGET_VERIFY = 7
    DRAFT_EXTEND = 8
    DIFFUSION_EXTEND = 9
    OTHER = 255


class CycleFlag(IntFlag):
    """Circumstances of a cycle."""

    CUDA_GRAPH = 1
    OVERLAP = 2
    PROFILED = 4
    AFTER_BREAK = 8
    PAUSED = 16
    WARMUP = 32
    MATCHED_IN_ORDER = 64
    WAIT_UNKNOWN = 128


@dataclass(frozen=True)
class RingIdentity:
    """Who writes a ring: one scheduler process of one server.

    `key` is the file's name without its ending and is unique on a host until the next boot. `software` has the versions
    of torch, CUDA and the kernel packages that the process uses, by name. `device_only` is no ring at all: forward
    passes as a server publishes them, timed on the device alone, with nothing known of the process.
    """

    key: str
    pid: int
    parent_pid: int
    parent_start_ticks: int
    tp_rank: int | None
    pp_rank: int | None
    dp_rank: int | None
    synchronous: bool
    sglang_version: str
    plugin_version: str
    hooks_missing: tuple[str, ...]
    monotonic_ns: int
    wall_ns: int
    server: Mapping[str, Any] = field(hash=False)
    software: Mapping[str, str] = field(default_factory=dict, hash=False)
    device_only: bool = False

    @property
    def rank(self) -> str:
        """Ranks in one word, for example `tp0` or `dp1-tp3`; only the dimensions that exist."""
        parts = [
            f"{name}{value}"
            for name, value in (("dp", self.dp_rank), ("pp", self.pp_rank), ("tp", self.tp_rank))
            if value is not None
        ]
        return "-".join(parts) or "tp0"

    @classmethod
    def parse(cls, key: str, text: bytes) -> "RingIdentity":
        """The identity from the ring's JSON text.

        Raises:
            ValueError: not JSON, or a field is missing or of another type.
        """
        try:
            values = json.loads(text)
            json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:  # broken characters are ValueErrors too
            raise ValueError(f"identity is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ValueError("identity is not a JSON object")  # noqa: TRY004 (a bad file, not a bad call)
        server, missing, software = values.get("server"), values.get("hooks_missing"), values.get("software")
        return cls(
            key=key,
            pid=_integer(values, "pid"),
            parent_pid=_integer(values, "parent_pid"),
            parent_start_ticks=_integer(values, "parent_start_ticks"),
            tp_rank=_rank(values, "tp_rank"),
            pp_rank=_rank(values, "pp_rank"),
            dp_rank=_rank(values, "dp_rank"),
            synchronous=bool(values.get("synchronous")),
            sglang_version=str(values.get("sglang_version", "")),
            plugin_version=str(values.get("plugin_version", "")),
            hooks_missing=tuple(str(name) for name in missing) if isinstance(missing, list) else (),
            monotonic_ns=_integer(values, "monotonic_ns"),
            wall_ns=_integer(values, "wall_ns"),
            server=server if isinstance(server, dict) else {},
            software={name: str(version) for name, version in software.items()} if isinstance(software, dict) else {},
        )


def _integer(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _INTEGER_MAX:
        raise ValueError(f"identity field {name} is {str(value)[:40]}, not a whole number of 63 bits")
    return value


def _rank(values: Mapping[str, Any], name: str) -> int | None:
    return None if values.get(name) is None else _integer(values, name)


@dataclass(frozen=True)
class RingCounters:
    """What the writer says of itself; durations and times in monotonic nanoseconds."""

    written: int = 0
    failures: int = 0
    unmatched: int = 0
    heartbeat_ns: int = 0
    stalled_since_ns: int = 0
    gc_dropped: int = 0
    disabled: int = 0
    paused: int = 0


@dataclass(frozen=True)
class CycleBatch:
    """Records read from one ring in one go.

    `lost` counts records that were overwritten before they were read, `torn` records whose check failed. What ended up
    to `complete_ns` (monotonic) is in this batch or in one before it. `over` tells that it is the ring's last.
    """

    target: str
    ring: RingIdentity
    counters: RingCounters
    records: Records = field(compare=False)
    next_sequence: int
    lost: int
    torn: int
    alive: bool
    complete_ns: int
    over: bool = False


@dataclass(frozen=True)
class Reading:
    """One value of one series of a target at the moment of its collection."""

    target: str
    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ServerIdentity:
    """What a server says it is; only allow-listed arguments, never a key or a token.

    `restarted` tells that it was away, or began its counters anew, since it was last asked.
    """

    target: str
    url: str
    version: str
    model: str
    arguments: Mapping[str, Any] = field(hash=False)
    restarted: bool = False


@dataclass(frozen=True)
class Fact:
    """What a target runs on, in words: a version, a model name, a mode; steady for hours, and a change when it alters.

    `subject` names it, for example `driver`, `kernel` or `gpu0.power_limit_w`; `target` is `NODE` unless it is a
    server's own. A collector may tell the same fact as often as it likes; one it cannot read it leaves out.
    """

    target: str
    subject: str
    value: str


@dataclass(frozen=True)
class Happening:
    """Something that happened at one moment, for example an XID error of a GPU (kind `xid`).

    `subject` says to what, `detail` what it was; `wall_ns` is UTC. Told once.
    """

    target: str
    kind: str
    subject: str
    detail: str
    wall_ns: int


@dataclass(frozen=True)
class NoData:
    """A source has nothing to say at present: a fact, not a failure."""

    reason: str


@dataclass(frozen=True)
class Failure:
    """One source among several failed; the others of the same collector went on. `reason` is one sentence."""

    source: str
    reason: str


Sample = CycleBatch | Reading | ServerIdentity | Fact | Happening | NoData | Failure
