"""Where the control groups of the servers are found."""

import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from cyclewatch.collectors.host.cgroup import GroupPlace, Mount, find_group, parse_groups, parse_mounts
from cyclewatch.collectors.host.problems import unreadable
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import FormatError
from cyclewatch.collectors.records import Failure

GROUPS_MAX = 16

_UNKNOWN_MAX = 4
"""Levels of groups that are searched for one whose path is not told: containers are no deeper."""


class Groups:
    """Directories of control groups of scheduler processes, at the moment of a look; nothing is read before asked for.

    `problems` has what could not be read so far.
    """

    def __init__(self, schedulers: Sequence[ServerProcess], proc: Path, root: Path) -> None:
        self._schedulers = schedulers
        self._proc = proc
        self._root = root
        self._found: dict[tuple[GroupPlace, int], tuple[Path, ...]] = {}
        self.problems: list[Failure] = []

    def way_up(self, controller: str, process: ServerProcess) -> tuple[Path, ...]:
        """The directory of the group that a controller has a process in, then those above it.

        Empty where it is not visible.
        """
        place = find_group(controller, self._of(process), self._mounts, self._root)
        if place is None:
            return ()
        key = place, process.pid  # the controllers of version 2 share a place
        if key not in self._found:
            self._found[key] = _directories(place, process.pid)
        return self._found[key]

    def own(self, controller: str) -> dict[Path, set[str]]:
        """Directories of the schedulers' own groups, at most `GROUPS_MAX`, with the targets of those in them."""
        found: dict[Path, set[str]] = {}
        for process in self._schedulers:
            for directory in self.way_up(controller, process)[:1]:
                if directory in found or len(found) < GROUPS_MAX:
                    found.setdefault(directory, set()).add(process.target)
        return found

    @cached_property
    def _mounts(self) -> tuple[Mount, ...]:
        path = self._proc / "self/mountinfo"
        try:
            return parse_mounts(path.read_bytes())
        except (OSError, FormatError) as error:
            self.problems.append(unreadable(path, error))
            return ()

    @cached_property
    def _groups(self) -> Mapping[ServerProcess, Mapping[str, str]]:
        groups = {}
        for process in self._schedulers:
            with contextlib.suppress(OSError, FormatError):  # it has ended since it was found
                groups[process] = parse_groups((self._proc / str(process.pid) / "cgroup").read_bytes())
        return groups

    def _of(self, process: ServerProcess) -> Mapping[str, str]:
        return self._groups.get(process, {})


def _directories(place: GroupPlace, pid: int) -> tuple[Path, ...]:
    """The directory of a process's group, then those above it; empty where it is not found.

    Where names are unknown, it is the directory that fits and has the process in it.
    """
    if place.unknown > _UNKNOWN_MAX:
        return ()
    starts = [place.point]
    for _ in range(place.unknown):
        starts = [child for start in starts for child in _subdirectories(start)]
    found = [start.joinpath(*place.below) for start in starts]
    if place.unknown:
        found = [directory for directory in found if _holds(directory, pid)]
    if not found:
        return ()
    levels = place.unknown + len(place.below)
    return (found[0], *found[0].parents[:levels])


def _subdirectories(directory: Path) -> list[Path]:
    try:
        return sorted(child for child in directory.iterdir() if child.is_dir())
    except OSError:
        return []


def _holds(directory: Path, pid: int) -> bool:
    try:
        return str(pid).encode() in (directory / "cgroup.procs").read_bytes().split()
    except OSError:
        return False
