"""The tables of a Markdown text: names of columns and cells, as they stand there."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_RULE = frozenset(" \t|:-")
_BARS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Table:
    """One table; every row has a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    misfits: int
    """Rows that have fewer cells than there are columns; they are left out."""


def tables(text: str) -> Iterator[Table]:
    """The tables of `text` in order.

    Bars in the first column's cells, as names of functions may have them, need no escape: what is too much on the left
    belongs to the first cell.
    """
    block: list[str] = []
    for line in (*text.splitlines(), ""):
        bare = line.strip()
        if bare.startswith("|"):
            block.append(bare)
            continue
        if len(block) > 1 and _RULE.issuperset(block[1]):
            yield _table(block)
        block = []


def _table(lines: list[str]) -> Table:
    columns = _cells(lines[0])
    rows, misfits = [], 0
    for line in lines[2:]:
        cells = _cells(line)
        surplus = len(cells) - len(columns)
        if surplus < 0:
            misfits += 1
            continue
        rows.append((" | ".join(cells[: surplus + 1]), *cells[surplus + 1 :]))
    return Table(columns, tuple(rows), misfits)


def _cells(line: str) -> tuple[str, ...]:
    inner = line[1:-1] if line.endswith("|") and not line.endswith(r"\|") and len(line) > 1 else line[1:]
    return tuple(cell.strip().replace(r"\|", "|") for cell in _BARS.split(inner))
