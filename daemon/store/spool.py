"""What the database did not take, on disk, in order.

A directory of numbered segments. Each is a row of records: length and CRC32 (little endian, 32 bits each), then the
bytes of a unit. A record that a killed daemon did not finish ends its segment; what stands before it counts. A segment
is deleted when the database has all of it, and nothing newer is written before. So there is no place to remember: a
daemon that was killed while it replayed writes the first segment again, in the same order, and units written twice are
there once.
"""

import errno
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import TypeVar

import structlog

from cyclewatch.daemon.store.unit import Unit, merged
from cyclewatch.daemon.store.unit_bytes import UnitHead, head_from_bytes, unit_from_bytes, unit_to_bytes

log = structlog.get_logger(__name__)

_HEAD = struct.Struct("<II")
_SEGMENT_BYTES = 4 * 2**20
_LARGEST_RECORD_BYTES = 2**28

_Read = TypeVar("_Read")


class Spool:
    """Units in a directory, at most about `max_bytes` of them.

    Beyond that the oldest give up their measurements, counted in `dropped`, and become one; what was found, and where
    reading goes on, stays. Used by one thread.

    Raises (every method):
        OSError: the directory cannot be read or written.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._sizes: dict[int, int] = {}
        self._units: dict[int, int] = {}
        self._open: FileIO | None = None
        self.dropped = 0
        if directory.is_dir():
            paths = sorted(path for path in directory.glob("*.units") if path.stem.isdigit())
            self._sizes = {int(path.stem): path.stat().st_size for path in paths}

    @property
    def empty(self) -> bool:
        """Whether the database has everything."""
        return not self._sizes

    @property
    def units(self) -> int:
        """How many units wait, as far as this process has seen them."""
        return sum(self._units.values())

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    def append(self, unit: Unit) -> None:
        """Put a unit behind all others; it is on the disk when this returns.

        Raises:
            TypeError, ValueError, OverflowError: no unit that a database would take either.
        """
        packed = unit_to_bytes(unit)
        record = _HEAD.pack(len(packed), zlib.crc32(packed)) + packed
        number = max(self._sizes, default=0)
        if self._open is None or self._sizes[number] + len(record) > _SEGMENT_BYTES:
            number += 1
            self._begin(number)
        assert self._open is not None
        try:
            _write(self._open, record)
        except OSError:
            self._cut(number)
            raise
        self._sizes[number] += len(record)
        self._units[number] = self._units.get(number, 0) + 1
        self._shrink()

    def oldest(self) -> Iterator[Unit]:
        """The units of the first segment, in order."""
        return _records(self._path(min(self._sizes)), unit_from_bytes)

    def heads(self) -> Iterator[UnitHead]:
        """The heads of all units, in order."""
        for number in sorted(self._sizes):
            self._units[number] = 0
            for head in _records(self._path(number), head_from_bytes):
                self._units[number] += 1
                yield head

    def done(self) -> None:
        """The database has the first segment."""
        number = min(self._sizes)
        if number == max(self._sizes):
            self.close()
        self._path(number).unlink(missing_ok=True)
        del self._sizes[number]
        self._units.pop(number, None)

    def beside(self) -> "Spool":
        """One for another thread: what it takes lies behind all that is there."""
        return Spool(self._directory, self._max_bytes)

    def close(self) -> None:
        """Close the segment that is written to; the next unit begins another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:08d}.units"

    def _begin(self, number: int) -> None:
        self.close()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open = FileIO(os.open(self._path(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
        self._sizes[number] = 0
        self._keep_names()

    def _cut(self, number: int) -> None:
        """A record that could not be written whole would hide those behind it: begin a new segment after it."""
        self.close()
        if not self._sizes[number]:
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]

    def _shrink(self) -> None:
        """Let the two oldest segments that are complete become one without measurements, until there is room."""
        while self.size_bytes > self._max_bytes:
            *complete, _ = sorted(self._sizes)
            if not complete[1:]:
                return
            first, second, *_ = complete
            before = self._sizes[first] + self._sizes[second]
            whole: Unit | None = None
            for number in (first, second):
                for unit in _records(self._path(number), unit_from_bytes):
                    self.dropped += unit.shed()
                    whole = unit if whole is None else merged(whole, unit)
            packed = unit_to_bytes(whole or Unit(0))
            partial = self._directory / "merged.tmp"
            with partial.open("wb") as file:
                file.write(_HEAD.pack(len(packed), zlib.crc32(packed)) + packed)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path(second))
            self._path(first).unlink()
            self._keep_names()
            del self._sizes[first]
            self._units.pop(first, None)
            self._units[second] = 1
            self._sizes[second] = _HEAD.size + len(packed)
            if self._sizes[second] >= before:
                return  # nothing but findings: they stay, whatever their size

    def _keep_names(self) -> None:
        """Make the names in the directory as lasting as what is in the files."""
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write(file: FileIO, record: bytes) -> None:
    if file.write(record) < len(record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the spool")
    os.fsync(file.fileno())


def _records(path: Path, read: Callable[[bytes], _Read]) -> Iterator[_Read]:
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            length, check = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 1)
            packed = file.read(min(length, _LARGEST_RECORD_BYTES))
            if len(packed) != length or zlib.crc32(packed) != check:
                log.warning("a batch on disk is not whole: what stands before it counts", file=str(path))
                return
            try:
                yield read(packed)
            except ValueError as error:
                log.error("a batch on disk cannot be read; left out", file=str(path), reason=str(error))  # noqa: TRY400
