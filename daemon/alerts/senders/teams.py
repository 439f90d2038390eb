"""Microsoft Teams: a workflow's webhook, with an Adaptive Card."""

import base64
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response, outcome_by_status
from cyclewatch.daemon.alerts.message import Message, Picture
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body
from cyclewatch.daemon.alerts.text import text_of

_BYTES_MAX = 28_000
"""Of a whole message; a picture is a part of it."""


@dataclass(frozen=True)
class Teams:
    """One workflow. Its answer 202 says that the message waits there, not that anybody can see it."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(4, 1.0),)
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Sender`."""
        return self._request(message)

    def illustrated(self, message: Message, picture: Picture, now_ns: int) -> Request:
        """See `Illustrated`. Adaptive Cards take the data of an image as its address from version 1.2 on."""
        image = {
            "type": "Image",
            "url": f"data:image/png;base64,{base64.b64encode(picture.png).decode()}",
            "altText": picture.alternative,
            "size": "Stretch",
        }
        request = self._request(message, image)
        return request if len(request.body) <= _BYTES_MAX else self.payload(message, now_ns)

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`."""
        return outcome_by_status(response, self.destination)

    def _request(self, message: Message, *images: dict[str, Any]) -> Request:
        text = text_of(message)
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "fallbackText": text.title,
            "msteams": {"width": "Full"},
            "body": [
                _paragraph(_run(text.title, weight="Bolder", size="Large")),
                *(_paragraph(_run(f"{line.label} ", weight="Bolder"), _run(line.text)) for line in text.lines),
                *images,
                _paragraph(_run(text.where, size="Small", isSubtle=True)),
            ],
            "actions": [{"type": "Action.OpenUrl", "title": name, "url": address} for name, address in text.links],
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return Request(self.destination.url, json_body({"type": "message", "attachments": [attachment]}))


def _paragraph(*runs: dict[str, Any]) -> dict[str, Any]:
    """Unlike a TextBlock, which reads Markdown, it shows every character as it is."""
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: Any) -> dict[str, Any]:  # noqa: ANN401 (values of JSON)
    return {"type": "TextRun", "text": text, **style}
