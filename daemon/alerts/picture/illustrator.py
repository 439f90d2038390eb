"""The picture of a message, drawn when it is sent: what goes wrong costs the picture, and never the message."""

from collections.abc import Callable

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.daemon.alerts.message import Message, Picture
from cyclewatch.daemon.alerts.picture.curves import alternative_text, curves_of
from cyclewatch.daemon.alerts.picture.layout import shapes_of
from cyclewatch.daemon.alerts.picture.png import png_of
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.incident_timeline import IncidentTimeline, incident_timeline

log = structlog.get_logger(__name__)


class Illustrator:
    """Draws what the database has of an incident.

    Args:
        engine: the database.
        count_failure: told of each picture that could not be drawn.
    """

    def __init__(self, engine: Engine, count_failure: Callable[[], None]) -> None:
        self._engine = engine
        self._count_failure = count_failure

    def picture(self, message: Message, now_ns: int) -> Picture | None:
        """The cycle time of the message's incident until `now_ns` (UTC); None where it has none, or drawing fails."""
        try:
            with self._engine.connect() as connection:
                timeline = incident_timeline(connection, message.key, now_ns)
            return None if timeline is None else picture_of(timeline)
        except SQLAlchemyError as error:
            log.warning("a message goes without its picture", incident=message.incident, reason=reason_of(error))
        except Exception:
            log.exception("a message goes without its picture: drawing it failed", incident=message.incident)
        self._count_failure()
        return None


def picture_of(timeline: IncidentTimeline) -> Picture | None:
    """The picture of a timeline, some 10 kB; None where there is no curve to draw.

    Raises:
        ImportError: Pillow cannot be loaded.
    """
    curves = curves_of(timeline)
    if curves is None:
        return None
    return Picture(png_of(shapes_of(timeline, curves)), alternative_text(timeline, curves))
