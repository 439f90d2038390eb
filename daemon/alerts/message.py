"""What a message says, whatever service it goes to."""

from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """What became of the incident."""

    OPENED = "opened"
    GROWN = "grown"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    ACCEPTED = "accepted"
    """It stays, and somebody has said that this is the new normal."""
    MERGED = "merged"
    """It turned out to be one with an older incident, which is told of from now on."""
    EXPECTED = "expected"
    """What an announced change has done: no alarm."""
    DIGEST = "digest"
    """Several that were not worth a message each."""
    TEST = "test"


OVER = frozenset({State.RESOLVED, State.ACCEPTED, State.MERGED})
"""What was an alarm is none any more."""

ENDS = OVER | {State.EXPECTED}
"""There is nothing more to tell, unless the incident comes back."""


class Severity(StrEnum):
    """How soon somebody should look."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Felt:
    """One quantity that users feel, such as TTFT, ITL or throughput; both values in `unit`."""

    name: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True)
class FirstCause:
    """The most likely cause, with its evidence in sentences, the strongest first."""

    kind: str
    subject: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Links:
    """Where to look; each an http address, or empty."""

    page: str = ""
    dashboard: str = ""
    runbook: str = ""


@dataclass(frozen=True)
class Message:
    """One thing to tell about one incident.

    `incident` is its number or name for people, `command` shows it. `key` is the same for all messages of an incident:
    services know by it what belongs together. An incident stays the same target, node, model and phase all its life.
    `effect` is the change of the cycle time as a ratio, `ci` its interval. `targets` counts all targets it concerns,
    the one named among them. Instants are nanoseconds of UTC, before the year 10000: `at_ns` is when `state` came
    about. `change` is what was changed right before ("SGLang 0.5.22 to 0.5.23"), `by` who acknowledged, accepted or
    announced it, and why, or the incident that it was merged into; `returns` is how often it came back; `risen_from`
    the severity that was told before, where it has risen. A digest has a line for each thing it tells in `digest`, and
    is about nothing else.

    Texts may come from anywhere and have any length: `text.py` makes them fit to be shown.
    """

    incident: str
    key: str
    state: State
    severity: Severity
    target: str
    node: str
    model: str
    phase: str
    effect: float
    ci: tuple[float, float]
    started_at_ns: int
    at_ns: int
    cause: FirstCause | None = None
    felt: tuple[Felt, ...] = ()
    next_step: str = ""
    command: str = ""
    links: Links = Links()
    targets: int = 1
    change: str = ""
    by: str = ""
    returns: int = 0
    risen_from: Severity | None = None
    digest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """What goes with a message where the service takes it: a PNG, and what can be seen on it, in less than 400 letters.

    It is made when the message is sent, and never stored.
    """

    png: bytes = field(repr=False)
    alternative: str


def trial(sink: str, node: str, at_ns: int) -> Message:
    """The message of `cyclewatch sink test`: nobody who reads it may think that something is wrong."""
    return Message(
        incident="test",
        key=f"cyclewatch-test-{node}",
        state=State.TEST,
        severity=Severity.INFO,
        target="",
        node=node,
        model="",
        phase="",
        effect=0.0,
        ci=(0.0, 0.0),
        started_at_ns=at_ns,
        at_ns=at_ns,
        cause=FirstCause("test", f"somebody ran `cyclewatch sink test {sink}`"),
        next_step="nothing to do; close it where a service keeps it open",
        command=f"cyclewatch sink test {sink}",
    )
