"""One sink and the thread that brings it its messages."""

import random
import threading
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.deliver import deliver
from cyclewatch.daemon.alerts.delivery.pace import backoff_ns
from cyclewatch.daemon.alerts.delivery.resending import Resending
from cyclewatch.daemon.alerts.destination import Destination
from cyclewatch.daemon.alerts.exchange import Delivered, Outcome, Refused, Retry
from cyclewatch.daemon.alerts.message import Message, Picture
from cyclewatch.daemon.alerts.outbox import Settled, Standing, Waiting
from cyclewatch.daemon.alerts.post import Poster
from cyclewatch.daemon.alerts.senders.sender import Illustrated, Sender
from cyclewatch.daemon.alerts.sinks import SinkError
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.outbox import Outbox

log = structlog.get_logger(__name__)

_LOOK_S = 5.0
"""Between two looks into the outbox where nobody says that there is something."""

_UNUSABLE_S = 30.0
_LONGEST_S = 300.0
"""Longest wait of one message; others of the same sink have their turn meanwhile."""

_LONGEST_REST_S = 30.0
"""Longest rest of a sink that fails and does not say for how long."""

_WITH_PICTURE = 5
"""So many attempts at a message have its picture: what fails then may fail for that."""

Way = tuple[Sender, Poster]


class Courier:
    """Takes the messages of one sink from the outbox, in the order of each incident, one at a time.

    An attempt is noted before it is made: where that cannot be, because the disk is full, nothing is sent. What it came
    to is noted before the next one; until that has been possible nothing more is sent. So a daemon that is killed in
    between sends this one message again, and no other.

    Args:
        sink: its name.
        pager: whether each incident is told for itself.
        connect: makes the sender and the way to it; raises SinkError where it cannot be used as it is configured.
        outbox: where the messages are.
        give_up_s: age at which a message that fails once more is given up.
        may_send: whether this daemon is the one that delivers.
        clock: both clocks.
        boot: the boot of this machine, whose monotonic clock that is.
        count: told what each attempt came to: "delivered", "retried", "refused" or "given_up".
        illustrate: the picture of a message as it is at an instant (UTC), if there is one; None to send none.
        chance: even between 0 and 1, for jitter.
    """

    def __init__(
        self,
        sink: str,
        *,
        pager: bool,
        connect: Callable[[], Way],
        outbox: Outbox,
        give_up_s: float,
        may_send: Callable[[], bool],
        clock: Callable[[], Now],
        boot: str,
        count: Callable[[str], None],
        illustrate: Callable[[Message, int], Picture | None] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._sink = sink
        self._pager = pager
        self._connect = connect
        self._outbox = outbox
        self._give_up_ns = int(give_up_s * 1e9)
        self._may_send = may_send
        self._clock = clock
        self._boot = boot
        self._count = count
        self._illustrate = illustrate
        self._chance = chance
        self._way: Way | None = None
        self._resending = Resending()
        self._delivers = False
        self._failures = 0
        self._trouble = ""
        self._stopping = False
        self._changed = threading.Condition()
        self._woken = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{sink}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """There may be something to send."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def ask_to_stop(self) -> None:
        """End after the attempt that is being made."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; False where an attempt still lasts. Its message is sent again by the next daemon."""
        self._thread.join(timeout_s)
        return self.has_ended()

    def has_ended(self) -> bool:
        """Whether no attempt is made any more."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            try:
                pause_s = self.turn()
            except SQLAlchemyError as error:
                self._in_trouble(f"the outbox cannot be used, so nothing is sent: {reason_of(error)}")
                pause_s = _LOOK_S
            except Exception:
                log.exception("a courier failed by itself; it goes on", sink=self._sink)
                pause_s = _UNUSABLE_S
            self._pause(pause_s)

    def turn(self) -> float:
        """Send what may be sent now, at most one message; the seconds until there may be more.

        Raises:
            SQLAlchemyError: the database does not answer.
        """
        if not self._may_send():
            self._delivers = False
            return _LOOK_S
        now = self._clock()
        if not self._delivers:
            self._outbox.end_cut_off(self._sink, now, self._boot)
            self._resending.begin_anew()
            self._delivers = True
        self._outbox.gather(self._sink, now.wall_ns, pager=self._pager)
        waiting = self._outbox.next(self._sink, now.wall_ns)
        if waiting is None and not self._resending.due(now.monotonic_ns):
            return _LOOK_S
        try:
            sender, poster = self._connected()
        except SinkError as error:
            self._in_trouble(str(error))
            given_up = self._outbox.give_up(self._sink, now.wall_ns - self._give_up_ns, str(error), now.wall_ns)
            for _ in range(given_up):
                self._count("given_up")
            return _UNUSABLE_S
        if waiting is None:
            return self._send_again(sender, poster, now)
        slot = self._outbox.begin(self._sink, sender.rates, now, self._boot, waiting)
        if slot.attempt is None:
            return min(slot.wait_ns / 1e9, _LOOK_S)
        self._send(sender, poster, waiting, slot.attempt)
        return 0.0

    def _connected(self) -> Way:
        if self._way is None:
            self._way = self._connect()
        return self._way

    def _send(self, sender: Sender, poster: Poster, waiting: Waiting, attempt: int) -> None:
        picture = self._picture(sender, waiting)
        outcome = self._attempt(sender, poster, waiting.message, self._clock(), picture)
        ended = self._clock()
        settled = self._settled(outcome, waiting, ended)
        while not self._noted(waiting, attempt, settled, ended):
            if self._stopping:
                return
            self._pause(_LOOK_S)
        self._resending.told(waiting.thread)

    def _picture(self, sender: Sender, waiting: Waiting) -> Picture | None:
        """How things are now, where the sink takes that; anew for each attempt, but for those after the first few."""
        if self._illustrate is None or not isinstance(sender, Illustrated) or waiting.attempts >= _WITH_PICTURE:
            return None
        return self._illustrate(waiting.message, self._clock().wall_ns)

    def _attempt(
        self, sender: Sender, poster: Poster, message: Message, now: Now, picture: Picture | None = None
    ) -> Outcome:
        try:
            outcome = deliver(sender, message, poster, now.wall_ns, picture)
        except Exception as error:
            log.exception("a sender failed by itself", sink=self._sink)
            outcome = Retry(None, f"the sender failed by itself: {type(error).__name__}: see the log")
        if isinstance(outcome, Delivered):
            self._failures = 0
            self._out_of_trouble()
        else:
            self._failures += 1
            self._way = None  # a secret may have been corrected since
            self._in_trouble(outcome.reason)
        # It may be the picture that the service does not take, or the secret that was rotated.
        if isinstance(outcome, Refused) and (picture is not None or self._has_changed(sender.destination)):
            return Retry(None, outcome.reason)
        return outcome

    def _has_changed(self, used: Destination) -> bool:
        """Whether the sink has another address or key by now than was used, or its secret is just being changed."""
        try:
            sender, _ = self._connected()
        except SinkError:
            return True
        return sender.destination != used

    def _settled(self, outcome: Outcome, waiting: Waiting, now: Now) -> Settled:
        match outcome:
            case Delivered():
                self._count("delivered")
                return Settled(Standing.DELIVERED, now.wall_ns, 0)
            case Refused(reason):
                self._count("refused")
                return Settled(Standing.DEAD, now.wall_ns, 0, reason)
            case Retry(after_s, reason):
                asked_ns = int((after_s or 0.0) * 1e9)
                own_ns = max(asked_ns, backoff_ns(waiting.attempts + 1, _LONGEST_S, self._chance()))
                rest_ns = max(asked_ns, backoff_ns(self._failures, _LONGEST_REST_S, self._chance()))
                if now.wall_ns - waiting.created_at_ns > self._give_up_ns:
                    self._count("given_up")
                    reason = f"given up after {waiting.attempts + 1} attempts: {reason}"
                    return Settled(Standing.DEAD, now.wall_ns, rest_ns, reason)
                self._count("retried")
                return Settled(Standing.PENDING, now.wall_ns + own_ns, rest_ns, reason)

    def _noted(self, waiting: Waiting, attempt: int, settled: Settled, now: Now) -> bool:
        try:
            self._outbox.settle(waiting, attempt, settled, now, self._boot)
        except SQLAlchemyError as error:
            self._in_trouble(f"the outbox cannot be used, so nothing is sent: {reason_of(error)}")
            return False
        return True

    def _send_again(self, sender: Sender, poster: Poster, now: Now) -> float:
        """Tell a sink that forgets what is open, one message at a time."""
        again = self._resending.next(sender, now, lambda since_ns: self._outbox.last_told(self._sink, since_ns))
        if again is None:
            return _LOOK_S
        _, message = again
        if isinstance(self._attempt(sender, poster, message, now), Retry):
            self._resending.put_off(again)
            return backoff_ns(self._failures, _LONGEST_REST_S, self._chance()) / 1e9
        return 0.0

    def _pause(self, seconds: float) -> None:
        """Until then, or until there is something to do."""
        with self._changed:
            if not (self._woken or self._stopping):
                self._changed.wait(seconds)
            self._woken = False

    def _in_trouble(self, reason: str) -> None:
        if reason != self._trouble:
            log.warning("messages wait", sink=self._sink, reason=reason)
            self._trouble = reason

    def _out_of_trouble(self) -> None:
        if self._trouble:
            log.info("messages arrive again", sink=self._sink)
            self._trouble = ""
