"""Services that forget: what is open is sent again before it expires there, without growing the outbox."""

from collections import deque
from collections.abc import Callable

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.senders.sender import Sender

_ENDED_NS = 15 * 60 * 10**9
"""For how long the end of an incident is sent again: as Prometheus does, in case the service was restarted."""

Told = tuple[str, Message]
"""An incident's thread, and its last message."""

LastTold = Callable[[int], list[Told]]


class Resending:
    """Round after round, each `Sender.resend_s` after the one before, of the last message of each incident.

    What is left of a round when the next one begins comes first in that, in its order: nothing is always left out.
    """

    def __init__(self) -> None:
        self._round: deque[Told] = deque()
        self._next_ns = 0
        self._needed = True

    def begin_anew(self) -> None:
        """Another daemon may have sent until now: the first round is at once."""
        self._round.clear()
        self._next_ns = 0

    def due(self, monotonic_ns: int) -> bool:
        """Whether there may be something to send again; False for ever where the service does not forget."""
        return self._needed and (bool(self._round) or monotonic_ns >= self._next_ns)

    def next(self, sender: Sender, now: Now, last_told: LastTold) -> Told | None:
        """The next to be sent again; `last_told` gives what is open, or told to be over after an instant (UTC ns)."""
        if sender.resend_s is None:
            self._needed = False
            return None
        if now.monotonic_ns >= self._next_ns:
            latest = last_told(now.wall_ns - _ENDED_NS)
            places = {thread: place for place, (thread, _) in enumerate(self._round)}
            self._next_ns = now.monotonic_ns + int(sender.resend_s * 1e9)
            self._round = deque(sorted(latest, key=lambda one: places.get(one[0], len(places))))
        return self._round.popleft() if self._round else None

    def told(self, thread: str) -> None:
        """Something newer of this incident has just been sent: what is in the round must not follow it."""
        self._round = deque(one for one in self._round if one[0] != thread)

    def put_off(self, one: Told) -> None:
        """It is to be tried again: after the others of the round, which it may have nothing to do with."""
        self._round.append(one)
