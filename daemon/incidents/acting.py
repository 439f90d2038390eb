"""What people do about an incident."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from cyclewatch.daemon.incidents.incident import ENDED, Act, Incident, IncidentState


class ActError(Exception):
    """It cannot be done; one sentence that says why, and what can be."""


class NotThereError(ActError):
    """There is no such thing."""


def acted(incident: Incident, act: Act, now_ns: int) -> Incident:
    """The incident after `act`.

    Raises:
        ActError: it is not in a state in which that can be done.
    """
    return _ACTS[act](incident, now_ns)


def _acknowledged(incident: Incident, _now_ns: int) -> Incident:
    _must_stand(incident)
    if incident.state is IncidentState.ACKNOWLEDGED:
        raise ActError(f"incident {incident.number} is acknowledged already")
    return replace(incident, state=IncidentState.ACKNOWLEDGED)


def _resolved(incident: Incident, now_ns: int) -> Incident:
    _must_stand(incident)
    return accepted(replace(incident, state=IncidentState.RESOLVED, ended_at_ns=now_ns))


def _rebased(incident: Incident, now_ns: int) -> Incident:
    _must_stand(incident)
    return accepted(replace(incident, state=IncidentState.REBASED, ended_at_ns=now_ns))


def _reopened(incident: Incident, now_ns: int) -> Incident:
    _must_be_itself(incident)
    if incident.state not in ENDED:
        raise ActError(f"incident {incident.number} is {incident.state}: there is nothing to reopen")
    members = tuple(replace(member, accepted_effect=None) for member in incident.members)
    return replace(
        incident,
        state=IncidentState.OPEN,
        members=members,
        opened_at_ns=now_ns,
        joined_at_ns=now_ns,
        quiet_since_ns=None if any(member.ended_at_ns is None for member in members) else now_ns,
        ended_at_ns=None,
        expectation=None,
    )


def accepted(incident: Incident) -> Incident:
    """The incident with what is open of it taken for normal: only what grows beyond that is new."""
    return replace(
        incident,
        members=tuple(
            replace(member, accepted_effect=member.effect) if member.ended_at_ns is None else member
            for member in incident.members
        ),
    )


def _must_be_itself(incident: Incident) -> None:
    if incident.state is IncidentState.MERGED:
        raise ActError(f"incident {incident.number} is one with incident {incident.merged_into}: act on that one")


def _must_stand(incident: Incident) -> None:
    _must_be_itself(incident)
    if incident.state in ENDED:
        raise ActError(f"incident {incident.number} is {incident.state}: reopen it first")


_ACTS: Mapping[Act, Callable[[Incident, int], Incident]] = {
    Act.ACKNOWLEDGE: _acknowledged,
    Act.RESOLVE: _resolved,
    Act.REBASE: _rebased,
    Act.REOPEN: _reopened,
}
