"""What a table is, and how it is printed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detect.contestants import Contestant


@dataclass(frozen=True)
class Options:
    """What the command line asks for. `share` is the share of the series that is run: 1, or 0.1 for a quick look."""

    seed: int
    share: float
    slow: bool
    shared: Path
    contestants: list[Contestant]

    def count(self, full: int) -> int:
        """How many series instead of `full`."""
        return max(1, round(full * self.share))


@dataclass(frozen=True)
class Table:
    """One table: `rows` as printed, `figures` the same as numbers, `notes` below it, the verdict among them."""

    key: str
    title: str
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def lines(table: Table) -> Iterator[str]:
    """The table as text."""
    yield table.title
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
    for row in (table.columns, *table.rows) if table.columns else ():
        first, *others = (
            f"{cell:<{width}}" if not at else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "   ".join(("  " + first, *others)).rstrip()
    for note in table.notes:
        yield f"  {note}"


def percent(part: float, whole: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def verdict(*, met: bool) -> str:
    """How an aim stands."""
    return "met" if met else "NOT met"
