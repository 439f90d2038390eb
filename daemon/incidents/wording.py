"""What is told of an incident: from what was decided to a message. Pure."""

from collections.abc import Sequence
from urllib.parse import quote, urlencode

from cyclewatch.config.causes import causal_graph
from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import ENDS, Felt, Links, Message, Severity, State
from cyclewatch.daemon.incidents.incident import Act, Incident
from cyclewatch.daemon.incidents.joining import kind_of, known
from cyclewatch.daemon.incidents.reconcile import Decision
from cyclewatch.daemon.incidents.telling import affected

_AROUND_MS = 30 * 60 * 1000
"""How much of the time before and after a dashboard is to show."""

ACT_TOLD = {
    State.ACKNOWLEDGED: Act.ACKNOWLEDGE,
    State.RESOLVED: Act.RESOLVE,
    State.ACCEPTED: Act.REBASE,
}
"""What a person may have done where such a message is sent."""


def worded(
    decision: Decision, number: int, settings: Incidents, at_ns: int, *, by: str = "", felt: Sequence[Felt] = ()
) -> Message:
    """The message about incident `number`. `felt` is what users feel, `by` who did or announced it, and why.

    Raises:
        ValueError: nothing is to be told.
    """
    incident, state = decision.incident, decision.tell
    if state is None:
        raise ValueError("nothing is to be told")
    over_ns = incident.ended_at_ns if state is State.RESOLVED else None
    again = incident.told is not None and incident.told.number > 1
    return Message(
        incident=str(number),
        key=incident.key,
        state=state,
        severity=Severity.INFO if state is State.EXPECTED else incident.severity,
        target=incident.target,
        node=incident.node,
        model=incident.model,
        phase=incident.phase,
        effect=incident.effect,
        ci=incident.ci,
        started_at_ns=incident.started_at_ns,
        at_ns=at_ns if over_ns is None else over_ns,
        cause=incident.cause if known(incident.cause) else None,
        felt=tuple(felt),
        next_step=_next_step(incident, state),
        command=f"cyclewatch incidents show {number}",
        links=_links(incident, settings, at_ns),
        targets=affected(incident),
        change=incident.change,
        by=by,
        returns=incident.returns if again and state is State.OPENED else 0,
        risen_from=decision.risen_from,
    )


def _next_step(incident: Incident, state: State) -> str:
    if state is State.MERGED:
        return f"go on with that one: cyclewatch incidents show {incident.merged_into}"
    return "" if state in ENDS else causal_graph().next_steps.get(kind_of(incident.cause), "")


def _links(incident: Incident, settings: Incidents, at_ns: int) -> Links:
    """Addresses of the dashboard, as Grafana takes its variables, and of the runbook of the cause."""
    dashboard = runbook = ""
    if settings.dashboard:
        until_ns = at_ns if incident.ended_at_ns is None else incident.ended_at_ns
        values = {
            "var-node": incident.node,
            "var-target": incident.target,
            "from": incident.started_at_ns // 10**6 - _AROUND_MS,
            "to": until_ns // 10**6 + _AROUND_MS,
        }
        dashboard = f"{settings.dashboard}{'&' if '?' in settings.dashboard else '?'}{urlencode(values)}"
    if settings.runbook:
        runbook = f"{settings.runbook.rstrip('/')}/{quote(kind_of(incident.cause), safe='')}"
    return Links(dashboard=dashboard, runbook=runbook)
