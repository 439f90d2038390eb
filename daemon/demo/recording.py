"""Recorded cycles in a file: a provenance, and the payload of every record, unchanged.

An LZMA file: one line of JSON, then the columns of the records one after the other. Columns of neighbours
compress better than rows, and times are kept as differences.
"""

import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cyclewatch.collectors.records import RECORD, Records

SHIPPED = Path(__file__).parent / "sglang-0.5.23-cpu.cycles.xz"

_COLUMNS = tuple(name for name in RECORD.names or () if name not in {"sequence", "sequence_end", "crc"})
_MAX_BYTES = 256 << 20


class RecordingError(Exception):
    """The file is not a recording; the message names it."""


@dataclass(frozen=True)
class Recording:
    """Cycles of a real server.

    `provenance` tells versions, machine, date, traffic and what was done when; `identity` is the ring's;
    `records` are in order.
    """

    provenance: Mapping[str, Any] = field(hash=False)
    identity: Mapping[str, Any] = field(hash=False)
    records: Records = field(compare=False)

    @property
    def first_ns(self) -> int:
        """Monotonic end of the first cycle."""
        return int(self.records["end_ns"][0])

    @property
    def length_s(self) -> float:
        """Seconds from the first to the last record."""
        return (int(self.records["end_ns"].max()) - self.first_ns) / 1e9


def save(path: Path, recording: Recording) -> None:
    """Write a recording."""
    header = {
        "provenance": recording.provenance,
        "identity": recording.identity,
        "count": len(recording.records),
    }
    parts = [json.dumps(header).encode() + b"\n"]
    for name in _COLUMNS:
        column = recording.records[name]
        if name == "end_ns":
            column = np.diff(column.astype(np.int64), prepend=np.int64(0))
        parts.append(np.ascontiguousarray(column).tobytes())
    path.write_bytes(lzma.compress(b"".join(parts), preset=9 | lzma.PRESET_EXTREME))


def load(path: Path = SHIPPED) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: the file is missing, damaged or of another form.
    """
    try:
        with lzma.open(path) as file:
            data = file.read(_MAX_BYTES)
        line, _, body = data.partition(b"\n")
        header = json.loads(line)
        count = int(header["count"])
        if not 0 < count <= len(body):
            raise ValueError(f"{count} records in {len(body)} bytes")  # noqa: TRY301 (as all that is wrong with it)
        records = np.zeros(count, RECORD)
        at = 0
        for name in _COLUMNS:
            kind = np.dtype("<i8") if name == "end_ns" else RECORD[name]
            column = np.frombuffer(body, kind, count=count, offset=at)
            records[name] = np.cumsum(column) if name == "end_ns" else column
            at += column.nbytes
        return Recording(header["provenance"], header["identity"], records)
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"{path}: not a recording of cycles: {error}") from None
