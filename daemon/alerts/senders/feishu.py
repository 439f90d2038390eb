"""Feishu and Lark: custom robots, with a card, signed."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response
from cyclewatch.daemon.alerts.message import OVER, Message, Severity
from cyclewatch.daemon.alerts.senders.sender import Rate, answered, json_body, outcome_by_code
from cyclewatch.daemon.alerts.text import text_of

_COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "orange", Severity.INFO: "blue"}

_UNFIT = 9499
"""The code of a request that is not as it should be, and of one too many: only what it says tells them apart."""

_TOO_MANY = "too many"
_LATER = {
    11232: "too much is sent to Feishu just now",
    19021: "the signature or the clock is wrong: correct the key, or set the clock",
    99991400: "the robot sends too fast",
}
_REFUSED = {
    _UNFIT: "the request is not as it should be",
    19001: "the address is wrong",
    19002: "the type of message is wrong",
    19022: "the address of this node is not on the robot's list",
    19024: "the robot wants a keyword: use its signature instead",
}


@dataclass(frozen=True)
class Feishu:
    """One robot."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(5, 1.0), Rate(100, 60.0))
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:
        """See `Sender`."""
        text = text_of(message)
        colour = "green" if message.state in OVER else _COLOURS[message.severity]
        elements: list[dict[str, Any]] = [{"tag": "div", "text": _plain(str(line))} for line in text.lines]
        if text.links:
            buttons = [
                {"tag": "button", "type": "default", "text": _plain(name), "url": address}
                for name, address in text.links
            ]
            elements.append({"tag": "action", "actions": buttons})
        elements.append({"tag": "note", "elements": [_plain(text.where)]})
        card = {
            "config": {"wide_screen_mode": True},
            "header": {"template": colour, "title": _plain(text.title)},
            "elements": elements,
        }
        body: dict[str, Any] = {"msg_type": "interactive", "card": card}
        if self.destination.key:
            timestamp_s = now_ns // 10**9
            body = {"timestamp": str(timestamp_s), "sign": signature(self.destination.key, timestamp_s), **body}
        return Request(self.destination.url, json_body(body))

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`. HTTP 200 means nothing, nor does 400: the code in the body does."""
        too_many = _TOO_MANY in str(answered(response).get("msg", "")).lower()
        later = {**_LATER, _UNFIT: "the robot sends too fast"} if too_many else _LATER
        return outcome_by_code(response, self.destination, "code", "StatusCode", later=later, refused=_REFUSED)


def signature(secret: str, timestamp_s: int) -> str:
    """Base64 of HMAC-SHA256 of nothing, with time and secret as the key: the custom bot guide says so."""
    key = f"{timestamp_s}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def _plain(text: str) -> dict[str, Any]:
    return {"tag": "plain_text", "content": text}
