"""Several messages told as one: pure."""

from collections.abc import Sequence

from cyclewatch.daemon.alerts.message import ENDS, Message, Severity, State
from cyclewatch.daemon.alerts.text import told_in_a_line

_COMMAND = "cyclewatch incidents list"
_URGENCY = tuple(Severity)
"""The most urgent first, as they are declared."""


def together(messages: Sequence[Message], now_ns: int) -> Message:
    """One message with a line for each of `messages`, which are of different incidents, and at least one.

    What is still slow comes first, then what is most urgent, then what is slowest: a digest may be cut at its end.
    """
    told = sorted(messages, key=lambda one: (one.state in ENDS, _URGENCY.index(one.severity), -one.effect))
    started_at_ns = min(one.started_at_ns for one in messages)
    return Message(
        incident="digest",
        key=f"cyclewatch-digest-{now_ns}",
        state=State.DIGEST,
        severity=min((one.severity for one in messages), key=_URGENCY.index),
        target="",
        node="",
        model="",
        phase="",
        effect=0.0,
        ci=(0.0, 0.0),
        started_at_ns=started_at_ns,
        at_ns=now_ns,
        command=_COMMAND,
        digest=tuple(map(told_in_a_line, told)),
    )
