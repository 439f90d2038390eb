"""What flows between the store, the rules of incidents, and those who act on them. Instants are UTC nanoseconds."""

from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.daemon.alerts.message import FirstCause, Severity


class IncidentState(StrEnum):
    """Where an incident stands."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    SILENCED = "silenced"
    RESOLVED = "resolved"
    """It went away."""
    REBASED = "rebased"
    """It stays, and was expected or accepted: the new normal."""
    MERGED = "merged"
    """It turned out to be one with an older incident, which goes on."""


ENDED = frozenset({IncidentState.RESOLVED, IncidentState.REBASED, IncidentState.MERGED})


Series = tuple[str, str, str, str, str]
"""What a regression is of: node, target, rank, phase and kind."""


@dataclass(frozen=True)
class Finding:
    """A stored regression, and the server it is of. `number` is that of `cyclewatch regressions show`."""

    key: str
    number: int
    node: str
    target: str
    model: str
    rank: str
    phase: str
    kind: str
    started_at_ns: int
    ended_at_ns: int | None
    effect: float
    ci: tuple[float, float]
    cause: FirstCause | None

    @property
    def series(self) -> Series:
        """What it is of."""
        return self.node, self.target, self.rank, self.phase, self.kind


@dataclass(frozen=True)
class Member:
    """A series of an incident, with its latest regression.

    `accepted_effect` is the size that somebody has accepted of that regression, or is None: what counts is the rest.
    """

    regression: str
    node: str
    target: str
    rank: str
    phase: str
    kind: str
    started_at_ns: int
    ended_at_ns: int | None
    effect: float
    accepted_effect: float | None = None

    @property
    def series(self) -> Series:
        """What it is of."""
        return self.node, self.target, self.rank, self.phase, self.kind


@dataclass(frozen=True)
class Told:
    """What the last message about an incident said; `number` counts them."""

    number: int
    at_ns: int
    state: IncidentState
    severity: Severity
    effect: float
    targets: int
    cause: str


@dataclass(frozen=True)
class Incident:
    """Regressions of one cause and time.

    `number` is the one people use, None before it is stored; `key` is stable and unique over all nodes. Node, target,
    model and phase are those of its first member and stay; effect and interval are those of the worst, beyond what was
    accepted of it. `change` is what was changed right before it began ("SGLang 0.5.22 to 0.5.23"), or empty.
    `opened_at_ns` is when it opened, or came back after it had ended; `joined_at_ns` when a member came last;
    `quiet_since_ns` since when no member is open; `returns` is how often it came back from that. `merged_into` is the
    number of the incident that has its members too, where it was merged.
    """

    number: int | None
    key: str
    state: IncidentState
    severity: Severity
    node: str
    target: str
    model: str
    phase: str
    cause: FirstCause | None
    change: str
    effect: float
    ci: tuple[float, float]
    started_at_ns: int
    opened_at_ns: int
    joined_at_ns: int
    quiet_since_ns: int | None
    ended_at_ns: int | None
    returns: int
    expectation: int | None
    told: Told | None
    members: tuple[Member, ...]
    merged_into: int | None = None

    @property
    def targets(self) -> int:
        """How many servers it concerns, over all nodes."""
        return len({(member.node, member.target) for member in self.members})


@dataclass(frozen=True)
class Silence:
    """No messages about incidents that match both patterns (as of a shell), for a time."""

    number: int
    target: str
    cause: str
    from_ns: int
    until_ns: int
    who: str
    why: str


@dataclass(frozen=True)
class Expectation:
    """An announced change: what begins on a matching target in this time is its effect."""

    number: int
    target: str
    from_ns: int
    until_ns: int
    who: str
    why: str


class Act(StrEnum):
    """What a person can do about an incident."""

    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"
    REBASE = "rebase"
    REOPEN = "reopen"


@dataclass(frozen=True)
class Note:
    """One line in the book of an incident; `who` is empty where the daemon did it."""

    at_ns: int
    what: str
    who: str = ""
    why: str = ""
