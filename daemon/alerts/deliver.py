"""One message to one sink, and what came of it."""

from cyclewatch.daemon.alerts.exchange import Outcome, Refused, Retry
from cyclewatch.daemon.alerts.message import Message, Picture
from cyclewatch.daemon.alerts.post import ForbiddenHostError, Poster, PostError
from cyclewatch.daemon.alerts.senders.sender import Illustrated, Sender


def deliver(sender: Sender, message: Message, poster: Poster, now_ns: int, picture: Picture | None = None) -> Outcome:
    """Send `message` once, with `picture` where the sender takes one.

    What did not arrive for sure is to be sent again: at least once, with the same key.
    """
    if picture is not None and isinstance(sender, Illustrated):
        request = sender.illustrated(message, picture, now_ns)
    else:
        request = sender.payload(message, now_ns)
    try:
        response = poster.post(request)
    except ForbiddenHostError as error:
        return Refused(str(error))
    except PostError as error:
        return Retry(None, str(error))
    return sender.outcome(response)
