"""PagerDuty: Events API v2."""

from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response, outcome_by_status
from cyclewatch.daemon.alerts.message import Message, State
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body, stable_key
from cyclewatch.daemon.alerts.shorten import shortened
from cyclewatch.daemon.alerts.text import NAME_MAX, text_of
from cyclewatch.daemon.time_words import utc

URL = "https://events.pagerduty.com/v2/enqueue"
"""Accounts in the EU have events.eu.pagerduty.com."""

_KEY_MAX = 255
_ACTIONS = {
    State.ACKNOWLEDGED: "acknowledge",
    State.RESOLVED: "resolve",
    State.ACCEPTED: "resolve",
    State.MERGED: "resolve",
    State.EXPECTED: "resolve",
    State.DIGEST: "resolve",
}
"""Of what is no alarm nobody is paged: where there is no such incident, `resolve` does nothing."""


@dataclass(frozen=True)
class PagerDuty:
    """One integration; the sink's key is its routing key."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(120, 60.0),)
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:  # noqa: ARG002 (no signature)
        """See `Sender`."""
        action = _ACTIONS.get(message.state, "trigger")
        event: dict[str, Any] = {
            "routing_key": self.destination.key,
            "event_action": action,
            "dedup_key": stable_key(message.key, _KEY_MAX),
        }
        if action == "trigger":
            event |= _details(message)
        return Request(self.destination.url, json_body(event))

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`."""
        return outcome_by_status(response, self.destination)


def _details(message: Message) -> dict[str, Any]:
    text = text_of(message)
    payload = {
        "summary": text.title,
        "source": _name(message.node) or _name(message.target) or "cyclewatch",
        "severity": message.severity.value,
        "timestamp": utc(message.started_at_ns),
        "component": _name(message.target),
        "group": _name(message.model),
        "class": "slowdown",
        "custom_details": {**{line.label: line.text for line in text.lines}, "Where": text.where},
    }
    return {
        "payload": payload,
        "client": "cyclewatch",
        "links": [{"href": address, "text": name} for name, address in text.links],
    }


def _name(text: str) -> str:
    return shortened(text, NAME_MAX)
