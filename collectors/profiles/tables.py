"""What tables of text have in common: figures with units, cut names, and sums over rows."""

import re
from collections.abc import Sequence
from decimal import Decimal

from cyclewatch.collectors.profiles.records import (
    Flaw,
    FlawKind,
    KernelKind,
    KernelUse,
    Profile,
    ProfileError,
    ProfileFormat,
    Totals,
)

FIGURE = r"[-+]?(?:\d[\d,]*+(?:\.\d*+)?+|\.\d++|nan|inf)"
"""Possessive throughout: the time to match must not grow with the square of a hostile line."""
UNIT = r"(?:ns|us|μs|µs|ms|s)"

_UNITS_NS = {"": 1, "ns": 1, "us": 10**3, "μs": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(rf"({FIGURE})\s*({UNIT})?", re.IGNORECASE)
_MAX_NS = 10**16
"""Four months; the sum of all rows still fits what is counted with."""
_MAX_TABLES = 128
"""Each line is held against the hosts of all."""
_CUT_MARKS = ("...", "…")


def time_ns(cell: str, unit: str, line: int) -> int:
    """A time in whole nanoseconds; `unit` is that of a figure without one.

    Raises:
        ProfileError: it is no time, negative, or impossible; the message names the line.
    """
    match = _TIME.fullmatch(cell.strip())
    if match is None:
        raise ProfileError(f"line {line}: {cell.strip()[:40]!r} is no time")
    value = Decimal(match[1].replace(",", "")) * _UNITS_NS[(match[2] or unit).lower()]
    if not (value.is_finite() and 0 <= value <= _MAX_NS):
        raise ProfileError(f"line {line}: {cell.strip()[:40]!r} is a negative or impossible time")
    return round(value)


def count(cell: str, line: int) -> int:
    """A number of calls.

    Raises:
        ProfileError: it is none; the message names the line.
    """
    digits = cell.strip().replace(",", "")
    if not (digits.isascii() and digits.isdecimal() and 0 < len(digits) <= 15):  # noqa: PLR2004 (int64)
        raise ProfileError(f"line {line}: {cell.strip()[:40]!r} is no number of calls")
    return int(digits)


def check_tables(tables: int) -> None:
    """Refuse a text of more tables than a job has hosts.

    Raises:
        ProfileError: there are too many.
    """
    if tables > _MAX_TABLES:
        raise ProfileError(f"more than {_MAX_TABLES} tables in one file: give it in parts")


def checked_name(cell: str, max_chars: int, line: int) -> str:
    """A kernel's name.

    Raises:
        ProfileError: it is longer than is read; the message names the line.
    """
    name = cell.strip()
    if len(name) > max_chars:
        raise ProfileError(f"line {line}: a name of {len(name)} characters: at most {max_chars} are read")
    return name


def is_cut(name: str) -> bool:
    """Whether the table shows only the beginning of the name."""
    return name.endswith(_CUT_MARKS)


def table_profile(
    written_by: ProfileFormat, uses: Sequence[KernelUse], flaws: Sequence[Flaw], rank: str | None
) -> Profile:
    """The profile of a table, whose rows are distinct kernels; when they ran it does not tell."""
    kernels = [use for use in uses if use.kind is KernelKind.KERNEL]
    cut = sum(use.truncated for use in uses)
    found = list(flaws)
    if not kernels:
        found.append(Flaw(FlawKind.NO_KERNELS, "no GPU kernel is in the table"))
    if cut:
        found.append(Flaw(FlawKind.INEXACT, f"{cut} of {len(uses)} names are cut by the table that lists them"))
    return Profile(
        format=written_by,
        kernels=tuple(sorted(uses, key=lambda use: (-use.total_ns, use.name, use.device))),
        totals=Totals(
            kernel_ns=sum(use.total_ns for use in kernels),
            calls=sum(use.calls for use in kernels),
            distinct=len(kernels),
        ),
        flaws=tuple(found),
        rank=rank,
    )
