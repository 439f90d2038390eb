"""A comparison as Markdown. Names come from outside: nothing in them is markup."""

import re

from cyclewatch.daemon.compare.comparison import Comparison
from cyclewatch.daemon.compare.tables import Table, report_tables
from cyclewatch.daemon.printable import printable

_SPECIAL = re.compile(r"[\\`*\[\]<>|~#&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.")
_BEGINS = re.compile(r"^(\d*)([-+=.)])")
"""What would make a line a list, or the one before it a heading."""


def comparison_markdown(comparison: Comparison) -> str:
    """The report of a comparison, in GitHub's Markdown."""
    before, after = (escaped(one.label) for one in (comparison.before, comparison.after))
    blocks = [f"# {before} against {after}"]
    if not comparison.comparable:
        blocks.append("**Not comparable**: what follows is a comparison, no regression.")
    if comparison.warnings:
        blocks.append("\n".join(f"> {_line(warning)}  " for warning in comparison.warnings))
    if comparison.findings:
        blocks.append("## Key findings")
        blocks.append("\n".join(f"- {_line(finding)}" for finding in comparison.findings))
    blocks += [_table(table) for table in report_tables(comparison)]
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """`text` so that Markdown shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", printable(text))


def _line(text: str) -> str:
    """The same at the beginning of a line."""
    return _BEGINS.sub(r"\1\\\2", escaped(text))


def _table(table: Table) -> str:
    lines = [f"## {escaped(table.title)}", ""]
    if table.note:
        lines += [_line(table.note), ""]
    lines.append("| " + " | ".join(escaped(column) for column in table.columns) + " |")
    lines.append("|" + "|".join("---" if column in table.names else "---:" for column in table.columns) + "|")
    lines += ["| " + " | ".join(escaped(cell) for cell in row) + " |" for row in table.rows]
    return "\n".join(lines)
