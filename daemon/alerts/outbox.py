"""What waits to be sent, as it lies in the store."""

from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.daemon.alerts.message import ENDS, Message, Severity

DIGESTS = "digest"
"""The thread of messages that tell of several incidents; all other threads are incidents."""


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

    Entries of one `thread` (the key of an incident) go to a sink in the order they were stored; of several threads the
    most urgent first.
    """

    key: str
    thread: str
    sink: str
    message: Message
    standing: Standing
    not_before_ns: int


def urgency(message: Message) -> int:
    """How soon a message goes out, the least first: by severity, and of one severity what is still slow first."""
    return 2 * tuple(Severity).index(message.severity) + (message.state in ENDS)


@dataclass(frozen=True)
class Waiting:
    """An entry that may be sent now: the oldest of its thread that is not done. `attempts` counts those so far."""

    number: int
    thread: str
    message: Message
    attempts: int
    created_at_ns: int


@dataclass(frozen=True)
class Attempt:
    """An attempt at sending, as rate limits see it.

    `at_ns` is UTC and `monotonic_ns` the clock of the boot `boot`: both of its end, or of its beginning while it has
    none. `wait_ns` is how long the sink was to be left alone after it.
    """

    at_ns: int
    boot: str
    monotonic_ns: int
    wait_ns: int = 0


@dataclass(frozen=True)
class Slot:
    """Whether a sink may be asked now: the number of the attempt that was noted, or None and how long to wait for it.

    Neither of them where the message is not pending any more.
    """

    attempt: int | None = None
    wait_ns: int = 0


@dataclass(frozen=True)
class Settled:
    """What an attempt has come to: how the entry stands, when to try again, and why (one sentence without secrets)."""

    standing: Standing
    not_before_ns: int
    wait_ns: int
    reason: str = ""


@dataclass(frozen=True)
class Load:
    """What waits for one sink: pending entries, since when (UTC nanoseconds, 0 for none), and dead ones."""

    sink: str
    pending: int
    oldest_ns: int
    dead: int
