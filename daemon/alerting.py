"""Incidents and the delivery of their messages, as one part of the daemon."""

from sqlalchemy import Engine

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerts.delivery.service import Delivery
from cyclewatch.daemon.clock import Clock
from cyclewatch.daemon.incidents.service import IncidentService, holder_name
from cyclewatch.daemon.metrics import Metrics

_STOP_S = 5.0


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
        self._node = node
        self._boot = boot
        self._metrics = metrics
        self._clock = clock
        self._build(settings)

    def start(self) -> None:
        """Begin."""
        self._incidents.start()
        self._delivery.start()

    def take_settings(self, settings: Settings) -> None:
        """Go on by other settings; nothing is lost, since all that is known is in the database."""
        self.stop()
        self._build(settings)
        self.start()

    def stop(self) -> None:
        """End: what is being sent has some seconds to arrive, and another daemon may go on."""
        self._delivery.stop(_STOP_S)
        self._incidents.stop(_STOP_S)

    def _build(self, settings: Settings) -> None:
        self._incidents = IncidentService(
            settings.incidents,
            settings.alerts,
            self._engine,
            holder_name(self._node, settings.state_dir),
            self._metrics,
            self._clock,
            lambda: self._delivery.wake(),  # noqa: PLW0108 (there is no delivery yet)
        )
        self._delivery = Delivery(
            settings.alerts, self._engine, self._incidents.holds_lease, self._clock.now, self._boot, self._metrics
        )
