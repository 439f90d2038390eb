"""One incident as Markdown: what a person needs who was woken by it."""

from collections.abc import Iterator, Mapping, Sequence

from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.alerts.text import text_of
from cyclewatch.daemon.incidents.incident import ENDED, Expectation, Incident, IncidentState, Member, Note
from cyclewatch.daemon.incidents.reconcile import Decision
from cyclewatch.daemon.incidents.wording import ACT_TOLD, worded
from cyclewatch.daemon.printable import printable
from cyclewatch.daemon.store.incidents import IncidentView
from cyclewatch.daemon.time_words import utc

_TOLD = {
    IncidentState.OPEN: State.OPENED,
    IncidentState.SILENCED: State.OPENED,
    IncidentState.ACKNOWLEDGED: State.ACKNOWLEDGED,
    IncidentState.RESOLVED: State.RESOLVED,
    IncidentState.REBASED: State.ACCEPTED,
    IncidentState.MERGED: State.MERGED,
}

_SHOWN_MEMBERS = 40
"""Most members in the table; the worst are shown."""


def incident_markdown(view: IncidentView, settings: Incidents, now_ns: int) -> str:
    """What became slower, since when and why, as a message would say it now; its members, its book, what to do next."""
    incident = view.incident
    told = State.EXPECTED if incident.expectation is not None else _TOLD[incident.state]
    decision = Decision(incident, tell=told)
    by = _by(view, told)
    text = text_of(worded(decision, view.number, settings, now_ns, by=by, felt=view.felt))
    lines = [f"# incident {view.number}: {text.title}", "", *(f"- {line}" for line in text.lines)]
    lines += [*_standing(incident), *(f"- {name}: {link}" for name, link in text.links)]
    lines += ["", "## Regressions", "", *_members(incident.members, view.numbers)]
    lines += ["", "## Cause", "", *_cause(incident), "", "## Book", "", *(_note(note) for note in view.notes)]
    if not view.notes:
        lines.append("Nothing was written yet.")
    lines += ["", "## What next", "", *(f"    {command}" for command in _next(view))]
    return "\n".join(lines) + "\n"


def _by(view: IncidentView, told: State) -> str:
    """Who brought the present state about or announced it, and why; empty where the daemon did it by itself.

    Of one that was merged, the other incident.
    """
    if told is State.MERGED:
        return f"incident {view.incident.merged_into}"
    act = ACT_TOLD.get(told)
    ways: list[Note | Expectation] = [
        note for note in view.notes if act is not None and note.what in {act.value, told.value}
    ]
    if told is State.EXPECTED and view.announced is not None:
        ways.append(view.announced)
    if not ways or not ways[-1].who:
        return ""
    return f"{ways[-1].who} ({ways[-1].why})" if ways[-1].why else ways[-1].who


def _standing(incident: Incident) -> Iterator[str]:
    quiet = f", quiet since {utc(incident.quiet_since_ns)}" if incident.quiet_since_ns is not None else ""
    ended = f", ended {utc(incident.ended_at_ns)}" if incident.ended_at_ns is not None else ""
    yield f"- state: {incident.state}, {incident.severity}{quiet}{ended}"
    if incident.returns:
        yield f"- came back: {incident.returns} times"
    if incident.expectation is not None:
        yield f"- announced: expectation {incident.expectation}"
    if incident.merged_into is not None:
        yield f"- merged into: incident {incident.merged_into}"


def _members(members: Sequence[Member], numbers: Mapping[str, int]) -> Iterator[str]:
    yield "| id | node | target | rank | phase | kind | since | until | effect |"
    yield "|---:|---|---|---|---|---|---|---|---:|"
    for one in sorted(members, key=lambda member: member.effect, reverse=True)[:_SHOWN_MEMBERS]:
        accepted = "" if one.accepted_effect is None else f", {one.accepted_effect:+.1%} accepted"
        until = "open" if one.ended_at_ns is None else utc(one.ended_at_ns)
        cells = (
            str(numbers.get(one.regression, "-")),
            printable(one.node),
            printable(one.target),
            one.rank,
            one.phase,
            one.kind,
            utc(one.started_at_ns),
            until,
            f"{one.effect:+.1%}{accepted}",
        )
        yield f"| {' | '.join(cells)} |"
    if len(members) > _SHOWN_MEMBERS:
        yield f"\nand {len(members) - _SHOWN_MEMBERS} more: `--json` has all."


def _cause(incident: Incident) -> Iterator[str]:
    if incident.cause is None:
        yield "None shown yet."
        return
    yield f"{printable(incident.cause.subject)} ({incident.cause.kind})"
    yield from (f"   - {printable(proof)}" for proof in incident.cause.evidence)


def _note(note: Note) -> str:
    who = f" by {printable(note.who)}" if note.who else ""
    why = f": {printable(note.why)}" if note.why else ""
    return f"- {utc(note.at_ns)} {note.what}{who}{why}"


def _next(view: IncidentView) -> Iterator[str]:
    """Commands that help, those that only look first."""
    incident, numbers = view.incident, view.numbers
    worst = max(incident.members, key=lambda member: member.effect, default=None)
    if worst is not None and worst.regression in numbers:
        yield _command(f"regressions show {numbers[worst.regression]}", "its split and all causes")
        yield _command(f"compare regression:{numbers[worst.regression]}", "before and after, side by side")
    if incident.state is IncidentState.MERGED:
        yield _command(f"incidents show {incident.merged_into}", "what it is one with, and what can be done about it")
        return
    if incident.state in ENDED:
        yield _command(f"incidents reopen {view.number}", "it is not over")
        return
    if incident.state is not IncidentState.ACKNOWLEDGED:
        yield _command(f"incidents ack {view.number}", "somebody looks at it")
    yield _command(f"incidents resolve {view.number}", "it is over")
    yield _command(f"incidents rebase {view.number}", "it stays: the new normal")


def _command(words: str, what: str) -> str:
    return f"cyclewatch {words:<28} # {what}"
