"""Slack: incoming webhooks, with Block Kit."""

from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response, outcome_by_status
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body
from cyclewatch.daemon.alerts.shorten import shortened
from cyclewatch.daemon.alerts.text import text_of

_LINE_MAX = 500
_LINES_MAX = 2500
"""All lines together fit into the 3,000 characters of a section, with what escapes add."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass(frozen=True)
class Slack:
    """One channel."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(1, 1.0),)
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Sender`."""
        text = text_of(message)
        most = _LINES_MAX // len(text.lines)
        lines = [f"*{line.label}* {shortened(line.text, most, _escaped)}" for line in text.lines]
        context = [
            shortened(text.where, _LINE_MAX, _escaped),
            *(f"<{address.replace('&', '&amp;')}|{name}>" for name, address in text.links),
        ]
        body = {
            "text": shortened(text.title, _LINE_MAX, _escaped),  # what a notification shows
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": text.title, "emoji": False}},
                {"type": "section", "text": _markdown("\n".join(lines))},
                {"type": "context", "elements": [_markdown(element) for element in context]},
            ],
            "unfurl_links": False,
            "unfurl_media": False,
        }
        return Request(self.destination.url, json_body(body))

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`."""
        return outcome_by_status(response, self.destination)


def _markdown(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _escaped(character: str) -> str:
    return _ENTITIES.get(character, character)
