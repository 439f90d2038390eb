"""Prometheus Alertmanager: API v2."""

import base64
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Outcome, Request, Response, outcome_by_status
from cyclewatch.daemon.alerts.message import ENDS, Message, State
from cyclewatch.daemon.alerts.senders.sender import Rate, json_body, stable_key
from cyclewatch.daemon.alerts.shorten import shortened
from cyclewatch.daemon.alerts.text import NAME_MAX, text_of
from cyclewatch.daemon.time_words import utc

_KEY_MAX = 255
_RESEND_S = 60.0
_FORGOTTEN_AFTER_NS = 4 * int(_RESEND_S) * 10**9
"""As Prometheus does: an alert that is not sent again ends by itself, but not before four were missed."""

_NO_ALARM = ENDS | {State.DIGEST}


@dataclass(frozen=True)
class Alertmanager:
    """One Alertmanager, by its base address; the sink's key is `USER:PASSWORD` or a bearer token."""

    destination: Destination
    rates: ClassVar[tuple[Rate, ...]] = ()
    resend_s: ClassVar[float | None] = _RESEND_S

    def payload(self, message: Message, now_ns: int) -> Request:
        """See `Sender`."""
        alerts = []
        if message.risen_from is not None:  # another severity is another alert
            alerts.append(_alert(replace(message, severity=message.risen_from), message.at_ns))
        over = message.state in _NO_ALARM
        alerts.append(_alert(message, message.at_ns if over else now_ns + _FORGOTTEN_AFTER_NS))
        return Request(
            f"{self.destination.url.rstrip('/')}/api/v2/alerts", json_body(alerts), _login(self.destination.key)
        )

    def outcome(self, response: Response) -> Outcome:
        """See `Sender`."""
        return outcome_by_status(response, self.destination)


def _alert(message: Message, ends_at_ns: int) -> dict[str, Any]:
    text = text_of(message)
    links = dict(text.links)
    page = {"generatorURL": links["page"]} if "page" in links else {}
    return {
        "labels": _labels(message),
        "annotations": {
            "summary": text.title,
            "description": "\n".join(map(str, text.lines)),
            "incident": text.where,
            **{f"{name}_url": address for name, address in text.links},
        },
        "startsAt": utc(min(message.started_at_ns, ends_at_ns)),  # the other way round it is refused
        "endsAt": utc(ends_at_ns),
        **page,
    }


def _labels(message: Message) -> dict[str, str]:
    """What an alert is known by: nothing that changes while it is open, so no figures."""
    labels = {
        "alertname": "CyclewatchTest" if message.state is State.TEST else "CyclewatchSlowdown",
        "incident": stable_key(message.key, _KEY_MAX),
        "severity": message.severity.value,
        "target": shortened(message.target, NAME_MAX),
        "node": shortened(message.node, NAME_MAX),
        "model": shortened(message.model, NAME_MAX),
        "phase": shortened(message.phase, NAME_MAX),
    }
    return {name: value for name, value in labels.items() if value}  # an empty label is one that is not there


def _login(key: str) -> dict[str, str]:
    if not key:
        return {}
    if ":" in key:
        return {"Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"}
    return {"Authorization": f"Bearer {key}"}
