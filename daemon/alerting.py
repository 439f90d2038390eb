"""Incidents and the delivery of their messages, as one part of the daemon."""

from sqlalchemy import Engine

from cyclewatch.config.alerts import Alerts
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerts.delivery.service import Delivery
from cyclewatch.daemon.clock import Clock
from cyclewatch.daemon.incidents.service import IncidentService, holder_name
from cyclewatch.daemon.metrics import Metrics

_STOP_S = 5.0
"""For how long the rest of the daemon waits for what is being sent; it may take longer, `alerts.timeout_s` and more."""


class Alerting:
    """Forms incidents and tells of them, in threads of their own.

    Args:
        settings: of the daemon.
        engine: the database.
        node: name of this node.
        boot: the boot of this machine, whose monotonic clock that is.
        metrics: where the counts go.
        clock: when things happen.
    """

    def __init__(
        self, settings: Settings, engine: Engine, node: str, boot: str, metrics: Metrics, clock: Clock
    ) -> None:
        self._engine = engine
        self._boot = boot
        self._metrics = metrics
        self._clock = clock
        self._incidents = IncidentService(
            settings.incidents,
            settings.alerts,
            engine,
            holder_name(node, settings.state_dir),
            metrics,
            clock,
            lambda: self._delivery.wake(),  # noqa: PLW0108 (there is no delivery yet)
        )
        self._delivery = self._built(settings.alerts)
        self._leaving: list[Delivery] = []
        """Earlier deliveries, of which something may still arrive."""

    def start(self) -> None:
        """Begin."""
        self._incidents.start()
        self._delivery.start()

    def take_settings(self, settings: Settings) -> None:
        """Go on by other settings; nothing is lost, since all that is known is in the database.

        What is being sent when this is asked may still arrive. Until that is over nothing else is sent: it would be
        sent twice, or what ends an incident would arrive before it.
        """
        self._incidents.take_settings(settings.incidents, settings.alerts)
        self._leaving = [one for one in self._leaving if not one.has_ended()]
        if not self._delivery.stop(_STOP_S):
            self._leaving.append(self._delivery)
        self._delivery = self._built(settings.alerts)
        self._delivery.start()

    def stop(self) -> None:
        """End: what is being sent has some seconds to arrive, and another daemon may go on."""
        self._delivery.stop(_STOP_S)
        self._incidents.stop(_STOP_S)

    def _built(self, alerts: Alerts) -> Delivery:
        return Delivery(alerts, self._engine, self._may_send, self._clock.now, self._boot, self._metrics)

    def _may_send(self) -> bool:
        return self._incidents.holds_lease() and all(one.has_ended() for one in self._leaving)
