"""The table that torch prints of a profile: `prof.key_averages().table()`, also out of the log of several hosts.

Its rows are operators, calls of the runtime, and what ran on the device; an operator's device time is that of its
kernels, so only rows without any CPU time count. Each figure has its own unit. An annotation (`record_function`) has
two rows: one on the CPU, and one on the device with the time from its first kernel to its last.
"""

import re
from dataclasses import dataclass, field, replace

from cyclewatch.collectors.profiles.flaws import MISSING_RATIO, missing_rows, surplus_rows
from cyclewatch.collectors.profiles.records import (
    Flaw,
    FlawKind,
    KernelKind,
    KernelUse,
    Profile,
    ProfileError,
    ProfileFormat,
)
from cyclewatch.collectors.profiles.tables import check_tables, checked_name, count, is_cut, table_profile, time_ns
from cyclewatch.collectors.profiles.unpack import Limits

_FIRST_TITLE = re.compile(r"\bName\s{2,}")
_DEVICE = re.compile(r"Self (?!CPU\b)\w+")
_TOTAL = re.compile(r"Self (?!CPU\b)\w+ time total:\s*(?P<time>\S+)")
_ANY_TOTAL = re.compile(r"Self \w+ time total:")
_RULE = re.compile(r" ?-+(?:  -+){1,40} *")
_ZERO = re.compile(r"[0.,]+(?:us|ms|s)?")
_ANNOTATION = re.compile(r"ProfilerStep\*|step\[|execute_\w*context_|nccl:|## |Torch-Compiled |Optimizer\.\w+#")
"""Spans that torch lists beside the kernels they hold; by name, since a limit of rows may take their row on the CPU."""
_INDUCTOR = "triton_"
"""Kernels with a row on the CPU: Inductor calls the operator that starts a kernel by the kernel's name."""
_CALLS = "# of Calls"
_COPIES = {"Memcpy": KernelKind.MEMCPY, "Memset": KernelKind.MEMSET}


@dataclass(slots=True)
class _Table:
    """One table, while it is read."""

    prefix: str
    """What stands before each line: the host it comes from."""
    columns: list[str]
    """Without that of the names."""
    widths: list[int] = field(default_factory=list)
    """Of all columns, in characters, by the dashes below the titles."""
    on_device: list[KernelUse] = field(default_factory=list)
    on_cpu: list[KernelUse] = field(default_factory=list)
    spans_ns: int = 0
    """Of the annotations, on the device."""
    total_ns: int | None = None
    ended: bool = False

    @property
    def host(self) -> str:
        return self.prefix.strip(" :")


def is_header(line: str) -> bool:
    """Whether a table of torch begins here."""
    return _CALLS in line and "Self CPU" in line and _FIRST_TITLE.search(line) is not None


def read_torch_table(text: str, limits: Limits) -> Profile:
    """What ran on the devices; where nothing did, the operators of the CPU by their self time.

    Raises:
        ProfileError: the table has no rows, or a row tells an impossible figure.
    """
    tables = [table for table in _tables(text, limits) if table.on_device or table.on_cpu]
    if not tables:
        raise ProfileError("a table of torch without rows: was anything profiled?")
    first: dict[str, _Table] = {}
    for table in tables:
        first.setdefault(table.host, table)
    flaws = [flaw for table in first.values() for flaw in _flaws(table)]
    if len(first) < len(tables):
        left = len(tables) - len(first)
        flaws.append(Flaw(FlawKind.INEXACT, f"further tables are left out ({left}): the first one of a host is read"))
    any_device = any(table.on_device for table in first.values())
    uses = [
        replace(use, device=host if len(first) > 1 else "")
        for host, table in first.items()
        for use in (table.on_device if any_device else table.on_cpu)
    ]
    return table_profile(
        ProfileFormat.TORCH_TABLE, uses, flaws, rank=next(iter(first)) or None if len(first) == 1 else None
    )


def _tables(text: str, limits: Limits) -> list[_Table]:
    tables: list[_Table] = []
    for number, line in enumerate(text.splitlines(), 1):
        if is_header(line):
            tables.append(_header(line))
            check_tables(len(tables))
            continue
        table = next((one for one in reversed(tables) if line.startswith(one.prefix)), None)
        if table is None:
            continue
        if match := _TOTAL.search(line):
            table.total_ns = time_ns(match["time"], "us", number)
        if _ANY_TOTAL.search(line):
            table.ended = True
        elif not table.ended:
            _take(table, line.removeprefix(table.prefix), number, limits)
    for table in tables:
        _leave_out_spans(table)
    return tables


def _header(line: str) -> _Table:
    first = _FIRST_TITLE.search(line)
    assert first is not None
    return _Table(line[: first.start()].rstrip(), re.split(r"\s{2,}", line[first.end() :].strip()))


def _take(table: _Table, row: str, line: int, limits: Limits) -> None:
    if _RULE.fullmatch(row):
        table.widths = [len(dashes) for dashes in row.rstrip().split("  ")]
        return
    found = _figures(table, _by_width(table.widths, row)) or _figures(table, re.split(r"\s{2,}", row.strip()))
    if found is None:
        return
    cell, figures = found
    name = checked_name(cell, limits.name_chars, line)
    device = next((column for column in table.columns if _DEVICE.fullmatch(column)), None)
    by_cpu = not all(_ZERO.fullmatch(figures.get(column, "0")) for column in ("Self CPU", "CPU total"))
    if by_cpu:
        table.on_cpu.append(_use(KernelKind.CPU_OP, name, figures["Self CPU"], figures[_CALLS], line))
    elif device and not _ZERO.fullmatch(figures[device]):
        kind = next((kind for begin, kind in _COPIES.items() if name.startswith(begin)), KernelKind.KERNEL)
        table.on_device.append(_use(kind, name, figures[device], figures[_CALLS], line))


def _by_width(widths: list[int], row: str) -> list[str]:
    """The cells of a row as torch pads them, also empty ones; what is too wide for its column moves the others."""
    cells = []
    at = 0
    for width in widths:
        end = row.find("  ", at + width)
        end = len(row) if end < 0 else end
        cells.append(row[at:end].strip())
        at = end + 2
    return cells


def _figures(table: _Table, cells: list[str]) -> tuple[str, dict[str, str]] | None:
    """The name and the other cells by their title; ``None`` where they are not those of a row."""
    names = len(cells) - len(table.columns)
    figures = dict(zip(table.columns, cells[names:], strict=False))
    if names < 1 or not figures[_CALLS].replace(",", "").isdecimal():
        return None
    return "  ".join(cells[:names]), figures


def _leave_out_spans(table: _Table) -> None:
    """Take the rows of annotations from those of the device."""
    on_cpu = {use.name for use in table.on_cpu if not use.name.startswith(_INDUCTOR)}
    listed_ns = sum(use.total_ns for use in table.on_device)
    table.on_device = [use for use in table.on_device if not (use.name in on_cpu or _ANNOTATION.match(use.name))]
    table.spans_ns = listed_ns - sum(use.total_ns for use in table.on_device)


def _use(kind: KernelKind, name: str, time: str, calls: str, line: int) -> KernelUse:
    return KernelUse(
        name=name,
        kind=kind,
        device="",
        phase="",
        calls=count(calls, line),
        total_ns=time_ns(time, "us", line),
        min_ns=None,
        max_ns=None,
        median_ns=None,
        std_ns=None,
        truncated=is_cut(name),
    )


def _flaws(table: _Table) -> list[Flaw]:
    if not table.ended:
        text = "the table ends without the totals that torch prints below it: it was cut off"
        return [Flaw(FlawKind.INCOMPLETE, text)]
    rows_ns, whole_ns = sum(use.total_ns for use in table.on_device), table.total_ns or 0
    if abs(rows_ns + table.spans_ns - whole_ns) <= MISSING_RATIO * whole_ns:  # until 2.4, torch counts both
        return []
    return [*missing_rows(rows_ns, whole_ns), *surplus_rows(rows_ns, whole_ns)]
