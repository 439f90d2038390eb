"""One message to one sink, and what came of it."""

from cyclewatch.daemon.alerts.exchange import Outcome, Refused, Retry
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.post import ForbiddenHostError, Poster, PostError
from cyclewatch.daemon.alerts.senders.sender import Sender


def deliver(sender: Sender, message: Message, poster: Poster, now_ns: int) -> Outcome:
    """Send `message` once. What did not arrive for sure is to be sent again: at least once, with the same key."""
    try:
        response = poster.post(sender.payload(message, now_ns))
    except ForbiddenHostError as error:
        return Refused(str(error))
    except PostError as error:
        return Retry(None, str(error))
    return sender.outcome(response)
