"""Discord: webhooks, with an embed."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import (
    Outcome,
    Part,
    Request,
    Response,
    Retry,
    form_request,
    outcome_by_status,
    waiting_s,
)
from cyclewatch.daemon.alerts.message import OVER, Message, Picture, Severity
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body
from cyclewatch.daemon.alerts.shorten import backslashed, shortened
from cyclewatch.daemon.alerts.text import text_of
from cyclewatch.daemon.time_words import utc

_LINES_MAX = 2250
"""All lines together and three links fit into the 4,096 characters of a description."""

_TITLE_MAX = 256
_COLOURS = {Severity.CRITICAL: 0xC0392B, Severity.WARNING: 0xE67E22, Severity.INFO: 0x3498DB}
_GREEN = 0x2ECC71
_FILE = "timeline.png"
_NOBODY: dict[str, Any] = {"allowed_mentions": {"parse": []}}
_escaped = backslashed("\\`*_~|[]<>#")


@dataclass(frozen=True)
class Discord:
    """One channel."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(5, 2.0), Rate(30, 60.0))
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Sender`."""
        return Request(self.destination.url, json_body({**_NOBODY, "embeds": [_embed(message)]}))

    def illustrated(self, message: Message, picture: Picture, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Illustrated`. The embed shows the picture, which is a file of the same request."""
        document = {
            **_NOBODY,
            "embeds": [{**_embed(message), "image": {"url": f"attachment://{_FILE}"}}],
            "attachments": [{"id": 0, "filename": _FILE, "description": picture.alternative}],
        }
        parts = (
            Part("payload_json", json_body(document), "application/json"),
            Part("files[0]", picture.png, "image/png", _FILE),
        )
        return form_request(self.destination.url, parts)

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`. How long to wait is in the body of an answer too, and finer there."""
        outcome = outcome_by_status(response, self.destination)
        if isinstance(outcome, Retry) and (after_s := _retry_after_s(response.body)) is not None:
            return Retry(after_s, outcome.reason)
        return outcome


def _embed(message: Message) -> dict[str, Any]:
    text = text_of(message)
    most = _LINES_MAX // len(text.lines)
    lines = [f"**{line.label}** {shortened(line.text, most, _escaped)}" for line in text.lines]
    links = " · ".join(f"[{name}]({address})" for name, address in text.links)
    return {
        "title": shortened(text.title, _TITLE_MAX, _escaped),
        "description": "\n".join([*lines, *([links] if links else [])]),
        "color": _GREEN if message.state in OVER else _COLOURS[message.severity],
        "timestamp": utc(message.at_ns),
        "footer": {"text": text.where},
    }


def _retry_after_s(body: bytes) -> float | None:
    try:
        after_s = json.loads(body)["retry_after"]
        return waiting_s(float(after_s))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
