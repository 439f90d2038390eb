"""Parsers of the files of /proc: bytes in, records out, no file access."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

COUNTER_MAX = 2**64 - 1
_COUNTER_DIGITS = 20
_SCHEDSTAT_FIELDS = 3
_STATE_FIELD, _PARENT_FIELD = 0, 1
_USER_FIELD, _SYSTEM_FIELD = 11, 12
_START_FIELD = 19
_ENDED_STATES = frozenset({b"Z", b"X"})


class FormatError(ValueError):
    """A file of the kernel does not have the form it is documented to have."""


class SchedStat(NamedTuple):
    """What the scheduler has counted for one thread since its start, in nanoseconds."""

    on_cpu_ns: int
    wait_ns: int


class ProcessStat(NamedTuple):
    """One process: its name (at most 15 bytes), its parent, its start and the CPU time of its threads.

    The start is in clock ticks since boot, the CPU time in clock ticks since that start. `ended` is true of a process
    that runs no more and is there only until its parent has asked for its exit status.
    """

    name: str
    parent_pid: int
    start_ticks: int
    cpu_ticks: int
    ended: bool


def parse_schedstat(content: bytes) -> SchedStat:
    """`/proc/PID/task/TID/schedstat`: time on a CPU, time runnable but waiting for one, timeslices.

    Raises:
        FormatError: not three counters.
    """
    fields = content.split()
    if len(fields) != _SCHEDSTAT_FIELDS:
        raise FormatError(f"schedstat has {len(fields)} fields, not {_SCHEDSTAT_FIELDS}")
    return SchedStat(counter(fields[0]), counter(fields[1]))


def parse_stat(content: bytes) -> ProcessStat:
    """`/proc/PID/stat`; the name in parentheses may itself hold spaces, parentheses and newlines.

    Raises:
        FormatError: no name in parentheses, or too few fields after it.
    """
    _, opened, rest = content.partition(b"(")
    name, closed, after = rest.rpartition(b")")
    fields = after.split()
    if not (opened and closed) or len(fields) <= _START_FIELD:
        raise FormatError("stat is not a name in parentheses followed by its fields")
    return ProcessStat(
        name=name.decode(errors="replace"),
        parent_pid=counter(fields[_PARENT_FIELD]),
        start_ticks=counter(fields[_START_FIELD]),
        cpu_ticks=counter(fields[_USER_FIELD]) + counter(fields[_SYSTEM_FIELD]),
        ended=fields[_STATE_FIELD] in _ENDED_STATES,
    )


def parse_children(content: bytes) -> tuple[int, ...]:
    """`/proc/PID/task/TID/children`: process ids with spaces between them.

    Raises:
        FormatError: something in it is not a number.
    """
    return tuple(counter(field) for field in content.split())


def named_counters(names: Mapping[bytes, str]) -> Callable[[bytes], dict[str, int]]:
    """A parser of lines like `VmRSS: 17 kB` or `oom 3`: the numbers of those in `names`, under the names given there.

    Lines that are not there are left out of what it gives, since they hang on the kernel's version. It raises
    `FormatError` where what follows a name is no number.
    """
    # Searched for the end of the line before, which takes a fifth of the time that ^ does.
    lines = re.compile(rb"\n(%b):?[ \t]+(\S+)" % b"|".join(map(re.escape, names)))

    def parse(content: bytes) -> dict[str, int]:
        return {names[name]: counter(number) for name, number in lines.findall(b"\n" + content)}

    return parse


def counter(digits: bytes) -> int:
    """An unsigned 64-bit number in decimal digits, and nothing else.

    Raises:
        FormatError: anything that the kernel does not print for such a number.
    """
    # int() alone would take signs, underscores and any length.
    if not digits.isdigit() or len(digits) > _COUNTER_DIGITS or (value := int(digits)) > COUNTER_MAX:
        raise FormatError(f"{digits[:_COUNTER_DIGITS]!r} is not a counter")
    return value
