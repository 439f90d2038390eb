"""What waits to be sent, as it lies in the store."""

from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.daemon.alerts.message import Message


class Standing(StrEnum):
    """What became of an entry."""

    PENDING = "pending"
    """To be sent as soon as `not_before_ns`, the order of its thread and the sink's rate allow."""
    HELD = "held"
    """To be told together with others at `not_before_ns`: quiet hours, or the digest."""
    DELIVERED = "delivered"
    TOLD_TOGETHER = "together"
    """Another entry told of it."""
    DEAD = "dead"
    """Given up; `cyclewatch outbox resend` tries again."""


@dataclass(frozen=True)
class Entry:
    """A message for one sink, before it is stored. `key` makes it unique: it is stored once, however often it is put.

    Entries of one `thread` (the key of an incident) go to a sink in the order they were stored.
    """

    key: str
    thread: str
    sink: str
    message: Message
    standing: Standing
    not_before_ns: int
