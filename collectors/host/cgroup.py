"""Control groups, version 1 and 2: where a process's CPU limits are, and what they cost. No file access."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cyclewatch.collectors.procfs import FormatError, counter

UNIFIED = ""
"""The name under which `parse_groups` gives the path in the version 2 hierarchy."""

_CPU = "cpu"
_MOUNT_FIELDS = 6
_FILESYSTEM_FIELDS = 3
_ESCAPED = re.compile(r"\\(011|012|040|043|134)")
_THROTTLED_NS = {b"throttled_usec": 1000, b"throttled_time": 1}


class Mount(NamedTuple):
    """One mounted hierarchy: where it is seen, which group is seen there, and its controllers."""

    point: Path
    root: str
    controllers: frozenset[str]


class CpuStat(NamedTuple):
    """What a group's CPU limit did since the group was made.

    `throttled_ns` adds up over CPUs: a group held back on four CPUs for a second has four seconds.
    """

    periods: int
    throttled_periods: int
    throttled_ns: int


def parse_groups(content: bytes) -> dict[str, str]:
    """`/proc/PID/cgroup`: the process's group by controller; the path of version 2 under `UNIFIED`.

    Raises:
        FormatError: a line is not `number:controllers:/path`.
    """
    groups = {}
    for line in os.fsdecode(content).split("\n"):
        if not line:
            continue
        number, first, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not (number.isdigit() and first and second and path.startswith("/")):
            raise FormatError("a line is not number:controllers:/path")
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def parse_mounts(content: bytes) -> tuple[Mount, ...]:
    """`/proc/PID/mountinfo`: the hierarchies among the mounts, in the order in which they were mounted.

    Raises:
        FormatError: a line lacks fields.
    """
    mounts = []
    for line in os.fsdecode(content).split("\n"):
        if not line:
            continue
        left, separator, right = line.partition(" - ")
        fields, filesystem = left.split(" "), right.split(" ")
        if not separator or len(fields) < _MOUNT_FIELDS or len(filesystem) < _FILESYSTEM_FIELDS:
            raise FormatError("a line of mountinfo lacks fields")
        kind, _, options = filesystem[:_FILESYSTEM_FIELDS]
        if kind in {"cgroup", "cgroup2"}:
            controllers = {UNIFIED} if kind == "cgroup2" else set(options.split(","))
            mounts.append(Mount(Path(_unescape(fields[4])), _unescape(fields[3]), frozenset(controllers)))
    return tuple(mounts)


def cpu_directories(groups: Mapping[str, str], mounts: Sequence[Mount], under: Path) -> tuple[Path, ...]:
    """Directories whose CPU limits apply to a process: its own group's first, then those above it.

    A limit anywhere on that way holds the process back. The CPU controller is in the version 1 hierarchy on
    hybrid systems, in version 2 otherwise. Only mounts at or below `under` are looked at. Empty where the
    group is not visible there: in a container, the groups outside of its own namespace have paths like
    `/../other`.
    """
    for controller in (_CPU, UNIFIED):
        group = groups.get(controller)
        if group is None:
            continue
        for mount in reversed(mounts):  # the last one mounted on a directory is the one that is seen
            inside = _inside(group, mount.root)
            if controller in mount.controllers and inside is not None and mount.point.is_relative_to(under):
                own = mount.point / inside
                above = len(PurePosixPath(inside).parts)
                return (own, *own.parents[:above])
    return ()


def parse_cpu_stat(content: bytes) -> CpuStat | None:
    """`cpu.stat` of a group in either version; None where the group cannot have a limit, as the root cannot.

    Raises:
        FormatError: a counter is not a number.
    """
    fields = dict.fromkeys((b"nr_periods", b"nr_throttled", *_THROTTLED_NS), -1)
    for line in content.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key in fields:
            fields[key] = counter(value)
    throttled = [fields[key] * unit for key, unit in _THROTTLED_NS.items() if fields[key] >= 0]
    periods, throttled_periods = fields[b"nr_periods"], fields[b"nr_throttled"]
    if not throttled or periods < 0 or throttled_periods < 0:
        return None
    return CpuStat(periods, throttled_periods, throttled[0])


def _inside(group: str, root: str) -> str | None:
    """The path of `group` below the group `root`, without a leading slash; None where it is not below it.

    Both are relative to the reader's cgroup namespace, and begin with `/..` where they lie outside of it.
    What comes after `/..` cannot be known from the paths alone, so that only a common beginning counts.
    """
    parts, above = PurePosixPath(group).parts, PurePosixPath(root).parts
    below = parts[len(above) :]
    if parts[: len(above)] != above or ".." in below:
        return None
    return "/".join(below)


def _unescape(field: str) -> str:
    """Tabs, newlines, spaces, `#` and backslashes are in octal in mountinfo."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
