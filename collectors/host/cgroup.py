"""Control groups, version 1 and 2: where those of a process are, and what their files say. No file access."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cyclewatch.collectors.procfs import FormatError, counter, named_counters

UNIFIED = ""
"""The name under which `parse_groups` gives the path in the version 2 hierarchy."""

THROTTLED_NS = "throttled_ns"
READ, WRITE = "read", "write"

_UP = ".."
_MOUNT_FIELDS = 6
_FILESYSTEM_FIELDS = 3
_ESCAPED = re.compile(r"\\(011|012|040|043|134)")
_NS_OF_US = 1000
_BLKIO_WORDS = 2
_throttled = named_counters({b"throttled_usec": "us", b"throttled_time": "ns"})
_DIRECTIONS = {"rbytes": READ, "wbytes": WRITE, "Read": READ, "Write": WRITE}


class GroupPlace(NamedTuple):
    """Where a group is: under `point`, then `unknown` directories whose names cannot be told, then `below`."""

    point: Path
    unknown: int
    below: tuple[str, ...]


parse_memory_events = named_counters({name.encode(): name for name in ("high", "max", "oom", "oom_kill")})
"""`memory.events` (version 2), or `memory.oom_control` (version 1, which counts killed processes alone).

Events since the group was made: reclaim forced, limit hit, no memory left, process killed.
"""


class Mount(NamedTuple):
    """One mounted hierarchy: where it is seen, which group is seen there, and its controllers."""

    point: Path
    root: str
    controllers: frozenset[str]


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


def find_group(controller: str, groups: Mapping[str, str], mounts: Sequence[Mount], under: Path) -> GroupPlace | None:
    """Where the group is seen that a controller has a process in; None where it is not visible at or below `under`.

    A controller is in a version 1 hierarchy on hybrid systems, in version 2 otherwise.
    """
    for name in dict.fromkeys((controller, UNIFIED)):
        group = groups.get(name)
        if group is None:
            continue
        for mount in reversed(mounts):  # the last one mounted on a directory is the one that is seen
            if name in mount.controllers and mount.point.is_relative_to(under):
                place = _inside(group, mount)
                if place is not None:
                    return place
    return None


def parse_cpu_stat(content: bytes) -> dict[str, int]:
    """`cpu.stat` of either version: time in which the group was held back by its CPU limit, since it was made.

    In nanoseconds, added up over CPUs: a group held back on four CPUs for a second has four seconds. Empty where
    the group cannot have a limit, as the root cannot.

    Raises:
        FormatError: the time is no number.
    """
    found = _throttled(content)
    if "us" in found:
        return {THROTTLED_NS: found["us"] * _NS_OF_US}
    return {THROTTLED_NS: found["ns"]} if "ns" in found else {}


def parse_io_stat(content: bytes) -> dict[tuple[str, str], int]:
    """`io.stat` (version 2) or `blkio.throttle.io_service_bytes` (version 1): bytes by disk number and direction.

    Raises:
        FormatError: a number of bytes is none.
    """
    found = {}
    for line in content.decode(errors="replace").splitlines():
        disk, *words = line.split() or [""]
        if len(words) == _BLKIO_WORDS and words[0] in _DIRECTIONS:
            found[disk, _DIRECTIONS[words[0]]] = counter(words[1].encode())
        for word in words:
            name, equals, number = word.partition("=")
            if equals and name in _DIRECTIONS:
                found[disk, _DIRECTIONS[name]] = counter(number.encode())
    return found


def _inside(group: str, mount: Mount) -> GroupPlace | None:
    """The place of `group` below a mount; None where it is not below it.

    Both paths are relative to the reader's cgroup namespace, and begin with `/..` where they lie outside of it. A
    container that has all of the host's groups mounted sees them with the root `/../..`, and a neighbour of its own
    group as `/../neighbour`: the names between the two are not told.
    """
    parts, above = PurePosixPath(group).parts, PurePosixPath(mount.root).parts
    if parts[: len(above)] == above:
        unknown, below = 0, parts[len(above) :]
    elif set(above[1:]) == {_UP}:
        climbed = len(list(takewhile(_UP.__eq__, parts[1:])))
        unknown, below = len(above) - 1 - climbed, parts[1 + climbed :]
    else:
        return None
    return None if _UP in below else GroupPlace(mount.point, unknown, below)


def _unescape(field: str) -> str:
    """Tabs, newlines, spaces, `#` and backslashes are in octal in mountinfo."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
