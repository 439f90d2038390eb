"""What the doctor gives: findings, each with its mend."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


class Level(StrEnum):
    """How a check came out."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True)
class Check:
    """One finding; `mend` says what to do, and is empty where all is well."""

    subject: str
    level: Level
    finding: str
    mend: str = ""


def file_system(path: Path) -> str:
    """Type of the file system that `path` is on."""
    real = path.resolve()
    mounts = [
        (Path(mount.mountpoint), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if real.is_relative_to(mount.mountpoint)
    ]
    # Of several mounts on one place the last one is seen.
    return max(enumerate(mounts), key=lambda entry: (len(entry[1][0].parts), entry[0]))[1][1] if mounts else "unknown"
