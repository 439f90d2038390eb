"""What becomes of one incident as its regressions grow, end and come back: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cyclewatch.config.causes import causal_graph
from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import FirstCause, Severity
from cyclewatch.daemon.incidents.incident import ENDED, Finding, Incident, IncidentState, Member
from cyclewatch.daemon.incidents.joining import known

_DOUBLED_MAX = 3
"""How often the time is doubled for which an incident must be quiet until it is over."""

_ORDER = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


@dataclass(frozen=True)
class Policy:
    """The settings, as the rules take them."""

    join_ns: int
    gather_ns: int
    resolve_after_ns: int
    critical_effect: float
    small_effect: float

    @classmethod
    def of(cls, settings: Incidents) -> "Policy":
        """The policy of these settings."""
        return cls(
            join_ns=int(settings.join_s * 1e9),
            gather_ns=int(settings.gather_s * 1e9),
            resolve_after_ns=int(settings.resolve_after_s * 1e9),
            critical_effect=settings.critical_effect,
            small_effect=settings.small_effect,
        )

    @property
    def longest_quiet_ns(self) -> int:
        """So long an incident must be quiet at most, and so long after its end it is reopened by what comes back."""
        return self.resolve_after_ns << _DOUBLED_MAX

    def quiet_ns(self, returns: int) -> int:
        """For how long all must be as fast as before, after so many returns, until the incident is over."""
        return self.resolve_after_ns << min(returns, _DOUBLED_MAX)


def order(severity: Severity) -> int:
    """The order of severities; the least is 0."""
    return _ORDER[severity]


def beyond(effect: float, accepted_effect: float | None) -> float:
    """What a slowdown adds to what was accepted of it; both are ratios of the time before any of it."""
    return effect if accepted_effect is None else (1 + effect) / (1 + accepted_effect) - 1


def has_outgrown(finding: Finding, accepted_effect: float, policy: Policy) -> bool:
    """Whether a regression is surely and clearly larger than what was accepted of it."""
    return finding.ci[0] > accepted_effect and finding.effect - accepted_effect >= policy.small_effect


def measured(incident: Incident, findings: Mapping[str, Finding], now_ns: int) -> Incident:
    """The incident with its regressions as they are now, by key; one that is gone from the store is over."""
    members = tuple(_measured(member, findings.get(member.regression), now_ns) for member in incident.members)
    return replace(incident, members=members)


def _measured(member: Member, finding: Finding | None, now_ns: int) -> Member:
    if finding is None:
        return member if member.ended_at_ns is not None else replace(member, ended_at_ns=now_ns)
    return replace(member, ended_at_ns=finding.ended_at_ns, effect=finding.effect)


def sized(incident: Incident, findings: Mapping[str, Finding], policy: Policy) -> Incident:
    """Effect and interval of the worst open member, the cause, and the severity, which only rises once it is told."""
    expected = incident.expectation is not None
    worst_first = [
        (beyond(member.effect, None if expected else member.accepted_effect), member, findings[member.regression])
        for member in incident.members
        if member.ended_at_ns is None and member.regression in findings
    ]
    if not worst_first:
        return incident
    worst_first.sort(key=lambda one: (-one[0], one[2].key))
    effect, member, worst = worst_first[0]
    base = None if expected else member.accepted_effect
    cause = _cause(incident.cause, [finding for _, _, finding in worst_first])
    found = _severity(effect, cause, policy)
    least = found if incident.told is None else incident.severity
    return replace(
        incident,
        effect=effect,
        ci=(beyond(worst.ci[0], base), beyond(worst.ci[1], base)),
        cause=cause,
        severity=max(least, found, key=order),
    )


def _cause(before: FirstCause | None, worst_first: Iterable[Finding]) -> FirstCause | None:
    """Failing hardware first; then the cause that is known already, as long as it is there; then that of the worst."""
    causes = [finding.cause for finding in worst_first if finding.cause is not None]
    explained = [cause for cause in causes if known(cause)]
    failing = [cause for cause in explained if cause.kind in causal_graph().failures]
    same = [cause for cause in explained if before is not None and cause.kind == before.kind]
    if known(before) and not explained:
        return before
    return next(iter((*failing, *same, *explained, *causes)), before)


def _severity(effect: float, cause: FirstCause | None, policy: Policy) -> Severity:
    if effect >= policy.critical_effect or (cause is not None and cause.kind in causal_graph().failures):
        return Severity.CRITICAL
    return Severity.INFO if effect < policy.small_effect else Severity.WARNING


def came_back(incident: Incident, now_ns: int) -> Incident:
    """The incident with another regression of its series after all were over, be it ended or only quiet."""
    if incident.state in ENDED:
        incident = replace(incident, state=IncidentState.OPEN, ended_at_ns=None, opened_at_ns=now_ns)
    return replace(incident, quiet_since_ns=None, returns=incident.returns + 1)


def lived_on(incident: Incident, policy: Policy, now_ns: int, *, may_end: bool) -> Incident:
    """The incident after the time that has passed: quiet, back, or, where it may be, over."""
    if incident.state in ENDED:
        return incident
    ends = [member.ended_at_ns for member in incident.members]
    last_ns = max((at_ns for at_ns in ends if at_ns is not None), default=now_ns)
    if any(at_ns is None for at_ns in ends):
        return incident if incident.quiet_since_ns is None else came_back(incident, now_ns)
    if incident.quiet_since_ns is None or incident.quiet_since_ns > now_ns:
        # What was only seen to have ended did so a while ago; reopened by hand, or where the clock was put back, it
        # begins anew.
        incident = replace(incident, quiet_since_ns=min(max(last_ns, incident.opened_at_ns), now_ns))
    quiet_since_ns = incident.quiet_since_ns
    if may_end and quiet_since_ns is not None and now_ns - quiet_since_ns >= policy.quiet_ns(incident.returns):
        return replace(incident, state=IncidentState.RESOLVED, ended_at_ns=quiet_since_ns)
    return incident
