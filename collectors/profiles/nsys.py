"""Kernel summaries of Nsight Systems: `cuda_gpu_kern_sum` (`gpukernsum` before 2023) and `cuda_gpu_mem_time_sum`.

As CSV, as a text table, or tab-separated as its window copies them; with the banners of `nsys stats`, and with what
people write between the rows: notes, tracebacks, a source path before a row. A line counts as a row when it has the
columns of the header above it.
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from cyclewatch.collectors.profiles.flaws import missing_rows
from cyclewatch.collectors.profiles.records import (
    Flaw,
    FlawKind,
    KernelKind,
    KernelUse,
    Profile,
    ProfileError,
    ProfileFormat,
)
from cyclewatch.collectors.profiles.tables import (
    FIGURE,
    UNIT,
    check_tables,
    checked_name,
    count,
    is_cut,
    table_profile,
    time_ns,
)
from cyclewatch.collectors.profiles.unpack import Limits

_FIRST_TITLE = re.compile(r"\"?\bTime ?(?:\(%\))?\"?(?=[\s,])")
_TITLE = re.compile(r"(?P<name>[A-Za-z][A-Za-z ]*?)\s*(?:\((?P<unit>%|ns|us|ms|s)\))?\Z")
_ROLES = {
    "time": "share",
    "total time": "total",
    "instances": "calls",
    "count": "calls",
    "avg": "mean",
    "average": "mean",
    "med": "median",
    "median": "median",
    "min": "min",
    "minimum": "min",
    "max": "max",
    "maximum": "max",
    "stddev": "std",
    "gridxyz": "shape",
    "blockxyz": "shape",
    "name": "name",
    "operation": "name",
}
_TIMES = frozenset({"total", "median", "min", "max", "std"})
_TIME_CELL = rf"{FIGURE}(?:\s?{UNIT})?"
_CELL = {
    "shape": r"\d++\s++\d++\s++\d++",
    "name": r"\S.*",
    "share": rf"{FIGURE}\s?%?",
    "calls": r"[\d,]++",
    "": r"\S++",
}
_SHARE = re.compile(rf"(?P<share>{FIGURE})\s?%?")
_MEMORY = {"[CUDA memcpy": KernelKind.MEMCPY, "[CUDA memset": KernelKind.MEMSET}
"""Whatever nsys calls the direction."""


@dataclass(frozen=True, slots=True)
class _Column:
    role: str
    unit: str


@dataclass(frozen=True, slots=True)
class _Table:
    """The header of one table."""

    prefix: str
    """What stands before each line: the host it comes from."""
    columns: tuple[_Column, ...]
    delimiter: str
    """Tab, comma, or "" for spaces."""
    pattern: re.Pattern[str]
    """A row in the form with spaces."""

    @property
    def of_shapes(self) -> bool:
        """A row is a kernel with one grid and block, and not all its calls."""
        return any(column.role == "shape" for column in self.columns)


@dataclass(frozen=True, slots=True)
class _Row:
    use: KernelUse
    share: float | None
    """Of the time of the table, as it is printed."""


def read_nsys(text: str, limits: Limits) -> Profile:
    """The kernels of the first kernel summary in a text, and the copies of the first summary of memory operations.

    Raises:
        ProfileError: there is no such table, it has no rows, or a row tells an impossible figure.
    """
    tables = [(table, rows) for table, rows in _tables(text, limits) if rows]
    if not tables:
        raise ProfileError(
            "no rows of a known profile: give a trace of Kineto, a kernel summary of nsys, a table of torch, or JSON "
            "of rocprofv3"
        )
    chosen: dict[tuple[str, bool], tuple[_Table, list[_Row]]] = {}
    for table, rows in tables:
        of_memory = all(row.use.kind is not KernelKind.KERNEL for row in rows)
        chosen.setdefault((table.prefix, of_memory), (table, rows))
    hosts = list(dict.fromkeys(prefix for prefix, _ in chosen))
    uses: list[KernelUse] = []
    flaws: list[Flaw] = []
    for (prefix, _), (table, rows) in chosen.items():
        flaws += _missing(rows)
        host = prefix.rstrip(":") if len(hosts) > 1 else ""
        here = [replace(row.use, device=host) for row in rows]
        uses += _of_all_shapes(here) if table.of_shapes else here
    if len(chosen) < len(tables):
        left = len(tables) - len(chosen)
        flaws.append(Flaw(FlawKind.INEXACT, f"further tables are left out ({left}): the first one of a kind is read"))
    return table_profile(
        ProfileFormat.NSYS, uses, flaws, rank=hosts[0].rstrip(":") or None if len(hosts) == 1 else None
    )


def _tables(text: str, limits: Limits) -> list[tuple[_Table, list[_Row]]]:
    """All tables with their rows; those of several hosts may be mixed line by line."""
    tables: list[tuple[_Table, list[_Row]]] = []
    open_ones: dict[str, tuple[_Table, list[_Row]]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        title = _FIRST_TITLE.search(line) if "Total Time" in line else None
        if title is not None:
            prefix = line[: title.start()].rstrip()
            open_ones.pop(prefix, None)
            header = _header(prefix, line[title.start() :])
            if header is not None:
                open_ones[prefix] = (header, [])
                tables.append(open_ones[prefix])
                check_tables(len(tables))
            continue
        prefixes = [one for one in open_ones if line.startswith(one)]
        if prefixes:
            prefix = max(prefixes, key=len)
            table, rows = open_ones[prefix]
            cells = _cells(table, line[len(prefix) :])
            row = _row(table, cells, number, limits) if cells else None
            rows += [row] if row else []
    return tables


def _header(prefix: str, titles: str) -> _Table | None:
    """The table that a line begins; ``None`` where it is one of another kind."""
    delimiter = "\t" if "\t" in titles else "," if "," in titles else ""
    columns = []
    for cell in re.split(delimiter or r"\s{2,}", titles.strip()):
        title = _TITLE.match(cell.strip(' "'))
        role = _ROLES.get(title["name"].lower(), "") if title else ""
        columns.append(_Column(role, (title["unit"] or "") if title else ""))
    roles = [column.role for column in columns]
    if not {"total", "calls"} <= set(roles) or roles[-1] != "name":
        return None
    pattern = r"\s*+" + r"\s++".join(f"({_CELL.get(column.role, _TIME_CELL)})" for column in columns)
    return _Table(prefix, tuple(columns), delimiter, re.compile(pattern))


def _cells(table: _Table, line: str) -> list[str] | None:
    """The cells of a row; ``None`` where the line is none."""
    if not table.delimiter:
        match = table.pattern.fullmatch(line)
        return list(match.groups()) if match else None
    try:
        cells = line.split("\t") if table.delimiter == "\t" else next(csv.reader([line]), [])
    except csv.Error:
        return None
    last = len(table.columns) - 1
    return [*cells[:last], table.delimiter.join(cells[last:])] if len(cells) > last else None


def _row(table: _Table, cells: list[str], line: int, limits: Limits) -> _Row | None:
    """A row; ``None`` where the line only looks like one."""
    given = {column.role: (cell, column.unit) for column, cell in zip(table.columns, cells, strict=True)}
    note, share = "", None
    if "share" in given:
        note, _, figure = f" {given['share'][0].strip()}".rpartition(" ")  # people write the source before the row
        share = _SHARE.fullmatch(figure)
        if share is None:
            return None
    name = checked_name(given["name"][0], limits.name_chars, line)
    times = {role: time_ns(*given[role], line) for role in _TIMES & given.keys()}
    use = KernelUse(
        name=name,
        kind=next((kind for begin, kind in _MEMORY.items() if name.startswith(begin)), KernelKind.KERNEL),
        device="",
        phase="",
        calls=count(given["calls"][0], line),
        total_ns=times["total"],
        min_ns=times.get("min"),
        max_ns=times.get("max"),
        median_ns=times.get("median"),
        std_ns=float(times["std"]) if "std" in times else None,
        truncated=is_cut(name),
        source=note.strip() if _is_source(note.strip()) else "",
    )
    return _Row(use, float(share["share"].replace(",", "")) if share else None)


def _is_source(note: str) -> bool:
    return " " not in note and "/" in note and PurePosixPath(note).suffix != ""


def _missing(rows: list[_Row]) -> list[Flaw]:
    """The largest row says what the whole is, as exactly as its share is printed: with one decimal."""
    largest = max(rows, key=lambda row: row.use.total_ns)
    if not largest.share:
        return []
    whole_ns = largest.use.total_ns / ((largest.share + 0.05) / 100)
    return missing_rows(sum(row.use.total_ns for row in rows), whole_ns)


def _of_all_shapes(uses: list[KernelUse]) -> list[KernelUse]:
    """One use a name, where the table has a row for each grid and block; the median over all is not known."""
    by_name: dict[str, list[KernelUse]] = {}
    for use in uses:
        by_name.setdefault(use.name, []).append(use)
    return [same[0] if len(same) == 1 else _sum(same) for same in by_name.values()]


def _sum(same: list[KernelUse]) -> KernelUse:
    return replace(
        same[0],
        calls=sum(use.calls for use in same),
        total_ns=sum(use.total_ns for use in same),
        min_ns=min((use.min_ns for use in same if use.min_ns is not None), default=None),
        max_ns=max((use.max_ns for use in same if use.max_ns is not None), default=None),
        median_ns=None,
        std_ns=None,
    )
