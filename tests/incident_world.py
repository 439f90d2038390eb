"""A world without a database: regressions come and go, passes are made, and what is told is written down."""

from dataclasses import dataclass, field, replace

from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.incidents.acting import acted
from cyclewatch.daemon.incidents.change import Change
from cyclewatch.daemon.incidents.incident import ENDED, Act, Expectation, Finding, Incident, Silence
from cyclewatch.daemon.incidents.lifecycle import Policy
from cyclewatch.daemon.incidents.reconcile import Decision, View, reconcile
from made_incidents import SECOND, START_NS

POLICY = Policy.of(Incidents())
DAY_NS = 86_400 * SECOND
_HOUR_NS = 3_600 * SECOND


@dataclass
class World:
    """What the store would know, and what was told: (incident, state, when)."""

    now_ns: int = START_NS
    policy: Policy = POLICY
    findings: dict[str, Finding] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)
    silences: list[Silence] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    told: list[tuple[str, State, int]] = field(default_factory=list)

    def put(self, *findings: Finding) -> None:
        """Store regressions, or what became of them."""
        self.findings.update({finding.key: finding for finding in findings})

    def end(self, key: str) -> None:
        """A regression is over now."""
        self.findings[key] = replace(self.findings[key], ended_at_ns=self.now_ns)

    def view(self) -> View:
        """What a pass would read, by the rules of `store/incident_view.py`."""
        incidents = [
            one
            for one in self.incidents.values()
            if one.state not in ENDED
            or (one.ended_at_ns or 0) > self.now_ns - DAY_NS
            or any(member.ended_at_ns is None for member in one.members)
        ]
        of_some = {member.regression: member for one in self.incidents.values() for member in one.members}
        findings = [
            one
            for one in self.findings.values()
            if one.ended_at_ns is None
            or (one.key in of_some and of_some[one.key].ended_at_ns is None)
            or (one.key not in of_some and one.ended_at_ns > self.now_ns - _HOUR_NS)
        ]
        return View(
            tuple(incidents),
            tuple(findings),
            tuple(one for one in self.silences if one.until_ns > self.now_ns),
            tuple(one for one in self.expectations if one.until_ns > self.now_ns - DAY_NS),
            tuple(self.changes),
        )

    def look(self) -> tuple[Decision, ...]:
        """One pass."""
        plan = reconcile(self.view(), self.policy, self.now_ns)
        for decision in plan:
            incident = decision.incident
            if incident.number is None:
                incident = replace(incident, number=len(self.incidents) + 1)
            self.incidents[incident.key] = incident
            if decision.tell is not None:
                self.told.append((incident.key, decision.tell, self.now_ns))
        return plan

    def wait(self, seconds: float, step_s: float = 5.0) -> None:
        """Let time pass, with a pass every `step_s`."""
        end_ns = self.now_ns + int(seconds * SECOND)
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + int(step_s * SECOND), end_ns)
            self.look()

    def act(self, key: str, act: Act) -> None:
        """What a person does."""
        self.incidents[key] = acted(self.incidents[key], act, self.now_ns)

    @property
    def standing(self) -> list[Incident]:
        """Incidents that are not over."""
        return [one for one in self.incidents.values() if one.state not in ENDED]

    @property
    def states_told(self) -> list[State]:
        """What was told, in order."""
        return [state for _, state, _ in self.told]
