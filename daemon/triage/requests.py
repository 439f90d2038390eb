"""What people ask for, checked: who, why, for which servers and for how long."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from cyclewatch.daemon.printable import printable
from cyclewatch.daemon.time_words import duration_ns, instant_ns

_LONGEST_NS = 366 * 86_400 * 10**9
"""A silence that nobody remembers hides what it was never meant for."""

_PLACE_MAX = 80


class RequestError(ValueError):
    """What was asked for makes no sense; one sentence that names the part and the mend."""


def _shown_as_it_is(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("text", "holds characters that cannot be shown: write one line of plain text")
    return text


_ONE_LINE = AfterValidator(_shown_as_it_is)


def _text(least: int, most: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, min_length=least, max_length=most)


Name = Annotated[str, _text(1, 128), _ONE_LINE]
Why = Annotated[str, _text(0, 1000), _ONE_LINE]
Reason = Annotated[str, _text(1, 1000), _ONE_LINE]
TargetPattern = Annotated[str, _text(1, 128), _ONE_LINE]
CausePattern = Annotated[str, _text(1, 64), _ONE_LINE]
TimeWord = Annotated[str, _text(1, 64), _ONE_LINE]


class Request(BaseModel):
    """Strict: a misspelt key must never pass for a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ActRequest(Request):
    """What somebody does about an incident."""

    who: Name = Field(description="Who does it.")
    why: Why = Field(default="", description="Why; kept in the book of the incident.")


class SpanRequest(Request):
    """Something that holds for a time."""

    from_: TimeWord = Field(
        default="now",
        alias="from",
        description="When it begins: now, +30m, -10m, or ISO 8601, in UTC where no zone is given.",
    )
    for_: TimeWord = Field(alias="for", description="How long it holds: 90s, 15m, 1h, 2d or 1w; at most 366d.")
    who: Name = Field(description="Who asks for it.")
    why: Reason = Field(description="Why; shown to those who wonder.")

    def span_ns(self, now_ns: int) -> tuple[int, int]:
        """Its beginning and its end, UTC nanoseconds.

        Raises:
            RequestError: a word is no time, or the time is over, too long or too far away.
        """
        from_ns, length_ns = instant_ns(self.from_, now_ns), duration_ns(self.for_)
        if from_ns is None:
            raise RequestError(f"from: {self.from_!r} is no instant: say now, +30m, -10m or 2027-01-15T08:00Z")
        if length_ns is None or not 0 < length_ns <= _LONGEST_NS:
            raise RequestError(f"for: {self.for_!r} is no length of time up to 366d: say 90s, 15m, 1h, 2d or 1w")
        if abs(from_ns - now_ns) > _LONGEST_NS:
            raise RequestError(f"from: {self.from_!r} is more than 366 days away: has the year been mistyped?")
        if from_ns + length_ns <= now_ns:
            raise RequestError(f"from: {self.from_!r} for {self.for_} is over already: begin later or make it longer")
        return from_ns, from_ns + length_ns


class ExpectationRequest(SpanRequest):
    """An announced change: what begins on a matching target in this time is its effect, not an alarm."""

    target: TargetPattern = Field(description="Name of a target, or a pattern as of a shell: `node7:*`.")


class SilenceRequest(SpanRequest):
    """No messages about incidents that match both patterns."""

    target: TargetPattern = Field(default="*", description="Name of a target, or a pattern as of a shell.")
    cause: CausePattern = Field(
        default="*", description="Kind of the first cause, or a pattern: `gpu_*`; docs/causes.md has them."
    )


def what_is_wrong(error: ValidationError) -> str:
    """The first few faults of what was asked for, in a sentence without the values."""
    faults = [
        ": ".join([_place(fault["loc"]), f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"])
        for fault in error.errors(include_url=False, include_input=False, include_context=False)[:3]
    ]
    return "; ".join(fault.removeprefix(": ") for fault in faults)


def _place(parts: tuple[int | str, ...]) -> str:
    """Where in the question the fault is; names that are none of ours may be anything."""
    return printable(".".join(str(part) for part in parts), _PLACE_MAX)
