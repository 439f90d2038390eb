"""From what is known to what is to be done about it: pure, and the same however often it is asked.

`reconcile` looks at states, not at events, as the controllers of Kubernetes do. So nothing is missed while nobody
looked, and a pass that was interrupted is made again.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cyclewatch.daemon.alerts.message import Severity, State
from cyclewatch.daemon.incidents.acting import accepted
from cyclewatch.daemon.incidents.change import Change, change_before
from cyclewatch.daemon.incidents.incident import (
    ENDED,
    Expectation,
    Finding,
    Incident,
    IncidentState,
    Member,
    Note,
    Series,
    Silence,
)
from cyclewatch.daemon.incidents.joining import Homes
from cyclewatch.daemon.incidents.lifecycle import Policy, came_back, has_outgrown, lived_on, measured, order, sized
from cyclewatch.daemon.incidents.merging import merged
from cyclewatch.daemon.incidents.telling import is_silenced, to_tell, told_of
from cyclewatch.daemon.patterns import fits

_EXPECTED_EARLY_NS = 60 * 10**9
"""How much before an announced time a slowdown may begin: where it began is known to some windows only."""


@dataclass(frozen=True)
class View:
    """What is known.

    Attributes:
        incidents: those that are not over or were lately, and those of which something is still open.
        findings: regressions that are open, or of an open member, or ended lately and are of no incident.
        silences: those that hold.
        expectations: announced changes whose time has come and has not long passed.
        changes: of the servers whose regressions are of no incident yet.
    """

    incidents: tuple[Incident, ...] = ()
    findings: tuple[Finding, ...] = ()
    silences: tuple[Silence, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Decision:
    """An incident as it is to be stored, with its new notes, and what is to be told of it, if anything."""

    incident: Incident
    notes: tuple[Note, ...] = ()
    tell: State | None = None
    risen_from: Severity | None = None
    """The severity that was told before, where it has risen."""


def reconcile(view: View, policy: Policy, now_ns: int) -> tuple[Decision, ...]:
    """What is to be stored and told; empty where all is as it should be."""
    desk = _Desk(view, policy, now_ns)
    for finding in sorted(_current(view.findings).values(), key=lambda one: (one.started_at_ns, one.key)):
        desk.place(finding)
    desk.measure()
    desk.merge()
    return tuple(filter(None, (desk.decision(key) for key in desk.incidents)))


def _current(findings: Iterable[Finding]) -> dict[Series, Finding]:
    """The regression of each series that counts: the open one before those that ended, the latest of those."""
    current: dict[Series, Finding] = {}
    for finding in sorted(findings, key=lambda one: (one.ended_at_ns is None, one.started_at_ns, one.key)):
        current[finding.series] = finding
    return current


class _Desk:
    """The incidents of one pass, by key, while regressions are put in their places."""

    def __init__(self, view: View, policy: Policy, now_ns: int) -> None:
        self._view = view
        self._policy = policy
        self._now_ns = now_ns
        self._findings = {finding.key: finding for finding in view.findings}
        self._before = {incident.key: incident for incident in view.incidents}
        self._homes = Homes(policy.join_ns)
        self._members: dict[Series, list[tuple[str, Member]]] = defaultdict(list)
        self._joined: dict[str, dict[Series, Member]] = defaultdict(dict)
        self._merged: dict[str, list[Incident]] = defaultdict(list)
        self.incidents = dict(self._before)
        for incident in view.incidents:
            if incident.state not in ENDED:
                self._homes.add(incident)
            for member in incident.members:
                self._members[member.series].append((incident.key, member))

    def place(self, finding: Finding) -> None:
        """Let a regression join an incident, or open one, unless it has its place already."""
        held = [(self.incidents[key], member) for key, member in self._members[finding.series]]
        own = [(incident, member) for incident, member in held if member.regression == finding.key]
        is_open = finding.ended_at_ns is None
        if any(incident.state not in ENDED for incident, _ in own):
            return
        if not is_open and any(member.started_at_ns >= finding.started_at_ns for _, member in held):
            return
        sizes = [member.accepted_effect for _, member in own if member.accepted_effect is not None]
        if not sizes:
            self._take_in(finding, held)
        elif not any(self._is_announced(incident) for incident, _ in own):
            base = max(sizes)
            if has_outgrown(finding, base, self._policy):
                self._outgrown(finding, base)

    def _take_in(self, finding: Finding, held: Sequence[tuple[Incident, Member]]) -> None:
        """A regression that is new, or back."""
        expectation = self._expectation(finding)
        if expectation is not None:
            self._expected(finding, expectation)
            return
        key = self._homes.of_series(finding.series)
        if key is None and finding.ended_at_ns is None:
            key = next((incident.key for incident, _ in held if self._may_reopen(incident)), None)
        key = key or self._homes.near(finding, finding.started_at_ns)
        if key is None:
            change = change_before(self._view.changes, finding.node, finding.target, finding.started_at_ns)
            key = self._opened(finding, finding.started_at_ns, change)
        self._join(key, finding)

    def _outgrown(self, finding: Finding, base: float) -> None:
        """A regression that was accepted has grown: what it has grown by is a new matter, and began just now."""
        key = self._homes.near(finding, self._now_ns)
        if key is None:
            change = change_before(self._view.changes, finding.node, finding.target, self._now_ns)
            key = self._opened(finding, self._now_ns, change)
        self._join(key, finding, base)

    def _expected(self, finding: Finding, expectation: Expectation) -> None:
        same = (key for key, incident in self.incidents.items() if incident.expectation == expectation.number)
        key = next(same, None) or self._opened(finding, finding.started_at_ns, "", expectation.number)
        self._join(key, finding, finding.effect)

    def _opened(self, finding: Finding, began_ns: int, change: str, expectation: int | None = None) -> str:
        """A new incident, without its member yet."""
        name = hashlib.sha256(f"{finding.node}|{finding.key}|{self._now_ns}".encode()).hexdigest()[:16]
        expected = expectation is not None
        incident = Incident(
            number=None,
            key=f"cyclewatch-{name}",
            state=IncidentState.REBASED if expected else IncidentState.OPEN,
            severity=Severity.INFO,
            node=finding.node,
            target=finding.target,
            model=finding.model,
            phase=finding.phase,
            cause=None,
            change=change,
            effect=finding.effect,
            ci=finding.ci,
            started_at_ns=began_ns,
            opened_at_ns=self._now_ns,
            joined_at_ns=self._now_ns,
            quiet_since_ns=None,
            ended_at_ns=self._now_ns if expected else None,
            returns=0,
            expectation=expectation,
            told=None,
            members=(),
        )
        self.incidents[incident.key] = incident
        return incident.key

    def _join(self, key: str, finding: Finding, base: float | None = None) -> None:
        """Let it be a member; `base` is what is accepted of it."""
        incident = self.incidents[key]
        series, began_ns = finding.series, finding.started_at_ns
        member = Member(finding.key, *series, began_ns, finding.ended_at_ns, finding.effect, accepted_effect=base)
        self._joined[key][series] = member
        if incident.expectation is None:
            self._homes.take(key, series, began_ns, finding.cause)
            if incident.state in ENDED or incident.quiet_since_ns is not None:
                incident = came_back(incident, self._now_ns)
        self.incidents[key] = replace(incident, joined_at_ns=self._now_ns)

    def _may_reopen(self, incident: Incident) -> bool:
        """Not one that a person ended while it lasted: what is still slower of it was accepted."""
        ended_at_ns = incident.ended_at_ns
        return (
            incident.state is IncidentState.RESOLVED
            and ended_at_ns is not None
            and self._now_ns - ended_at_ns <= self._policy.longest_quiet_ns
            and all(member.accepted_effect is None for member in incident.members)
        )

    def _expectation(self, finding: Finding) -> Expectation | None:
        fitting = (
            one
            for one in self._view.expectations
            if one.from_ns - _EXPECTED_EARLY_NS <= finding.started_at_ns < one.until_ns
            and fits(finding.target, one.target)
        )
        return next(fitting, None)

    def _is_announced(self, incident: Incident) -> bool:
        """Whether it is the effect of an announced change whose time has not passed."""
        return any(
            one.number == incident.expectation and self._now_ns < one.until_ns for one in self._view.expectations
        )

    def measure(self) -> None:
        """Let each incident have its new members, and their sizes as they are now."""
        for key, one in self.incidents.items():
            incident = measured(_with_members(one, self._joined.get(key, {})), self._findings, self._now_ns)
            announced = self._is_announced(incident)
            if incident.state not in ENDED or announced or key not in self._before:
                incident = sized(incident, self._findings, self._policy)
            self.incidents[key] = accepted(incident) if announced else incident

    def merge(self) -> None:
        """Let those go on as one that have turned out to be one."""
        for younger, older in merged(self.incidents.values(), self._policy.join_ns):
            members = {member.series: member for member in younger.members}
            one = _with_members(self.incidents[older.key], members)
            one = replace(one, joined_at_ns=self._now_ns)
            self.incidents[older.key] = sized(one, self._findings, self._policy)
            self._merged[older.key].append(younger)
            self.incidents[younger.key] = replace(
                younger, state=IncidentState.MERGED, ended_at_ns=self._now_ns, merged_into=older.number
            )

    def decision(self, key: str) -> Decision | None:
        """What becomes of an incident that was measured; None where nothing does."""
        before = self._before.get(key)
        incident = self.incidents[key]
        silenced = is_silenced(incident, self._view.silences, self._now_ns)
        # It must be told of before its end is, and what was told has an end that can be told.
        may_end = silenced == (incident.told is None)
        incident = lived_on(incident, self._policy, self._now_ns, may_end=may_end)
        incident = _with_silence(incident, silenced=silenced)
        tell = None
        if not silenced or (incident.state in ENDED and incident.expectation is None):
            tell = to_tell(incident, self._policy, self._now_ns)
        risen = incident.told is not None and order(incident.severity) > order(incident.told.severity)
        risen_from = incident.told.severity if incident.told is not None and risen else None
        taken_in = (Note(self._now_ns, "merged", why=f"incident {one.number} into this") for one in self._merged[key])
        notes = (*taken_in, *_notes(before, incident, tell, self._now_ns))
        if tell is not None:
            incident = replace(incident, told=told_of(incident, tell, self._now_ns))
        return None if incident == before else Decision(incident, notes, tell, risen_from)


def _with_members(incident: Incident, added: Mapping[Series, Member]) -> Incident:
    members = {member.series: member for member in incident.members} | dict(added)
    return replace(incident, members=tuple(members[series] for series in sorted(members)))


def _with_silence(incident: Incident, *, silenced: bool) -> Incident:
    if silenced and incident.state is IncidentState.OPEN:
        return replace(incident, state=IncidentState.SILENCED)
    if not silenced and incident.state is IncidentState.SILENCED:
        return replace(incident, state=IncidentState.OPEN)
    return incident


def _notes(before: Incident | None, after: Incident, tell: State | None, now_ns: int) -> tuple[Note, ...]:
    """What the book of an incident says of this pass."""
    notes = []
    if before is None:
        notes.append(Note(now_ns, "expected" if after.expectation is not None else "opened"))
    elif before.state is not after.state:
        why = "" if after.merged_into is None else f"into incident {after.merged_into}"
        notes.append(Note(now_ns, "returned" if before.state in ENDED else after.state.value, why=why))
    if before is not None and before.told is not None and after.severity is not before.severity:
        notes.append(Note(now_ns, "severity", why=f"{before.severity}, now {after.severity}"))
    if tell is not None:
        notes.append(Note(now_ns, "told", why=tell.value))
    return tuple(notes)
