"""What every sender can do."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import (
    Delivered,
    Outcome,
    Refused,
    Request,
    Response,
    Retry,
    outcome_by_status,
    quoted,
    retry_after_s,
)
from cyclewatch.daemon.alerts.message import Message, Picture
from cyclewatch.daemon.alerts.shorten import length


@dataclass(frozen=True)
class Rate:
    """At most `count` messages in any `seconds`."""

    count: int
    seconds: float


class Sender(Protocol):
    """A service, seen from one sink. Whatever the message holds, `payload` keeps within the service's limits."""

    rates: ClassVar[tuple[Rate, ...]]
    """What the service takes from one sink; empty where it says nothing."""

    resend_s: ClassVar[float | None]
    """Seconds after which an incident that is still open must be sent again; None where once is enough."""

    @property
    def destination(self) -> Destination:
        """Where it sends to."""
        ...

    def payload(self, message: Message, now_ns: int) -> Request:
        """What to send for `message` at the instant `now_ns`, which goes into signatures."""
        ...

    def outcome(self, response: Response) -> Outcome:
        """What an answer means; its reasons hold no secrets."""
        ...


@runtime_checkable
class Illustrated(Protocol):
    """A sender whose service takes a picture within the request."""

    def illustrated(self, message: Message, picture: Picture, now_ns: int) -> Request:
        """What to send for `message` with `picture`, which is left out where the service has no room for it."""
        ...


def json_body(document: dict[str, Any] | list[Any]) -> bytes:
    """JSON in UTF-8, as short as it can be."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def stable_key(key: str, most: int) -> str:
    """The key itself, or where it cannot be sent a digest of it: cut, it might be another incident's."""
    if key.isprintable() and length(key) <= most:
        return key
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()


def answered(response: Response) -> dict[str, Any]:
    """The fields of an answer in JSON; none where it is no JSON object."""
    try:
        answer = json.loads(response.body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def answered_code(response: Response, *names: str) -> int | None:
    """The error code in the JSON of an answer, under the first of `names` it has; None where it is not of that form."""
    answer = answered(response)
    code = next((answer[name] for name in names if name in answer), None)
    return code if isinstance(code, int) else None


def outcome_by_code(
    response: Response,
    destination: Destination,
    *names: str,
    later: Mapping[int, str],
    refused: Mapping[int, str],
    waits_s: Mapping[int, float] | None = None,
) -> Outcome:
    """What the code in the body says (0 is well), for services whose HTTP 200 means nothing, nor some other status.

    `later` tells why for codes that are to be tried again whatever the status is, and `waits_s` how long to wait where
    the service does not say so itself. `refused` tells why for codes that trying again does not help. Of any other
    code the status decides, but that it is no success.
    """
    by_status = outcome_by_status(response, destination)
    code = answered_code(response, *names)
    said = quoted(response, destination)
    if code is not None and code in later:
        return Retry((waits_s or {}).get(code, retry_after_s(response)), f"{later[code]}: {said}")
    if isinstance(by_status, Retry):
        return by_status
    if code is not None and code in refused:
        return Refused(f"{refused[code]}: {said}")
    if isinstance(by_status, Delivered) and code != 0:
        return Retry(retry_after_s(response), said)
    return by_status
