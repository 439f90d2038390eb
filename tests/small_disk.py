"""A small file system in memory, which a test fills to the last byte."""

import os
import subprocess
import time
from pathlib import Path

import pytest

_ROOM_BYTES = 2**30
_PAGE_BYTES = 4096
_PROGRAM_S = 30


class SmallDisk:
    """A tmpfs over an empty directory; skips the test where none may be mounted."""

    def __init__(self, place: Path) -> None:
        self.directory = place
        place.mkdir(parents=True, exist_ok=True)
        if os.geteuid() != 0 or not _mount("-t", "tmpfs", "-o", f"size={_ROOM_BYTES}", "cyclewatch-test", str(place)):
            pytest.skip("no file system that could become full: mounting one needs root and CAP_SYS_ADMIN")

    def fill(self) -> None:
        """Take away what is free, by its size: so no memory is needed for it."""
        deadline = time.monotonic() + _PROGRAM_S
        while not self._resize(max(self._used_bytes(), _PAGE_BYTES)):  # more was written since it was asked
            assert time.monotonic() < deadline

    def free(self) -> None:
        """Give room again."""
        assert self._resize(_ROOM_BYTES)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "--lazy", self.directory], check=True, timeout=_PROGRAM_S)

    def _used_bytes(self) -> int:
        found = os.statvfs(self.directory)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def _resize(self, size_bytes: int) -> bool:
        return _mount("-o", f"remount,size={size_bytes}", str(self.directory))


def _mount(*words: str) -> bool:
    done = subprocess.run(["mount", *words], check=False, capture_output=True, timeout=_PROGRAM_S)
    return done.returncode == 0
