"""The bytes of a profile, plain or packed with gzip or zstd, as a stream that ends at its limits.

Profiles come from elsewhere: a few kilobytes may unpack to terabytes, and a name may lead to a pipe that never answers.
"""

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from cyclewatch.collectors.profiles.records import ProfileError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK_BYTES = 1 << 20
"""What is unpacked at a time."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SMALL_BYTES = 64 << 20
"""Below this a high ratio does no harm."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one profile may cost; beyond it the file is refused."""

    compressed_bytes: int = 1 << 30
    unpacked_bytes: int = 2 << 30
    ratio: int = 250
    """Unpacked to packed, of what is larger than 64 MiB. Real traces have 10 to 40; gzip can reach 1,030."""
    text_bytes: int = 32 << 20
    """A table of text; the longest seen is 60 KB."""
    document_bytes: int = 256 << 20
    """JSON that has to be in memory as a whole (rocprofv3)."""
    events: int = 5_000_000
    name_chars: int = 65_536
    """The longest kernel name seen has 1,646 characters."""


@contextmanager
def unpacked(path: Path, limits: Limits) -> Iterator[Iterator[bytes]]:
    """The content of the file in pieces of at most `CHUNK_BYTES`; never an empty piece.

    Raises:
        ProfileError: it cannot be opened, is no regular file, is damaged or cut off, or exceeds the limits.
    """
    with _opened(path) as packed:
        size = os.fstat(packed.fileno()).st_size
        if size > limits.compressed_bytes:
            raise ProfileError(f"larger than {limits.compressed_bytes >> 20} MB: cut the capture shorter")
        if size == 0:
            raise ProfileError("the file is empty: was the capture stopped before it was written?")
        yield _pieces(packed, limits)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ProfileError(f"cannot be opened: {reason.lower()}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ProfileError("no regular file: give the file that the profiler wrote")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _pieces(packed: BinaryIO, limits: Limits) -> Iterator[bytes]:
    head = packed.read(4)
    packed.seek(0)
    count = 0
    try:
        plain = _unpacker(packed, head)
        while piece := plain.read(CHUNK_BYTES):
            count += len(piece)
            if count > limits.unpacked_bytes:
                raise ProfileError(f"more than {limits.unpacked_bytes >> 20} MB unpacked: cut the capture shorter")
            if count > max(_SMALL_BYTES, limits.ratio * packed.tell()):
                raise ProfileError(f"unpacks to more than {limits.ratio} times its size: this is no trace")
            yield piece
    except EOFError:
        raise ProfileError("ends in the middle: it was cut off, or is still being written") from None
    except (OSError, zlib.error, zstd.ZstdError) as error:
        raise ProfileError(f"cannot be read: {str(error).lower()}") from None


def _unpacker(packed: BinaryIO, head: bytes) -> BinaryIO:
    if head.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=packed))
    if head == _ZSTD:
        return cast("BinaryIO", zstd.ZstdFile(packed))
    return packed
