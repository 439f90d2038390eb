"""DingTalk: custom robots, with Markdown, signed."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlencode

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body, outcome_by_code
from cyclewatch.daemon.alerts.shorten import backslashed, shortened
from cyclewatch.daemon.alerts.text import text_of

_LINE_MAX = 500
_LINES_MAX = 2500
_WAITS_S = {130101: 600.0, 410100: 600.0}
"""How long a robot that was too fast is shut out."""

_LATER = {
    130101: "the robot sends too fast",
    310000: "the signature, the clock, a keyword or this node's address is wrong",
    410100: "the robot sends too fast",
}
_REFUSED = {
    300001: "the access token is wrong",
    400013: "the group is gone",
    400101: "the access token is wrong",
    400102: "the robot is switched off",
    400106: "the robot is gone",
}
_escaped = backslashed("\\`*[]<>#!")
"""Without the underscore: alone within a word it does nothing, and names are full of it."""


@dataclass(frozen=True)
class DingTalk:
    """One robot."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = (Rate(20, 60.0),)
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:
        """See `Sender`."""
        text = text_of(message)
        most = _LINES_MAX // len(text.lines)
        paragraphs = [
            f"### {shortened(text.title, _LINE_MAX, _escaped)}",
            *(f"**{line.label}** {shortened(line.text, most, _escaped)}" for line in text.lines),
            shortened(text.where, _LINE_MAX, _escaped),
            *([" · ".join(f"[{name}]({address})" for name, address in text.links)] if text.links else []),
        ]
        body = {"msgtype": "markdown", "markdown": {"title": text.title, "text": "\n\n".join(paragraphs)}}
        return Request(self._url(now_ns), json_body(body))

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`. HTTP 200 means nothing: the code in the body does."""
        return outcome_by_code(response, self.destination, "errcode", later=_LATER, refused=_REFUSED, waits_s=_WAITS_S)

    def _url(self, now_ns: int) -> str:
        url, key = self.destination.url, self.destination.key
        if not key:
            return url
        timestamp_ms = now_ns // 10**6
        return f"{url}{'&' if '?' in url else '?'}" + urlencode(
            {"timestamp": timestamp_ms, "sign": signature(key, timestamp_ms)}
        )


def signature(secret: str, timestamp_ms: int) -> str:
    """Base64 of HMAC-SHA256 of time and secret, with the secret as the key: the page on security settings says so."""
    text = f"{timestamp_ms}\n{secret}".encode()
    return base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()
