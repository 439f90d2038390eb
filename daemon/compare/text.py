"""A comparison for the terminal."""

from rich.console import Console
from rich.table import Table as RichTable

from cyclewatch.daemon.compare.comparison import Comparison, CyclePair
from cyclewatch.daemon.compare.plots import block_line, histograms
from cyclewatch.daemon.compare.sentences import duration
from cyclewatch.daemon.compare.tables import Table, report_tables
from cyclewatch.daemon.printable import printable

_BINS = 60


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """The findings first, then the tables."""
    screen.print(printable(f"{comparison.before.label} against {comparison.after.label}"), style="bold")
    if not comparison.comparable:
        screen.print("not comparable: what follows is a comparison, no regression", style="bold yellow")
    for warning in comparison.warnings:
        screen.print(printable(f"note: {warning}"), style="yellow")
    for finding in comparison.findings:
        screen.print(printable(f"- {finding}"))
    pairs = {f"Cycles: {pair.name}": pair for pair in comparison.cycles}
    for table in report_tables(comparison):
        screen.print("")
        screen.print(_table(table))
        if table.title in pairs and not screen.options.ascii_only:
            _print_histograms(screen, pairs[table.title])


def _table(table: Table) -> RichTable:
    shown = RichTable(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
    for column in table.columns:
        shown.add_column(column, justify="left" if column in table.names else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(printable(cell) for cell in row))
    return shown


def _print_histograms(screen: Console, pair: CyclePair) -> None:
    drawn = histograms(pair, _BINS)
    if drawn is None:
        return
    low, high, (before, after) = drawn
    screen.print(f"before {block_line(before)}")
    screen.print(f"after  {block_line(after)}")
    screen.print(f"       {duration(low)}{duration(high):>{_BINS - len(duration(low))}}")
