"""What is shown of regressions and incidents, for programs: fields are added, never renamed.

Every document is made by `model_validate` from the dataclass it shows. Instants are ISO 8601 in UTC, to the second.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import to_json

from cyclewatch.daemon.alerts.message import Severity
from cyclewatch.daemon.incidents.incident import IncidentState
from cyclewatch.daemon.store.incidents import IncidentView
from cyclewatch.daemon.time_words import utc

Instant = Annotated[
    int, PlainSerializer(utc, return_type=str), WithJsonSchema({"type": "string", "format": "date-time"})
]


class Document(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)


def json_of(documents: Document | Sequence[Document], indent: int | None = None) -> bytes:
    """One document, or a list of them, as JSON; a figure that is none is null."""
    return to_json(documents, indent=indent, by_alias=True, inf_nan_mode="null")


class RegressionDocument(Document):
    """A lasting change of one phase of one rank."""

    id: int
    node: str
    target: str
    rank: str
    phase: str
    state: str
    """open, resolved, or noted (an improvement)."""
    direction: str
    """slower or faster."""
    kind: str
    """level, tail, drift or deployment."""
    started_at: Instant = Field(validation_alias="started_at_ns")
    detected_at: Instant = Field(validation_alias="detected_at_ns")
    ended_at: Instant | None = Field(validation_alias="ended_at_ns")
    effect: float
    """Change of the cycle time, as a ratio."""
    ci: tuple[float, float]
    """Its 95 % interval."""
    probability: float
    """That it is no noise."""
    causes: list[dict[str, Any]]
    """The most likely first: rank, kind, subject, device, score, share, status, evidence."""


class RegressionDetail(RegressionDocument):
    """One regression with where the time went."""

    split: list[dict[str, Any]]
    """Parts of the mean cycle: part, before_us, after_us, delta_us."""
    physical_bound: dict[str, Any] | None
    """The mean cycle against the least that it takes on its GPU: before, after, and the parts of what is above."""


class CauseDocument(Document):
    """The most likely cause."""

    kind: str
    subject: str
    evidence: tuple[str, ...]
    """In sentences, the strongest first."""


class IncidentDocument(Document):
    """Regressions of one cause and time."""

    id: int = Field(validation_alias="number")
    key: str
    """Stable and unique over all nodes: services know by it what belongs together."""
    state: IncidentState
    severity: Severity
    node: str
    target: str
    model: str
    phase: str
    targets: int
    """How many servers it concerns, the one named among them."""
    effect: float
    """Change of the cycle time of its worst member, as a ratio."""
    ci: tuple[float, float]
    cause: CauseDocument | None
    change: str
    """What was changed right before it began, or empty."""
    started_at: Instant = Field(validation_alias="started_at_ns")
    opened_at: Instant = Field(validation_alias="opened_at_ns")
    quiet_since: Instant | None = Field(validation_alias="quiet_since_ns")
    """Since when nothing of it is slower any more."""
    ended_at: Instant | None = Field(validation_alias="ended_at_ns")
    returns: int
    """How often it came back."""
    expectation: int | None
    """The announced change whose effect it is."""
    merged_into: int | None
    """The older incident that it turned out to be one with; that one has its regressions too."""


class MemberDocument(Document):
    """One regression of an incident."""

    id: int | None
    """Its number in `cyclewatch regressions show` and /api/v1/regressions; null where it is no longer kept."""
    node: str
    target: str
    rank: str
    phase: str
    kind: str
    started_at: Instant = Field(validation_alias="started_at_ns")
    ended_at: Instant | None = Field(validation_alias="ended_at_ns")
    effect: float
    accepted_effect: float | None
    """The size that somebody has accepted of it."""


class NoteDocument(Document):
    """One line in the book of an incident."""

    at: Instant = Field(validation_alias="at_ns")
    what: str
    who: str
    """Empty where the daemon did it."""
    why: str


class FeltDocument(Document):
    """One quantity that users feel; both values are in `unit`."""

    name: str
    before: float
    after: float
    unit: str


class IncidentDetail(IncidentDocument):
    """One incident with its members, its book, and what users feel."""

    felt: list[FeltDocument]
    members: list[MemberDocument]
    notes: list[NoteDocument]
    """The oldest first."""


def incident_detail(view: IncidentView) -> IncidentDetail:
    """One incident with all that is shown of it."""
    incident = view.incident
    members = [{**asdict(member), "id": view.numbers.get(member.regression)} for member in incident.members]
    return IncidentDetail.model_validate(
        {
            **asdict(incident),
            "targets": incident.targets,
            "felt": view.felt,
            "members": members,
            "notes": view.notes,
        }
    )


class SpanDocument(Document):
    """Something that holds for a time."""

    id: int = Field(validation_alias="number")
    target: str
    """A name, or a pattern as of a shell."""
    from_: Instant = Field(validation_alias="from_ns", serialization_alias="from")
    until: Instant = Field(validation_alias="until_ns")
    who: str
    why: str


class ExpectationDocument(SpanDocument):
    """An announced change."""


class SilenceDocument(SpanDocument):
    """No messages about incidents that match both patterns."""

    cause: str
    """A kind, or a pattern as of a shell."""
