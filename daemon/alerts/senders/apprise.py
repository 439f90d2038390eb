"""Services that apprise knows, by an address of its own; `../apprise_post.py` brings it there."""

import base64
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response, outcome_by_status
from cyclewatch.daemon.alerts.message import OVER, Message, Picture, Severity
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body
from cyclewatch.daemon.alerts.text import text_of

_KINDS = {Severity.CRITICAL: "failure", Severity.WARNING: "warning", Severity.INFO: "info"}


@dataclass(frozen=True)
class Apprise:
    """One address of apprise, which is the destination's key; its url is `apprise://` and the kind of service."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(20, 60.0),)
    """Of no service's: each message takes half a second of CPU."""

    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Sender`. Plain text, which apprise shortens where the service takes less."""
        return Request(self.destination.url, json_body(_notification(message)))

    def illustrated(self, message: Message, picture: Picture, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Illustrated`. Whether the service takes it is known to apprise."""
        document = {**_notification(message), "picture": base64.b64encode(picture.png).decode()}
        return Request(self.destination.url, json_body(document))

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`."""
        return outcome_by_status(response, self.destination)


def _notification(message: Message) -> dict[str, Any]:
    text = text_of(message)
    lines = [*map(str, text.lines), text.where, *(f"{name}: {address}" for name, address in text.links)]
    kind = "success" if message.state in OVER else _KINDS[message.severity]
    return {"title": text.title, "body": "\n".join(lines), "notify_type": kind}
