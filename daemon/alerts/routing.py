"""Which sinks a message goes to, and when: pure."""

from collections.abc import Set as AbstractSet
from datetime import time

from cyclewatch.config.alerts import PAGERS, Alerts
from cyclewatch.config.routes import Route, zone
from cyclewatch.daemon.alerts.hours import next_at_ns, quiet_until_ns
from cyclewatch.daemon.alerts.message import ENDS, Message, Severity, State
from cyclewatch.daemon.alerts.outbox import Entry, Standing
from cyclewatch.daemon.patterns import fits

_NEVER_HELD = ENDS | {State.ACKNOWLEDGED}
"""What wakes nobody where a service knows by the key which incident is meant."""


def entries(
    message: Message, cause: str, number: int, alerts: Alerts, now_ns: int, told: AbstractSet[str] = frozenset()
) -> tuple[Entry, ...]:
    """What to put into the outbox for `message`, the incident's message `number`; one entry for a sink.

    The first route that fits decides. Sinks in `told`, which have been told of the incident before, are told how it
    goes on although severity and cause, and with them the route, may have changed.

    Args:
        message: of which incident, by its key, what is told.
        cause: kind of the incident's first cause, `unexplained` where there is none.
        number: counts the messages of an incident: the keys of its entries differ by it.
        alerts: the settings.
        now_ns: UTC in nanoseconds.
        told: sinks that have entries of this incident; see `store.outbox.told`.
    """
    route = _route(message, cause, alerts)
    found = []
    for name in (*route.sinks, *sorted(told - set(route.sinks))):
        if name not in alerts.sinks:
            continue
        not_before_ns = _not_before_ns(message, route, alerts, now_ns, pager=alerts.sinks[name].type in PAGERS)
        if alerts.sinks[name].type in PAGERS and name not in told and _is_no_page(message, route):
            continue
        standing = Standing.HELD if not_before_ns > now_ns else Standing.PENDING
        found.append(Entry(f"{message.key}:{number}:{name}", message.key, name, message, standing, not_before_ns))
    return tuple(found)


def _route(message: Message, cause: str, alerts: Alerts) -> Route:
    fitting = (
        route
        for route in alerts.routes
        if (not route.severities or message.severity.value in route.severities)
        and fits(message.target, route.target)
        and fits(cause, route.cause)
    )
    return next(fitting, Route(sinks=tuple(alerts.sinks)))


def _is_no_page(message: Message, route: Route) -> bool:
    return message.state is State.EXPECTED or message.severity.value in route.digest


def _not_before_ns(message: Message, route: Route, alerts: Alerts, now_ns: int, *, pager: bool) -> int:
    """When it may be told: now, after the quiet hours, or with the digest."""
    if message.severity is Severity.CRITICAL or (pager and message.state in _NEVER_HELD):
        return now_ns
    local = zone(alerts.time_zone)
    if message.severity.value in route.digest and not pager:
        return next_at_ns(now_ns, time.fromisoformat(alerts.digest_at), local)
    if route.quiet_from:
        begin, end = time.fromisoformat(route.quiet_from), time.fromisoformat(route.quiet_until)
        return quiet_until_ns(now_ns, begin, end, local) or now_ns
    return now_ns
