"""A comparison as one HTML file that needs nothing else: no script, no font, no picture from anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cyclewatch.daemon.compare.comparison import Comparison
from cyclewatch.daemon.compare.plots import bar, distribution_svg
from cyclewatch.daemon.compare.sentences import duration
from cyclewatch.daemon.compare.tables import Table, report_tables, split_table
from cyclewatch.daemon.printable import printable


@dataclass(frozen=True)
class _Section:
    """A table with what is drawn beside it: a bar for each row, or a plot below."""

    table: Table
    bars: tuple[Markup, ...] = ()
    plot: Markup | None = None


def comparison_html(comparison: Comparison) -> str:
    """The page of a comparison. Everything that is not drawn here is escaped by the template."""
    environment = Environment(
        loader=PackageLoader("cyclewatch.daemon", "compare"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    return environment.get_template("page.html.j2").render(
        before=comparison.before.label,
        after=comparison.after.label,
        comparable=comparison.comparable,
        warnings=comparison.warnings,
        findings=comparison.findings,
        tiles=list(_tiles(comparison)),
        sections=list(_sections(comparison)),
    )


def _shown(value: object) -> object:
    """What is put into the page: text without characters that cannot be seen; what is drawn here, as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _tiles(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """The figures that people look for first."""
    if comparison.slower is not None:
        yield "times as long a step", f"{comparison.slower:.3g}"
    pair = comparison.cycles[0] if comparison.cycles else None
    if pair and pair.before and pair.after and pair.alike:
        yield f"mean cycle before ({pair.name})", duration(pair.before.mean_us)
        yield f"mean cycle after ({pair.name})", duration(pair.after.mean_us)
    if comparison.causes:
        yield "first cause", comparison.causes[0].kind.replace("_", " ")


def _sections(comparison: Comparison) -> Iterator[_Section]:
    plots = {f"Cycles: {pair.name}": distribution_svg(pair) for pair in comparison.cycles}
    split_title = split_table(comparison).title
    for table in report_tables(comparison):
        if table.title == split_title:
            yield _Section(table, bars=_bars(comparison))
        else:
            plot = plots.get(table.title)
            yield _Section(table, plot=Markup(plot) if plot else None)  # noqa: S704 (made of numbers alone)


def _bars(comparison: Comparison) -> tuple[Markup, ...]:
    """A pair of bars for each part, on one scale; none for the whole."""
    most = max((time for part in comparison.split for time in (part.before_us, part.after_us)), default=0.0)
    drawn = [Markup(bar(part.before_us, part.after_us, most)) for part in comparison.split]  # noqa: S704 (likewise)
    return (*drawn, Markup())
