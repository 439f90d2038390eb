"""Names in comparisons come from profiles and servers: they are shown, never obeyed."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from cyclewatch.collectors.suspicion_records import Change, SuspicionRow
from cyclewatch.daemon.compare.comparison import Comparison, CyclePair, Cycles, Subject
from cyclewatch.daemon.compare.html import comparison_html
from cyclewatch.daemon.compare.markdown import comparison_markdown, escaped
from cyclewatch.daemon.compare.plots import bar, block_line, distribution_svg, histograms
from cyclewatch.daemon.compare.sentences import bound_sentence, duration
from cyclewatch.daemon.compare.tables import bound_table
from cyclewatch.daemon.compare.text import print_comparison
from cyclewatch.detectors.attribution import BoundSplit, Cause, SplitPart, Status, StepBound

HOSTILE = (
    "</style><script>alert(1)</script><img src=x onerror=alert(2)> | `x` **b** [a](http://evil) {{ 7 * 7 }} \x1b[31m"
)
CHANGE = Change(1.0, 2.0, 1.0, float("nan"), 0.0, 0.0)
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "p", "i", "b", "div", "span"),
    *("ul", "li", "table", "thead", "tbody", "tr", "th", "td"),
    *("figure", "figcaption", "svg", "polyline", "circle", "line", "text", "rect"),
}


def cycles(*times_us: float) -> Cycles:
    return Cycles(len(times_us), float(np.mean(times_us)), np.array(times_us))


def comparison(name: str, *, alike: bool = True) -> Comparison:
    """A comparison in which everything that can have a name has this one."""
    return Comparison(
        before=Subject(name, "cycles", {"model": name}),
        after=Subject(name, "cycles", {"server": name}),
        comparable=False,
        warnings=(name,),
        findings=(name,),
        slower=1.5,
        cycles=(CyclePair(name, cycles(1.0, 2.0, 50.0), cycles(2.0), alike), CyclePair("x", None, cycles(1.0))),
        split_of=name,
        split=(SplitPart(name, 1.0, 2.0), SplitPart("other", 0.0, 0.0)),
        suspicions=(SuspicionRow(name, name, name, 3.0, CHANGE, CHANGE, float("inf")),),
        causes=(Cause(name, name, 1.0, None, Status.INFERRED, (name, name), name),),
    )


class Tags(HTMLParser):
    """The tags of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_no_name_becomes_a_tag(name: str) -> None:
    tags = Tags(comparison_html(comparison(name)))
    assert tags.found <= TAGS
    assert not any(attribute.startswith("on") or attribute in {"src", "href", "style"} for attribute in tags.attributes)


def test_what_a_step_takes_at_least_and_what_is_above_it() -> None:
    """In a sentence, and in a table whose parts add up to what is above."""
    before, after = StepBound("H200", 3127.0, 5000.0, "memory"), StepBound("H200", 3127.0, 7000.0, "memory")
    bound = BoundSplit(before, after, (SplitPart("kernels", 873.0, 2873.0), SplitPart("between_kernels", 1e3, 1e3)))
    (sentence,) = bound_sentence(bound)
    assert sentence.startswith("a step of this load takes at least 3.127 ms (by memory); above it 1.873 ms before, ")
    assert sentence.endswith(", 3.873 ms after (kernels 2.873 ms, between kernels 1 ms)")
    rows = {row[0]: row[1:] for row in bound_table(bound).rows}
    assert rows["above it"] == ("1.873 ms", "3.873 ms", "+2 ms")
    assert rows["of that, kernels"] == ("873 us", "2.873 ms", "+2 ms")
    assert rows["speed of light"] == ("62.5%", "44.7%", "")
    page = comparison_markdown(replace(comparison("plain"), bound=bound))
    assert "| of that, kernels | 873 us | 2.873 ms | +2 ms |" in page
    other = replace(bound, after=replace(after, at_least_us=1600.0))
    assert "at least 3.127 ms before and at least 1.6 ms after" in bound_sentence(other)[0]


def test_a_hostile_name_is_shown_as_it_is() -> None:
    page = comparison_html(comparison(HOSTILE))
    assert Tags(page).found <= TAGS
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "{{ 7 * 7 }}" in page
    assert "\x1b" not in page


def test_a_page_needs_nothing_from_outside() -> None:
    page = comparison_html(comparison("plain"))
    assert not re.search(r"(?:src|href|url)\s*[=(]|@import|https?:", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_no_name_breaks_a_table_of_markdown(name: str) -> None:
    """Every row has as many cells as its heading, and every line begins as it should."""
    width = 0
    for line in comparison_markdown(comparison(name)).splitlines():
        bars = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        if line.startswith("|"):
            width = width or bars
            assert bars == width
        else:
            width = 0
            assert not line or line.startswith(("#", "- ", "> ", "**Not")) or not line.startswith(("+", "="))


def test_markdown_shows_markup_as_text() -> None:
    text = comparison_markdown(comparison(HOSTILE))
    assert "<" not in text.replace("\\<", "")
    assert "\\[a\\](http\\://evil)" in text
    assert "\\`x\\`" in text
    assert escaped("gpu_usage _it_ a|b") == "gpu_usage \\_it\\_ a\\|b"


def test_what_would_begin_a_list_does_not() -> None:
    lines = comparison_markdown(comparison("1. first")).splitlines()
    assert "- 1\\. first" in lines
    assert "- \\- x" in comparison_markdown(comparison("- x")).splitlines()


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_no_name_disturbs_the_terminal(name: str) -> None:
    screen = Console(highlight=False, markup=False, soft_wrap=True, width=160, record=True, quiet=True)
    print_comparison(screen, comparison(name))
    assert all(one.isprintable() or one == "\n" for one in screen.export_text())


def test_cycles_that_are_not_alike_have_no_percentage() -> None:
    alike, other = (comparison_markdown(comparison("x", alike=one)) for one in (True, False))
    assert "| mean | 17.67 us | 2 us | -88.7% |" in alike
    assert "| mean | 17.67 us | 2 us | - |" in other


@pytest.mark.parametrize("times", [(5.0,), (1.0, 1.0), (1.0, 1e6), (0.001, 0.002), (1e9, 2e9)])
def test_any_times_can_be_drawn(times: tuple[float, ...]) -> None:
    pair = CyclePair("x", cycles(*times), cycles(*times))
    drawn = distribution_svg(pair)
    assert drawn.count("<polyline") == 2
    assert "nan" not in drawn
    assert "inf" not in drawn
    shown = histograms(pair, 10)
    assert shown is not None
    low, high, shares = shown
    assert low <= high
    for side in shares:
        assert 0.98 <= sum(side) <= 1.01


def test_nothing_is_drawn_of_nothing() -> None:
    nothing = CyclePair("x", None, Cycles(5, 1.0, None))
    assert distribution_svg(nothing) == ""
    assert histograms(nothing, 10) is None
    assert block_line([]) == ""
    assert block_line([0.0, 1.0]) == " █"
    assert 'width="50.00"' in bar(1.0, 2.0, 2.0)
    assert "nan" not in bar(0.0, 0.0, 0.0)


def test_durations_have_the_unit_that_fits() -> None:
    assert [duration(time) for time in (2.5e6, 38_515.6, 12.0, 0.5, -1500.0, 0.0)] == [
        *("2.5 s", "38.52 ms", "12 us", "500 ns", "-1.5 ms", "0 ns"),
    ]
