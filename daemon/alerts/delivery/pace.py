"""How soon a sink may be asked again: its rates, what it said, and how often it failed. Pure."""

from collections.abc import Sequence

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.outbox import Attempt
from cyclewatch.daemon.alerts.senders.sender import Rate

_FIRST_S = 2.0
_MOST_DOUBLINGS = 20


def wait_ns(attempts: Sequence[Attempt], rates: Sequence[Rate], now: Now, boot: str) -> int:
    """Nanoseconds until another attempt keeps all of `rates` (sliding windows), and what the sink has asked for.

    An attempt of this boot is as old as the monotonic clock says. One of another boot, or of another machine, is as old
    as the wall clock says, and at least new: a clock that was put back never lets a message go too early.
    """
    ages_ns = [_age_ns(one, now, boot) for one in attempts]
    asked = [one.wait_ns - age_ns for one, age_ns in zip(attempts, ages_ns, strict=True)]
    newest_first = sorted(ages_ns)
    full = [int(rate.seconds * 1e9) - newest_first[rate.count - 1] for rate in rates if len(attempts) >= rate.count]
    return max([0, *asked, *full])


def backoff_ns(failures: int, longest_s: float, chance: float) -> int:
    """Time to wait after the failure with this number, from 1 on: twice as long each time, anywhere below that.

    `chance` is even between 0 and 1. Full jitter, as https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    found it to be best: those who failed together do not come back together.
    """
    return int(chance * min(longest_s, _FIRST_S * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)) * 1e9)


def _age_ns(attempt: Attempt, now: Now, boot: str) -> int:
    if attempt.boot == boot:
        return max(0, now.monotonic_ns - attempt.monotonic_ns)
    return max(0, now.wall_ns - attempt.at_ns)
