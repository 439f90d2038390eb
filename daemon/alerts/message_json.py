"""A message as it lies in the outbox: JSON that every database takes, and exactly the message again."""

import math
from typing import Any

import msgspec

from cyclewatch.daemon.alerts.message import Message


def message_document(message: Message) -> dict[str, Any]:
    """`message` in the plain types of JSON. Numbers that JSON lacks, such as infinity, are texts."""
    document: dict[str, Any] = _plain(msgspec.to_builtins(message))
    return document


def message_of(document: dict[str, Any]) -> Message:
    """The message that `message_document` made this of; fields that are missing have their defaults.

    Raises:
        ValueError: it is no message.
    """
    return msgspec.convert(document, Message, strict=False)


def _plain(value: Any) -> Any:  # noqa: ANN401 (values of JSON)
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case float() if not math.isfinite(value):
            return repr(value)
        case _:
            return value
