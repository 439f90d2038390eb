"""Rings made from docs/ring-format.md alone, sound and broken ones: a second opinion beside the plugin's writer."""

import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cyclewatch.collectors.procfs import parse_stat

HEADER = struct.Struct("<8sIIIIQI")
PAYLOAD = struct.Struct("<QQQQQQQQqBBBBHHIIQIII")
COUNTERS = struct.Struct("<QQQQQQIII")
PAYLOAD_FIELDS = (
    *("end_ns", "cycle_ns", "schedule_ns", "input_ns", "launch_ns", "wait_ns", "result_ns", "rest_ns", "on_cpu_ns"),
    *("kind", "mode", "launched_mode", "speculative", "flags", "reserved"),
    *("batch_size", "new_tokens", "kv_tokens", "queue_length", "running", "accepted_tokens"),
)
COUNTER_FIELDS = (
    *("written", "failures", "unmatched", "heartbeat_ns", "stalled_since_ns", "gc_dropped", "disabled", "paused"),
)
RECORD_BYTES = 128
RECORDS_AT = 4096


def own_start_ticks() -> int:
    """Start of this process, as /proc tells it."""
    return parse_stat(Path("/proc/self/stat").read_bytes()).start_ticks


def identity(**changes: object) -> dict[str, Any]:
    """The identity of a ring that this process writes, in our own pid namespace; `changes` win."""
    return {
        "pid": os.getpid(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "start_ticks": own_start_ticks(),
        "parent_pid": os.getppid(),
        "parent_start_ticks": 4711,
        "tp_rank": 0,
        "pp_rank": None,
        "dp_rank": None,
        "device": "cpu",
        "synchronous": True,
        "sglang_version": "0.5.23",
        "plugin_version": "0.1.0",
        "hooks_applied": ["run_batch"],
        "hooks_missing": [],
        "monotonic_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        "server": {"host": "127.0.0.1", "port": 30000, "model_path": "tiny"},
        **changes,
    }


def ring_name(values: Mapping[str, Any]) -> str:
    """The file name that belongs to an identity."""
    return f"{values['pid_namespace']}-{values['pid']}-{values['start_ticks']}.ring"


def header(
    text: bytes,
    capacity: int,
    *,
    magic: bytes = b"CYCWATCH",
    version: int = 1,
    header_bytes: int = 4096,
    record_bytes: int = RECORD_BYTES,
    length: int | None = None,
    text_crc: int | None = None,
    crc: int | None = None,
) -> bytes:
    """The first 4096 bytes of a ring, with whatever is to be wrong about them."""
    fixed = HEADER.pack(
        magic,
        version,
        header_bytes,
        record_bytes,
        len(text) if length is None else length,
        capacity,
        zlib.crc32(text) if text_crc is None else text_crc,
    )
    fixed += struct.pack("<I", zlib.crc32(fixed) if crc is None else crc)
    return (fixed + text)[:3072].ljust(3072, b"\0") + counters() + bytes(4096 - 3072 - 64)


def counters(**fields: int) -> bytes:
    """The block of counters."""
    block = COUNTERS.pack(*({**dict.fromkeys(COUNTER_FIELDS, 0), **fields}.values()), 0)
    return block + struct.pack("<I", zlib.crc32(block))


def payload(**fields: int) -> bytes:
    """The payload of a decode cycle of 5 ms; `fields` win."""
    plain = dict.fromkeys(PAYLOAD_FIELDS, 0)
    usual = {"cycle_ns": 5_000_000, "launch_ns": 5_000_000, "kind": 1, "mode": 2, "launched_mode": 2, "batch_size": 8}
    return PAYLOAD.pack(*{**plain, **usual, "on_cpu_ns": -1, **fields}.values())


def record(sequence: int, body: bytes, *, sequence_end: int | None = None, crc: int | None = None) -> bytes:
    """One record, with whatever is to be wrong about it."""
    end = sequence if sequence_end is None else sequence_end
    data = struct.pack("<Q", sequence) + body + struct.pack("<Q", end)
    return data + struct.pack("<I", zlib.crc32(data) if crc is None else crc)


class PlainRing:
    """A ring that is written by the letter of the format; any capacity, nothing is checked."""

    def __init__(self, directory: Path, capacity: int, values: Mapping[str, Any] | None = None) -> None:
        values = identity() if values is None else values
        self.path = directory / ring_name(values)
        self.key = self.path.stem
        self.capacity = capacity
        self.written = 0
        self.path.write_bytes(
            header(json.dumps(values, separators=(",", ":")).encode(), capacity) + bytes(capacity * RECORD_BYTES)
        )
        self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, body: bytes | None = None) -> None:
        """Write the next record."""
        self.written += 1
        self.put(self.written, record(self.written, payload(end_ns=self.written) if body is None else body))

    def put(self, sequence: int, data: bytes) -> None:
        """Put anything into the place of record `sequence`."""
        os.pwrite(self.fd, data, RECORDS_AT + (sequence - 1) % self.capacity * RECORD_BYTES)

    def write_counters(self, **fields: int) -> None:
        """Write the block of counters, with the number of records."""
        os.pwrite(self.fd, counters(**{"written": self.written, **fields}), 3072)

    def damage(self, sequence: int, data: bytes = b"\xff" * RECORD_BYTES) -> None:
        """Overwrite the place of record `sequence` with something else."""
        self.put(sequence, data[:RECORD_BYTES])

    def close(self) -> None:
        os.close(self.fd)
