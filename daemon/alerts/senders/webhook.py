"""Any service that takes JSON: a document of ours, signed as https://www.standardwebhooks.com describes.

docs/alerts.md has the fields. They are a contract: add, never rename.
"""

import base64
import binascii
import hashlib
import hmac
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response, outcome_by_status
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body, stable_key
from cyclewatch.daemon.alerts.shorten import shortened
from cyclewatch.daemon.alerts.text import LINE_MAX, NAME_MAX, TOLD_LINE_MAX, safe_link, text_of
from cyclewatch.daemon.time_words import utc

_VERSION = 1
_KEY_MAX = 255
_EVIDENCE_MAX = 10
_DIGEST_MAX = 40
_PREFIX = "whsec_"


@dataclass(frozen=True)
class Webhook:
    """One receiver; the sink's key is the secret that both know."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = ()
    resend_s: ClassVar[float | None] = None

    def payload(self, message: Message, now_ns: int) -> Request:
        """See `Sender`."""
        body = json_body(_document(message))
        timestamp_s = now_ns // 10**9
        headers = {"webhook-id": message_id(message), "webhook-timestamp": str(timestamp_s)}
        if self.destination.key:
            headers["webhook-signature"] = signature(self.destination.key, headers["webhook-id"], timestamp_s, body)
        return Request(self.destination.url, body, headers)

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`."""
        return outcome_by_status(response, self.destination)


def message_id(message: Message) -> str:
    """The same whenever this message is sent again, another for every other message."""
    what = f"{message.key}\n{message.state}\n{message.at_ns}"
    return f"msg_{hashlib.sha256(what.encode(errors='backslashreplace')).hexdigest()[:32]}"


def signature(secret: str, identifier: str, timestamp_s: int, body: bytes) -> str:
    """The header `webhook-signature`; a secret that begins with `whsec_` is Base64, any other is taken as it is."""
    signed = f"{identifier}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass  # not ours to judge: whoever checks the signature has the same secret
    return secret.encode()


def _document(message: Message) -> dict[str, Any]:
    text = text_of(message)
    return {
        "version": _VERSION,
        "incident": shortened(message.incident, NAME_MAX),
        "key": stable_key(message.key, _KEY_MAX),
        "state": message.state.value,
        "severity": message.severity.value,
        "at": utc(message.at_ns),
        "started_at": utc(message.started_at_ns),
        "node": shortened(message.node, NAME_MAX),
        "target": shortened(message.target, NAME_MAX),
        "targets": message.targets,
        "model": shortened(message.model, NAME_MAX),
        "phase": shortened(message.phase, NAME_MAX),
        "effect": _finite(message.effect),
        "ci": [_finite(message.ci[0]), _finite(message.ci[1])],
        "felt": [
            {
                "name": shortened(one.name, NAME_MAX),
                "before": _finite(one.before),
                "after": _finite(one.after),
                "unit": shortened(one.unit, NAME_MAX),
            }
            for one in message.felt[:_EVIDENCE_MAX]
        ],
        "cause": None
        if message.cause is None
        else {
            "kind": shortened(message.cause.kind, NAME_MAX),
            "subject": shortened(message.cause.subject, LINE_MAX),
            "evidence": [shortened(one, LINE_MAX) for one in message.cause.evidence[:_EVIDENCE_MAX]],
        },
        "change": shortened(message.change, LINE_MAX),
        "by": shortened(message.by, LINE_MAX),
        "returns": message.returns,
        "risen_from": None if message.risen_from is None else message.risen_from.value,
        "digest": [shortened(one, TOLD_LINE_MAX) for one in message.digest[:_DIGEST_MAX]],
        "next_step": shortened(message.next_step, LINE_MAX),
        "command": shortened(message.command, LINE_MAX),
        "links": {
            "page": safe_link(message.links.page),
            "dashboard": safe_link(message.links.dashboard),
            "runbook": safe_link(message.links.runbook),
        },
        "title": text.title,
        "lines": [str(line) for line in text.lines],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
