"""When somebody is told of an incident, and of what: pure."""

from collections.abc import Iterable

from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.incidents.incident import ENDED, Incident, IncidentState, Silence, Told
from cyclewatch.daemon.incidents.joining import UNEXPLAINED, kind_of, known
from cyclewatch.daemon.incidents.lifecycle import Policy, order
from cyclewatch.daemon.patterns import fits

_GATHER_MAX = 4
"""How many times the gathering may be prolonged by what still comes in."""

_MANY_MORE = 4
"""How many times as many targets make it worth a message that more are concerned."""


_ENDS = {
    IncidentState.RESOLVED: State.RESOLVED,
    IncidentState.REBASED: State.ACCEPTED,
    IncidentState.MERGED: State.MERGED,
}


def affected(incident: Incident) -> int:
    """How many servers are slower now; all that ever were, where none is any more."""
    slower = [member for member in incident.members if member.ended_at_ns is None] or incident.members
    return len({(member.node, member.target) for member in slower})


def is_silenced(incident: Incident, silences: Iterable[Silence], now_ns: int) -> bool:
    """Whether each of its servers that is slower (each that was, where none is) is silenced for this cause."""
    slower = [member for member in incident.members if member.ended_at_ns is None] or incident.members
    patterns = [
        silence.target
        for silence in silences
        if silence.from_ns <= now_ns < silence.until_ns and fits(kind_of(incident.cause), silence.cause)
    ]
    targets = {member.target for member in slower}
    return bool(patterns) and all(any(fits(target, one) for one in patterns) for target in targets)


def to_tell(incident: Incident, policy: Policy, now_ns: int) -> State | None:
    """What is to be told of an incident that is not silenced, other than what was told last."""
    told, ended = incident.told, incident.state in ENDED
    if incident.expectation is not None:
        fresh = told is None or _has_grown(incident, told)
        return State.EXPECTED if fresh and _gathered(incident, policy, now_ns) else None
    if told is None or told.state in ENDED:
        return State.OPENED if not ended and _gathered(incident, policy, now_ns) else None
    if ended:
        return _ENDS[incident.state]
    if told.state is not incident.state:
        return State.ACKNOWLEDGED if incident.state is IncidentState.ACKNOWLEDGED else State.OPENED
    if _has_grown(incident, told) and _gathered(incident, policy, now_ns):
        return State.GROWN
    return None


def told_of(incident: Incident, state: State, now_ns: int) -> Told:
    """What is known to be told after a message of `state`."""
    before = incident.told
    left = {
        State.OPENED: IncidentState.OPEN,
        State.GROWN: before.state if before is not None else IncidentState.OPEN,
        State.ACKNOWLEDGED: IncidentState.ACKNOWLEDGED,
        State.RESOLVED: IncidentState.RESOLVED,
        State.MERGED: IncidentState.MERGED,
    }.get(state, IncidentState.REBASED)
    return Told(
        number=1 if before is None else before.number + 1,
        at_ns=now_ns,
        state=left,
        severity=incident.severity,
        effect=incident.effect,
        targets=max(affected(incident), before.targets if before is not None else 0),
        cause=kind_of(incident.cause),
    )


def _gathered(incident: Incident, policy: Policy, now_ns: int) -> bool:
    """Whether no more is likely to come in at once: 200 servers that become slower together are one message."""
    since_ns = max(incident.opened_at_ns, incident.told.at_ns if incident.told is not None else 0)
    return _has_passed(policy.gather_ns, incident.joined_at_ns, now_ns) or _has_passed(
        _GATHER_MAX * policy.gather_ns, since_ns, now_ns
    )


def _has_passed(duration_ns: int, since_ns: int, now_ns: int) -> bool:
    """Whether so long ago; true of what is in the future, since the clock has been put back."""
    return not 0 <= now_ns - since_ns < duration_ns


def _has_grown(incident: Incident, told: Told) -> bool:
    """Whether it is another matter than was told: more severe, explained at last, or of many more servers.

    Each of them happens a few times at most, so that a life of an incident has few messages.
    """
    return (
        order(incident.severity) > order(told.severity)
        or (told.cause == UNEXPLAINED and known(incident.cause))
        or affected(incident) >= _MANY_MORE * told.targets
    )
