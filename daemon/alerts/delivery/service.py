"""Delivery as a part of the daemon: a courier for each sink, and who keeps the outbox in order."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import PAGERS, Alerts
from cyclewatch.daemon.alerts.delivery.courier import Courier, Way
from cyclewatch.daemon.alerts.outbox import Load
from cyclewatch.daemon.alerts.picture.illustrator import Illustrator
from cyclewatch.daemon.alerts.sinks import poster_for, sender_for
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.outbox import Outbox

log = structlog.get_logger(__name__)

_LOOK_S = 15.0
_TIDY_S = 3600.0
_DAY_NS = 24 * 3600 * 10**9
_KEEP_DELIVERED_NS = 30 * _DAY_NS
_KEEP_DEAD_NS = 90 * _DAY_NS


class Delivery:
    """Brings what is in the outbox to the sinks, as long as `may_send` says that this daemon is the one to do it.

    Args:
        alerts: the settings.
        engine: the database.
        may_send: whether this daemon holds the lease; asked from several threads, right before each message.
        clock: both clocks.
        boot: the boot of this machine, whose monotonic clock that is.
        metrics: where the counts go.
        environ: where secrets may be.
    """

    def __init__(
        self,
        alerts: Alerts,
        engine: Engine,
        may_send: Callable[[], bool],
        clock: Callable[[], Now],
        boot: str,
        metrics: Metrics,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._alerts = alerts
        self._outbox = Outbox(engine)
        self._may_send = may_send
        self._clock = clock
        self._metrics = metrics
        self._environ = environ
        self._stopping = threading.Event()
        for gauge in (metrics.outbox_pending, metrics.outbox_oldest, metrics.outbox_dead):
            gauge.clear()  # the sinks may have been others until now
        self._keeper = threading.Thread(target=self._keep, name="outbox", daemon=True)
        illustrator = Illustrator(engine, metrics.picture_failures.inc)
        self._couriers = [
            Courier(
                name,
                pager=sink.type in PAGERS,
                connect=partial(self._connected, name),
                outbox=self._outbox,
                give_up_s=alerts.give_up_s,
                may_send=may_send,
                clock=clock,
                boot=boot,
                count=partial(self._count, name),
                illustrate=illustrator.picture if sink.picture else None,
            )
            for name, sink in alerts.sinks.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        self._keeper.start()
        for courier in self._couriers:
            courier.start()

    def wake(self) -> None:
        """Something was put into the outbox."""
        for courier in self._couriers:
            courier.wake()

    def stop(self, timeout_s: float) -> bool:
        """End, after the attempts that are being made; False where one lasts longer than `timeout_s`."""
        self._stopping.set()
        for courier in self._couriers:
            courier.ask_to_stop()
        end_s = time.monotonic() + timeout_s
        ended = [courier.join(max(0.0, end_s - time.monotonic())) for courier in self._couriers]
        self._keeper.join(max(0.0, end_s - time.monotonic()))
        return all(ended)

    def has_ended(self) -> bool:
        """Whether nothing is being sent any more, after `stop`."""
        return all(courier.has_ended() for courier in self._couriers)

    def _count(self, name: str, outcome: str) -> None:
        self._metrics.deliveries.labels(name, outcome).inc()

    def _connected(self, name: str) -> Way:
        sender = sender_for(name, self._alerts, self._environ)
        return sender, poster_for(sender, self._alerts, self._environ)

    def _keep(self) -> None:
        tidied_s = -_TIDY_S
        while True:
            try:
                self._look()
                if self._may_send() and time.monotonic() - tidied_s >= _TIDY_S:
                    self._tidy()
                    tidied_s = time.monotonic()
            except SQLAlchemyError as error:
                log.warning("the outbox cannot be looked at", reason=reason_of(error))
            if self._stopping.wait(_LOOK_S):
                return

    def _look(self) -> None:
        """For the metrics: what waits, and for how long."""
        now_ns = self._clock().wall_ns
        loads = {load.sink: load for load in self._outbox.loads()}
        for name in self._alerts.sinks:
            load = loads.get(name, Load(name, pending=0, oldest_ns=0, dead=0))
            waited_s = max(0.0, (now_ns - load.oldest_ns) / 1e9) if load.pending else 0.0
            self._metrics.outbox_pending.labels(name).set(load.pending)
            self._metrics.outbox_oldest.labels(name).set(waited_s)
            self._metrics.outbox_dead.labels(name).set(load.dead)

    def _tidy(self) -> None:
        """What has no sink any more is given up; what is long done is deleted."""
        now_ns = self._clock().wall_ns
        given_up = self._outbox.give_up_others(self._alerts.sinks, now_ns)
        if given_up:
            log.warning("messages for sinks that are not configured any more were given up", messages=given_up)
        self._outbox.prune(list(self._alerts.sinks), now_ns - _KEEP_DELIVERED_NS, now_ns - _KEEP_DEAD_NS)
