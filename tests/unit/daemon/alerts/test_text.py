from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alert_messages import EVERY_MESSAGE, MESSAGE, filled
from cyclewatch.daemon.alerts.message import FirstCause, State
from cyclewatch.daemon.alerts.shorten import backslashed, length, shortened
from cyclewatch.daemon.alerts.text import LINE_MAX, LINK_MAX, TITLE_MAX, safe_link, text_of


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_there_are_five_lines_and_none_is_empty_or_too_long(name: str) -> None:
    text = text_of(EVERY_MESSAGE[name])
    if EVERY_MESSAGE[name].state is not State.DIGEST:
        assert [line.label for line in text.lines] == ["What", "Users", "Since", "Cause", "Next"]
    assert sum(length(line.text) for line in text.lines) <= 5 * LINE_MAX
    for part in (text.title, text.where, *(line.text for line in text.lines)):
        assert part.strip()
        assert part.isprintable()
    assert length(text.title) <= TITLE_MAX
    assert all(length(line.text) <= LINE_MAX for line in text.lines)
    assert all(len(address) <= LINK_MAX for _, address in text.links)


def test_what_is_shortened_leads_to_the_whole() -> None:
    """The command and the page are never cut away by a long cause."""
    text = text_of(replace(MESSAGE, cause=FirstCause("kind", "long " * 10_000, ("evidence " * 10_000,))))
    assert text.lines[3].text.endswith("…")
    assert "cyclewatch incidents show 12" in text.where
    assert dict(text.links)["page"] == MESSAGE.links.page


def test_one_target_is_not_counted() -> None:
    text = text_of(replace(MESSAGE, targets=1))
    assert text.title == "22.0% slower: decode on 127.0.0.1:30000"
    assert "targets" not in text.lines[0].text


def test_what_came_back_is_told_as_that() -> None:
    text = text_of(replace(MESSAGE, returns=2, targets=1))
    assert text.title == "Again 22.0% slower: decode on 127.0.0.1:30000"
    assert "is again 22.0% slower (20.0% to 24.0%), return 2" in text.lines[0].text


def test_what_somebody_closed_is_not_called_fast() -> None:
    what = text_of(replace(MESSAGE, state=State.RESOLVED, by="ann: replaced the GPU")).lines[0].text
    assert what.endswith("was closed by ann: replaced the GPU; it was 22.0% slower (20.0% to 24.0%)")


def test_a_line_never_becomes_two() -> None:
    """Nor does it colour a terminal, or turn the text round."""
    text = text_of(filled("a\nb\x1b[31m\u202e"))
    assert "\\n" in text.title
    assert all(part.text.isprintable() for part in text.lines)


@pytest.mark.parametrize(
    "link",
    [
        "",
        "ftp://h/",
        "javascript:alert(1)",
        "http://",
        "https://h/a b",
        'https://h/"',
        "https://h/|x",
        "https://h/>",
        "https://h/ä",
        "https://[::1",
        "https://h/" + "a" * 500,
    ],
)
def test_a_bad_link_is_left_out(link: str) -> None:
    assert safe_link(link) == ""


def test_parentheses_in_a_link_are_escaped() -> None:
    """They would end it in Markdown."""
    assert safe_link("https://h/a_(b)") == "https://h/a_%28b%29"


@given(text=st.text(max_size=60), most=st.integers(1, 80))
def test_shortening_keeps_the_beginning_and_the_limit(text: str, most: int) -> None:
    short = shortened(text, most, backslashed("*_"))
    whole = "".join(f"\\{one}" if one in "*_" else one for one in text)
    assert length(short) <= most
    assert short == whole or (short.endswith("…") and whole.startswith(short[:-1]))
    assert length(whole) > most or short == whole


def test_an_escape_is_not_cut_in_two() -> None:
    assert shortened("ab*c", 4, backslashed("*")) == "ab…"
    assert shortened("ab*", 4, backslashed("*")) == "ab\\*"
