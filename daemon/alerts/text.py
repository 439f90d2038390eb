"""A message in five lines that a tired person can read at night."""

import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cyclewatch.daemon.alerts.message import ENDS, Felt, Message, State
from cyclewatch.daemon.alerts.shorten import shortened

TITLE_MAX = 120
NAME_MAX = 80
LINE_MAX = 400
LINK_MAX = 500
"""Most UTF-16 units of each; the limits of all services leave room for five lines, three links and their escapes."""

TOLD_MAX = 10
TOLD_LINE_MAX = 180
"""Most things that a digest tells, and units of each; with the line that counts the rest, no more than five lines."""

_IN_LINKS = frozenset(string.ascii_letters + string.digits + "-._~:/?#[]@!$&'*+,;=%")
"""What an address consists of, less the parentheses, which would end it in Markdown."""


@dataclass(frozen=True)
class Line:
    """One of the lines: what it is about, in a word, and what it says."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.label}: {self.text}"


@dataclass(frozen=True)
class Text:
    """What people read. All parts are printable, within the limits above, and none but `links` can be empty."""

    title: str
    lines: tuple[Line, ...]
    """Five; of a digest, as many as it tells."""

    where: str
    links: tuple[tuple[str, str], ...]
    """Name and address; an address that is too long or malformed is left out, since a cut one leads nowhere."""


def text_of(message: Message) -> Text:
    """The text of `message`, shortened where a part is too long; `where` and `links` lead to the whole."""
    return Text(
        title=shortened(_title(message), TITLE_MAX),
        lines=tuple(_digest_lines(message.digest) if message.state is State.DIGEST else _five_lines(message)),
        where=shortened(_where(message), LINE_MAX),
        links=tuple(
            (name, address)
            for name, link in (
                ("page", message.links.page),
                ("dashboard", message.links.dashboard),
                ("runbook", message.links.runbook),
            )
            if (address := safe_link(link))
        ),
    )


def safe_link(link: str) -> str:
    """`link` fit to stand in any markup, or an empty text where it is no http address or longer than `LINK_MAX`."""
    link = link.replace("(", "%28").replace(")", "%29")
    if len(link) > LINK_MAX or not _IN_LINKS.issuperset(link):
        return ""
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    return link if parts.scheme in {"http", "https"} and parts.hostname else ""


def _five_lines(message: Message) -> Iterator[Line]:
    for label, text in (
        ("What", _what(message)),
        ("Users", _felt(message.felt)),
        ("Since", _since(message)),
        ("Cause", _cause(message)),
        ("Next", _next(message)),
    ):
        yield Line(label, shortened(text, LINE_MAX))


def _digest_lines(told: tuple[str, ...]) -> Iterator[Line]:
    for number, one in enumerate(told[:TOLD_MAX], 1):
        yield Line(str(number), shortened(one, TOLD_LINE_MAX) if one.strip() else "an incident")
    if len(told) > TOLD_MAX or not told:
        yield Line("More", f"{len(told) - TOLD_MAX} others" if told else "nothing")


def told_in_a_line(message: Message) -> str:
    """`message` as a digest tells it, whole."""
    size = f"{_percent(message.effect)} slower"
    since = _minute(message.started_at_ns)
    said = {
        State.RESOLVED: f"was {size} from {since} to {_minute(message.at_ns)}, and is as fast as before",
        State.ACCEPTED: f"stays {size} since {since}, which was accepted",
        State.MERGED: f"is {size} since {since}, which is one with {_name(message.by, 'another incident')}",
        State.EXPECTED: f"is {size} since {since}, as announced",
    }.get(message.state, f"is {size} since {since}")
    cause = f": {message.cause.subject}" if message.cause is not None and message.cause.subject else ""
    return f"incident {_name(message.incident, 'without a number')}: {_place(message)} {said}{cause}"


def _title(message: Message) -> str:
    size = _percent(message.effect)
    again = "Again " if message.returns else ""
    return {
        State.OPENED: f"{again}{size} slower: {_place(message)}",
        State.GROWN: f"Now {size} slower: {_place(message)}",
        State.ACKNOWLEDGED: f"Acknowledged: {_place(message)}",
        State.RESOLVED: f"Resolved: {_place(message)}",
        State.ACCEPTED: f"Accepted as normal, {size} slower: {_place(message)}",
        State.MERGED: f"One with {_name(message.by, 'another incident')}: {_place(message)}",
        State.EXPECTED: f"As announced, {size} slower: {_place(message)}",
        State.DIGEST: f"{len(message.digest)} incidents told together",
        State.TEST: f"Test of cyclewatch on {_name(message.node, 'a node')}",
    }[message.state]


def _what(message: Message) -> str:
    if message.state is State.TEST:
        return "this is a test: nothing has become slower"
    size = f"{_percent(message.effect)} slower ({_percent(message.ci[0])} to {_percent(message.ci[1])})"
    somebody = shortened(message.by, LINE_MAX // 2) if message.by.strip() else "somebody"
    said = {
        State.OPENED: f"is again {size}, return {message.returns}" if message.returns else f"is {size}",
        State.GROWN: f"is now {size}" + (f", {message.risen_from} before" if message.risen_from else ""),
        State.ACKNOWLEDGED: f"is {size}; acknowledged by {somebody}",
        State.RESOLVED: f"was closed by {somebody}; it was {size}"
        if message.by
        else f"is as fast as before; it was {size}",
        State.ACCEPTED: f"stays {size}; accepted by {somebody}",
        State.MERGED: f"is {size}; it turned out to be one with {_name(message.by, 'another incident')}",
        State.EXPECTED: f"is {size}; announced by {somebody}",
    }[message.state]
    details = ", ".join(
        detail
        for detail in (
            _name(message.model, ""),
            f"node {_name(message.node, 'unknown')}",
            f"one of {message.targets} targets" if message.targets > 1 else "",
        )
        if detail
    )
    return f"{_name(message.phase, 'serving')} on {_name(message.target, 'a server')} ({details}) {said}"


def _place(message: Message) -> str:
    others = f" and {message.targets - 1} more" if message.targets > 1 else ""
    return f"{_name(message.phase, 'serving')} on {_name(message.target, 'a server')}{others}"


def _felt(felt: tuple[Felt, ...]) -> str:
    if not felt:
        return "not measured"
    return ", ".join(
        f"{_name(one.name, 'value')} {_figure(one.before)} → {_figure(one.after)} {_name(one.unit, '')}".rstrip()
        for one in felt[:4]
    )


def _since(message: Message) -> str:
    after = f", right after {_name(message.change, '')}" if message.change.strip() else ""
    over = f", over at {_minute(message.at_ns)}" if message.state is State.RESOLVED else ""
    return f"{_minute(message.started_at_ns)}{after}{over}"


def _cause(message: Message) -> str:
    if message.cause is None or not message.cause.subject:
        return "not known yet"
    evidence = "; ".join(message.cause.evidence[:3])
    return shortened(message.cause.subject, LINE_MAX // 2) + (f" ({evidence})" if evidence else "")


def _next(message: Message) -> str:
    if message.next_step:
        return message.next_step
    return "nothing to do" if message.state in ENDS else "look at the incident"


def _where(message: Message) -> str:
    command = f": {message.command}" if message.command else ""
    if message.state is State.DIGEST:
        return f"up to {message.severity}{command}"
    return f"{message.severity} incident {_name(message.incident, 'without a number')}{command}"


def _name(text: str, otherwise: str) -> str:
    return shortened(text, NAME_MAX) if text.strip() else otherwise


def _percent(ratio: float) -> str:
    return f"{ratio:.1%}" if math.isfinite(ratio) else "an unknown part"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"  # noqa: PLR2004 (no exponent for people)


def _minute(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M UTC")
