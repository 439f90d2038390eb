"""A message in five lines that a tired person can read at night."""

import math
import string
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cyclewatch.daemon.alerts.message import Felt, Message, State
from cyclewatch.daemon.alerts.shorten import shortened

TITLE_MAX = 120
NAME_MAX = 80
LINE_MAX = 400
LINK_MAX = 500
"""Most UTF-16 units of each; the limits of all services leave room for five lines, three links and their escapes."""

_IN_LINKS = frozenset(string.ascii_letters + string.digits + "-._~:/?#[]@!$&'*+,;=%")
"""What an address consists of, less the parentheses, which would end it in Markdown."""


@dataclass(frozen=True)
class Line:
    """One of the five lines: what it is about, in a word, and what it says."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.label}: {self.text}"


@dataclass(frozen=True)
class Text:
    """What people read. All parts are printable, within the limits above, and none but `links` can be empty."""

    title: str
    lines: tuple[Line, ...]
    where: str
    links: tuple[tuple[str, str], ...]
    """Name and address; an address that is too long or malformed is left out, since a cut one leads nowhere."""


def text_of(message: Message) -> Text:
    """The text of `message`, shortened where a part is too long; `where` and `links` lead to the whole."""
    return Text(
        title=shortened(_title(message), TITLE_MAX),
        lines=tuple(
            Line(label, shortened(text, LINE_MAX))
            for label, text in (
                ("What", _what(message)),
                ("Users", _felt(message.felt)),
                ("Since", _since(message)),
                ("Cause", _cause(message)),
                ("Next", _next(message)),
            )
        ),
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


def instant(at_ns: int) -> str:
    """An instant as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _title(message: Message) -> str:
    place = f"{_name(message.phase, 'serving')} on {_name(message.target, 'a server')}"
    size = _percent(message.effect)
    others = f" and {message.targets - 1} more" if message.targets > 1 else ""
    return {
        State.OPENED: f"{size} slower: {place}{others}",
        State.GROWN: f"Now {size} slower: {place}{others}",
        State.ACKNOWLEDGED: f"Acknowledged: {place}{others}",
        State.RESOLVED: f"Resolved: {place}{others}",
        State.TEST: f"Test of cyclewatch on {_name(message.node, 'a node')}",
    }[message.state]


def _what(message: Message) -> str:
    if message.state is State.TEST:
        return "this is a test: nothing has become slower"
    size = f"{_percent(message.effect)} slower ({_percent(message.ci[0])} to {_percent(message.ci[1])})"
    said = {
        State.OPENED: f"is {size}",
        State.GROWN: f"is now {size}, more than at first",
        State.ACKNOWLEDGED: f"is {size}; somebody looks at it",
        State.RESOLVED: f"is as fast as before; it was {size}",
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


def _felt(felt: tuple[Felt, ...]) -> str:
    if not felt:
        return "not measured"
    return ", ".join(
        f"{_name(one.name, 'value')} {_figure(one.before)} → {_figure(one.after)} {_name(one.unit, '')}".rstrip()
        for one in felt[:4]
    )


def _since(message: Message) -> str:
    since = _minute(message.started_at_ns)
    return f"{since}, over at {_minute(message.at_ns)}" if message.state is State.RESOLVED else since


def _cause(message: Message) -> str:
    if message.cause is None or not message.cause.subject:
        return "not known yet"
    evidence = "; ".join(message.cause.evidence[:3])
    return shortened(message.cause.subject, LINE_MAX // 2) + (f" ({evidence})" if evidence else "")


def _next(message: Message) -> str:
    if message.next_step:
        return message.next_step
    return "nothing to do" if message.state is State.RESOLVED else "look at the incident"


def _where(message: Message) -> str:
    command = f": {message.command}" if message.command else ""
    return f"{message.severity} incident {_name(message.incident, 'without a number')}{command}"


def _name(text: str, otherwise: str) -> str:
    return shortened(text, NAME_MAX) if text.strip() else otherwise


def _percent(ratio: float) -> str:
    return f"{ratio:.1%}" if math.isfinite(ratio) else "an unknown part"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"  # noqa: PLR2004 (no exponent for people)


def _minute(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M UTC")
