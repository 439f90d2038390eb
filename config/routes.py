"""The settings of routes: which message goes to which sinks, and which can wait until somebody is awake."""

from datetime import UTC, tzinfo
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cyclewatch.config.section import Section

TimeOfDay = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


def zone(name: str) -> tzinfo:
    """The time zone of that name in the IANA database; `UTC` needs none.

    Raises:
        ValueError: the database of this machine has none of that name.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, LookupError, ValueError) as error:  # a folder's name and one that is too long are an OSError
        raise ValueError(name) from error


def _is_zone(name: str) -> str:
    try:
        zone(name)
    except ValueError:
        raise PydanticCustomError(
            "zone",
            "no time zone of that name on this machine: write one such as Europe/Berlin, or install its package tzdata",
        ) from None
    return name


TimeZone = Annotated[str, Field(max_length=64), AfterValidator(_is_zone)]


class Route(Section):
    """Which messages go where. The first route that fits a message decides; where none does, all sinks are told."""

    severities: tuple[Literal["critical", "warning", "info"], ...] = Field(
        default=(), description="Severities it is for: critical, warning, info; empty for all."
    )
    target: str = Field(default="*", max_length=128, description="Targets it is for, as a pattern of a shell.")
    cause: str = Field(
        default="*",
        max_length=128,
        description="Kinds of the first cause it is for, as a pattern; that of what nothing explains is unexplained.",
    )
    sinks: tuple[str, ...] = Field(default=(), description="Names of the sinks that are told; empty to tell nobody.")
    digest: tuple[Literal["warning", "info"], ...] = Field(
        default=("info",), description="Severities that wait for the daily digest."
    )
    quiet_from: TimeOfDay | Literal[""] = Field(
        default="", description="When quiet hours begin, as 22:00; in them only what is critical is told at once."
    )
    quiet_until: TimeOfDay | Literal[""] = Field(
        default="", description="When they end, as 07:00; what was held is told together then."
    )

    @field_validator("cause")
    @classmethod
    def _is_no_empty_text(cls, cause: str) -> str:
        if not cause:
            raise PydanticCustomError("route", 'an empty text fits no cause: write "unexplained" for what has none')
        return cause

    @model_validator(mode="after")
    def _has_both_ends(self) -> Self:
        if bool(self.quiet_from) != bool(self.quiet_until) or (self.quiet_from and self.quiet_from == self.quiet_until):
            raise PydanticCustomError("route", "quiet hours need quiet_from and quiet_until, two different times")
        return self
