"""What goes to a service and what comes back, and what that means."""

import contextlib
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.printable import printable

_LATER = frozenset({408, 425, 429})
_LONGEST_WAIT_S = 900.0
"""DingTalk shuts a robot out for 600 s. Whoever asks for more is asked again: else what is critical waits as long."""

_QUOTED_MAX = 200


@dataclass(frozen=True)
class Request:
    """A POST, ready to be sent, of JSON unless a header says otherwise. It may hold secrets, but not in its repr."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Part:
    """A part of a form; `file` is the name of the file that it is, empty where it is none."""

    name: str
    content: bytes
    media_type: str
    file: str = ""


@dataclass(frozen=True)
class Response:
    """An answer; names of headers in lower case, the body as far as it was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    received_at_ns: int


@dataclass(frozen=True)
class Delivered:
    """The service has taken the message."""


@dataclass(frozen=True)
class Retry:
    """Not now: try again, after `after_s` seconds where the service says so."""

    after_s: float | None
    reason: str


@dataclass(frozen=True)
class Refused:
    """The service will never take it so; `reason` is one sentence, without secrets."""

    reason: str


Outcome = Delivered | Retry | Refused


def form_request(url: str, parts: Sequence[Part]) -> Request:
    """A POST of several parts (multipart/form-data); the same bytes for the same parts."""
    # Nothing that is sent can hold the digest of all that is sent.
    boundary = hashlib.sha256(b"".join(part.content for part in parts)).hexdigest()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    files = [(part.name, (part.file or None, part.content, part.media_type)) for part in parts]
    return Request(url, httpx.Request("POST", url, files=files, headers=headers).read(), headers)


def outcome_by_status(response: Response, destination: Destination) -> Outcome:
    """What the status says, for services that use it as HTTP means it."""
    if 200 <= response.status < 300:  # noqa: PLR2004 (the class of success)
        return Delivered()
    said = quoted(response, destination)
    if response.status in _LATER or response.status >= 500:  # noqa: PLR2004 (the class of server errors)
        return Retry(retry_after_s(response), said)
    if 300 <= response.status < 400:  # noqa: PLR2004 (the class of redirects)
        return Refused(f"{said}: a redirect, which is never followed: correct the url")
    return Refused(said)


def retry_after_s(response: Response) -> float | None:
    """Seconds to wait by the header Retry-After, given in seconds or as a date; None without a valid one."""
    value = response.headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        return waiting_s(float(value))
    until = _date(value)
    if until is None:
        return None
    # Against the service's own clock, where it tells it: ours may be wrong.
    now = _date(response.headers.get("date", "")) or datetime.fromtimestamp(response.received_at_ns / 1e9, UTC)
    return waiting_s((until - now).total_seconds())


def waiting_s(seconds: float) -> float | None:
    """A time to wait as a service gave it: none if it is no number, at most a quarter of an hour."""
    return min(max(seconds, 0.0), _LONGEST_WAIT_S) if math.isfinite(seconds) else None


def quoted(response: Response, destination: Destination) -> str:
    """The status and the beginning of what the service said, without secrets."""
    body = destination.masked(response.body.decode(errors="replace")).strip()
    return f"HTTP {response.status}" + (f": '{printable(body, _QUOTED_MAX)}'" if body else "")


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
