"""What the doctor looks at for alerts: messages that were given up, or have waited for long."""

from collections.abc import Iterable, Iterator

from cyclewatch.daemon.alerts.outbox import Load
from cyclewatch.daemon.check import Check, Level

_LONG_NS = 15 * 60 * 10**9


def outbox_checks(loads: Iterable[Load], now_ns: int) -> Iterator[Check]:
    """A finding for each sink that has not been told what it should have been; nothing where all is well."""
    for load in loads:
        subject = f"sink {load.sink}"
        if load.dead:
            mend = f"see cyclewatch outbox list --dead; try cyclewatch sink test {load.sink}; then outbox resend --dead"
            yield Check(subject, Level.BAD, f"{load.dead} messages were given up", mend)
        if load.pending and now_ns - load.oldest_ns > _LONG_NS:
            minutes = (now_ns - load.oldest_ns) // (60 * 10**9)
            finding = f"{load.pending} messages wait, the oldest for {minutes} minutes"
            yield Check(
                subject, Level.BAD, finding, f"see cyclewatch outbox list; try cyclewatch sink test {load.sink}"
            )
