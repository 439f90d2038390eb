"""The reader of one ring: checked records, and an account of the ones that were lost or torn.

Layout and rules are in docs/ring-format.md. Everything here treats the file as hostile: any length, any
content, and gone at any moment.
"""

import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cyclewatch.collectors.records import RECORD, Records, RingCounters, RingIdentity, joined

MAGIC = b"CYCWATCH"
FORMAT_VERSION = 1
HEADER_BYTES = 4096
RECORD_BYTES = RECORD.itemsize
IDENTITY_OFFSET = 40
IDENTITY_BYTES_MAX = 3000
COUNTERS_OFFSET = 3072
CAPACITY_MAX = 1 << 20

_KEY = re.compile(r"[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}")
_FIXED = struct.Struct("<8sIIIIQII")
_COUNTERS = struct.Struct("<QQQQQQIIII")
_SEQUENCE_MAX = 1 << 62
_CHUNK_RECORDS = 256
"""What a look finds at 100 cycles a second. 128 KiB and more are mapped, and given back, at every look."""

_CHUNKS_MAX = 1024


class RingError(Exception):
    """A file in the ring directory cannot be used as a ring; the message names it and says why."""


@dataclass(frozen=True)
class RingReading:
    """Records read in one go; `records` may be empty.

    `more` tells that there are more than one reading takes, `held_back` that the newest waits for the next look.
    """

    records: Records
    lost: int
    torn: int
    more: bool
    held_back: bool


class RingReader:
    """Reads one ring from `next_sequence` on, one record behind the writer.

    The newest record is given out at the second look only: a record that is just being written is thus never
    taken for a torn one.

    Raises:
        RingError: not a ring, of another format version, or absurd sizes.
        OSError: the file cannot be opened or read.
    """

    def __init__(self, path: Path, next_sequence: int = 0) -> None:
        if not _KEY.fullmatch(path.stem):
            raise RingError(f"{path}: not named <pid namespace>-<pid>-<start ticks>.ring: not a ring")
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self.identity, self.capacity = self._read_header()
            newest = self._newest_sequence()
        except BaseException:
            os.close(self._fd)
            raise
        # A place beyond the newest record was remembered of another file.
        known = 0 < next_sequence <= newest + 1
        self.next_sequence = next_sequence if known else self._oldest_sequence(newest)
        self._held_back = 0
        self._held_back_before = 0

    def close(self) -> None:
        """Close the file; the writer does not notice."""
        os.close(self._fd)

    def counters(self) -> RingCounters | None:
        """What the writer says of itself; None where the block was being rewritten or is damaged."""
        block = os.pread(self._fd, _COUNTERS.size, COUNTERS_OFFSET)
        if len(block) < _COUNTERS.size:
            return None
        *values, _reserved, crc = _COUNTERS.unpack(block)
        return RingCounters(*values) if zlib.crc32(block[:-4]) == crc else None

    def truncated(self) -> bool:
        """Whether somebody cut the file, so that records are missing from its end."""
        return os.fstat(self._fd).st_size < HEADER_BYTES + self.capacity * RECORD_BYTES

    def unlinked(self) -> bool:
        """Whether the file has been deleted, or another one has taken its name."""
        return os.fstat(self._fd).st_nlink == 0

    def read(self, limit: int = 65_536) -> RingReading:
        """Records that are new since the last call, at most about `limit`."""
        parts: list[Records] = []
        lost = torn = taken = 0
        more = True
        self._held_back_before = self._held_back
        for _ in range(_CHUNKS_MAX):
            chunk, chunk_lost, chunk_torn, more = self._read_chunk()
            lost += chunk_lost
            torn += chunk_torn
            taken += len(chunk)
            if len(chunk):
                parts.append(chunk)
            if not more or taken >= limit:
                break
        records = joined(parts) if parts else np.empty(0, RECORD)
        return RingReading(records, lost, torn, more, held_back=self._held_back == self.next_sequence)

    def _read_chunk(self) -> tuple[Records, int, int, bool]:
        """The slots from `next_sequence` on: records, lost, torn, whether more may follow."""
        first = self.next_sequence
        slots, expected, written = self._look(first, _CHUNK_RECORDS)
        if not written.any():
            lost = self._skip_overwritten(slots[self._overtaking(slots, expected)])
            return slots[:0], lost, 0, lost > 0
        length = len(slots) - int(np.argmax(written[::-1]))
        if not written[:length].all():
            # Damaged, or copied while the writer went past: it is beyond them now, so a second look tells.
            slots, expected, written = self._look(first, length)
        more = length == min(_CHUNK_RECORDS, self.capacity)
        newest = first + length - 1
        if newest != self._held_back_before:
            # It may be the one just being written: it waits for the next look, unless more turn out to follow.
            self._held_back = newest
            length -= 1
            more = more and length > 0
        good = self._good(slots[:length])
        overwritten = good & (slots["sequence"][:length] > expected[:length])
        records = slots[:length].compress(good & written[:length])
        self.next_sequence = first + length
        lost = int(overwritten.sum())
        return records, lost, length - len(records) - lost, more

    def _overtaking(self, slots: Records, expected: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which slots may hold a record of a later round than expected; only such are worth a look at all of it."""
        sequences = slots["sequence"]
        in_place = (sequences - expected) % np.uint64(self.capacity) == 0
        later: npt.NDArray[np.bool_] = (sequences > expected) & (sequences < _SEQUENCE_MAX) & in_place
        return later

    def _skip_overwritten(self, candidates: Records) -> int:
        """Where records beyond those expected stand in their place: go on behind them; gives how many were lost."""
        if not len(candidates) or not self._good(candidates).any():
            return 0
        oldest = max(self._oldest_sequence(self._newest_sequence()), self.next_sequence + 1)
        lost, self.next_sequence = oldest - self.next_sequence, oldest
        return lost

    def _look(self, first: int, count: int) -> tuple[Records, npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Slots from that of record `first` on, the sequences expected there, and which slots have them."""
        start = (first - 1) % self.capacity
        count = min(count, self.capacity)
        slots = self._slots(start, min(count, self.capacity - start))
        if len(slots) == self.capacity - start < count:
            slots = joined((slots, self._slots(0, count - len(slots))))
        expected = np.arange(first, first + len(slots), dtype=np.uint64)
        return slots, expected, slots["sequence"] == expected

    def _slots(self, start: int, count: int) -> Records:
        """`count` slots from slot `start` on; fewer where the file was cut off."""
        data = os.pread(self._fd, count * RECORD_BYTES, HEADER_BYTES + start * RECORD_BYTES)
        return np.frombuffer(data, RECORD, count=len(data) // RECORD_BYTES)

    @staticmethod
    def _good(slots: Records) -> npt.NDArray[np.bool_]:
        """Which slots hold a record whose sequences agree and whose check is right, shape (n,)."""
        view = memoryview(slots.tobytes())
        crc32 = zlib.crc32
        body = RECORD_BYTES - 4
        computed = np.fromiter(
            (crc32(view[at : at + body]) for at in range(0, len(view), RECORD_BYTES)),
            np.uint32,
            count=len(slots),
        )
        good: npt.NDArray[np.bool_] = (computed == slots["crc"]) & (slots["sequence"] == slots["sequence_end"])
        return good

    def _newest_sequence(self) -> int:
        """Sequence of the newest record that stands in its place; 0 for an empty ring."""
        newest = 0
        for start in range(0, self.capacity, _CHUNK_RECORDS):
            slots = self._slots(start, min(_CHUNK_RECORDS, self.capacity - start))
            sequences = slots["sequence"]
            place = np.arange(start, start + len(slots), dtype=np.uint64)
            in_place = (sequences - np.uint64(1)) % np.uint64(self.capacity) == place
            possible = (sequences > newest) & (sequences < _SEQUENCE_MAX) & in_place
            newest = max(newest, int(sequences[possible][self._good(slots[possible])].max(initial=0)))
        return newest

    def _oldest_sequence(self, newest: int) -> int:
        """Sequence of the oldest record that is safe from the writer for a while; 1 for an empty ring."""
        # A 64th of the ring as a margin: the writer goes on while the jump is made.
        return max(1, newest - self.capacity + 1 + self.capacity // 64)

    def _read_header(self) -> tuple[RingIdentity, int]:
        header = os.pread(self._fd, HEADER_BYTES, 0)
        if len(header) < HEADER_BYTES:
            raise RingError(f"{self.path}: {len(header)} bytes, shorter than a ring's header: not a ring, or cut off")
        magic, version, header_bytes, record_bytes, length, capacity, crc, fixed_crc = _FIXED.unpack_from(header)
        if magic != MAGIC:
            raise RingError(f"{self.path}: does not begin with {MAGIC.decode()}: not a ring")
        if version != FORMAT_VERSION:
            raise RingError(
                f"{self.path}: ring format {version}, this daemon reads {FORMAT_VERSION}: "
                "install the same release of cyclewatch and cyclewatch-sglang"
            )
        if zlib.crc32(header[:36]) != fixed_crc:
            raise RingError(f"{self.path}: the header's check is wrong: the file is damaged")
        if header_bytes != HEADER_BYTES or record_bytes != RECORD_BYTES:
            raise RingError(f"{self.path}: header of {header_bytes} and records of {record_bytes} bytes: not readable")
        if not 1 < capacity <= CAPACITY_MAX:
            raise RingError(f"{self.path}: capacity of {capacity} records is absurd (2 to {CAPACITY_MAX} are read)")
        if length > IDENTITY_BYTES_MAX:
            raise RingError(f"{self.path}: identity of {length} bytes is too long (at most {IDENTITY_BYTES_MAX})")
        text = header[IDENTITY_OFFSET : IDENTITY_OFFSET + length]
        if zlib.crc32(text) != crc:
            raise RingError(f"{self.path}: the identity's check is wrong: the file is damaged")
        try:
            return RingIdentity.parse(self.path.stem, text), capacity
        except ValueError as error:
            raise RingError(f"{self.path}: {error}") from None
