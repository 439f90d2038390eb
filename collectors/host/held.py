"""Files of the kernel that stay open between readings.

Opening a file of /proc costs about ten times what reading it again through a held descriptor does. A held
descriptor stays with the process, thread or group it was opened for: once that is gone, reading fails and
never gives the values of a successor that got the same number.
"""

import os
from collections.abc import Iterable
from pathlib import Path

_READ_BYTES = 4096
_WHOLE_BYTES_MAX = 2**20


class HeldFile:
    """One file, read from its start each time.

    Raises:
        OSError: the file cannot be opened.
    """

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """What the file holds now, at most 4096 bytes.

        Raises:
            OSError: what the file told of is gone, or must not be read.
        """
        return os.pread(self.fd, _READ_BYTES, 0)

    def read_whole(self) -> bytes:
        """What the file holds now, up to 1 MiB; the kernel gives tables of devices in pieces of about a page.

        Raises:
            OSError: what the file told of is gone, or must not be read.
        """
        content = b""
        while len(content) < _WHOLE_BYTES_MAX and (piece := os.pread(self.fd, _WHOLE_BYTES_MAX, len(content))):
            content += piece
        return content

    def close(self) -> None:
        """Close the file; it must not be read afterwards."""
        os.close(self.fd)


def read_each(files: Iterable[HeldFile], length: int) -> list[bytes]:
    """What many files hold now, at most `length` bytes of each, without a call of Python's own for each.

    Raises:
        OSError: what one of them told of is gone, or must not be read.
    """
    pread = os.pread
    return [pread(file.fd, length, 0) for file in files]
