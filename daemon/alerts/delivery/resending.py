"""Services that forget: what is open is sent again before it expires there, without growing the outbox."""

from collections import deque
from collections.abc import Callable

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.senders.sender import Sender

_ENDED_NS = 15 * 60 * 10**9
"""For how long the end of an incident is sent again: as Prometheus does, in case the service was restarted."""

LastTold = Callable[[int], list[tuple[str, Message]]]


class Resending:
    """Round after round, each `Sender.resend_s` after the one before, of the last message of each incident."""

    def __init__(self) -> None:
        self._round: deque[tuple[str, Message]] = deque()
        self._next_ns = 0
        self._needed = True

    def begin_anew(self) -> None:
        """Another daemon may have sent until now: the first round is at once."""
        self._round.clear()
        self._next_ns = 0

    def due(self, monotonic_ns: int) -> bool:
        """Whether there may be something to send again; False for ever where the service does not forget."""
        return self._needed and (bool(self._round) or monotonic_ns >= self._next_ns)

    def next(self, sender: Sender, now: Now, last_told: LastTold) -> Message | None:
        """The next one to be sent again; `last_told` gives those that are open or ended after an instant (UTC ns)."""
        if sender.resend_s is None:
            self._needed = False
            return None
        if not self._round:
            self._next_ns = now.monotonic_ns + int(sender.resend_s * 1e9)
            self._round.extend(last_told(now.wall_ns - _ENDED_NS))
        return self._round.popleft()[1] if self._round else None

    def told(self, thread: str) -> None:
        """Something newer of this incident has just been sent: what is in the round must not follow it."""
        self._round = deque(one for one in self._round if one[0] != thread)

    def failed(self) -> None:
        """The rest of the round is for the next one."""
        self._round.clear()
