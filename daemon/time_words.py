"""Instants and durations as people write them."""

import re
from datetime import UTC, datetime

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def duration_ns(text: str) -> int | None:
    """Nanoseconds of `90s`, `15m`, `1.5h`, `2d` or `1w`; None for anything else."""
    found = _DURATION.fullmatch(text)
    return int(float(found.group(1)) * _SECONDS[found.group(2)] * 1e9) if found else None


def instant_ns(text: str, now_ns: int) -> int | None:
    """UTC nanoseconds of `now`, `-2h`, `+30m`, or ISO 8601 (UTC where no zone is given); None for anything else."""
    if text == "now":
        return now_ns
    if text[:1] in {"-", "+"}:
        away_ns = duration_ns(text[1:])
        return None if away_ns is None else now_ns + (away_ns if text[0] == "+" else -away_ns)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return utc_ns(at if at.tzinfo else at.replace(tzinfo=UTC))


def utc_ns(at: datetime) -> int:
    """UTC nanoseconds of an instant that has a zone."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def utc(at_ns: int) -> str:
    """An instant as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
