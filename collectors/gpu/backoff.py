"""How long a call rests after it took its time: NVML's calls hold a lock that the serving process needs too.

A slow call may take a thousandth of the time, per GPU: one of 5 ms, however often it is wanted, is asked every 5 s. So
a call that becomes slow falls behind by itself, and comes back once it is quick again.
"""

from dataclasses import dataclass

SHARE = 0.001
"""Of the time, that one slow call on one GPU may take."""
QUICK_NS = 100_000
"""Calls that are quicker never rest."""
SURELY_SLOW_NS = 100_000_000
REST_MAX_NS = 600_000_000_000


@dataclass
class Pace:
    """When a call may be asked again."""

    due_ns: int = 0
    last_ns: int = 0

    def took(self, duration_ns: int, ended_ns: int) -> None:
        """Note a call. A single slow one may be chance, and does not count unless it was very slow."""
        steady_ns = duration_ns if duration_ns >= SURELY_SLOW_NS else min(duration_ns, self.last_ns)
        self.last_ns = duration_ns
        self.due_ns = ended_ns + (min(int(steady_ns / SHARE), REST_MAX_NS) if steady_ns > QUICK_NS else 0)
