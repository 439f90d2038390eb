"""What can be asked of the API, as data: routes and openapi.json are made from it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from pydantic import ConfigDict, Field

from cyclewatch.daemon.triage.documents import Document
from cyclewatch.daemon.triage.requests import Name, Request

Query = TypeVar("Query", bound=Request)
Body = TypeVar("Body", bound=Request)

LARGEST_NUMBER = 2**63 - 1
"""What databases can hold."""


class Nothing(Request):
    """No parameters, or no body."""


class Page(Request):
    """Which part of a list."""

    model_config = ConfigDict(strict=False)  # the words of an address are texts

    limit: int = Field(default=100, ge=1, le=200, description="Most entries of the answer.")
    before: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] | None = Field(
        default=None, description="Only what comes after the entry with this id; the header Link has the next page."
    )


class Signature(Request):
    """Who does it, where there is no body to say it."""

    who: Name = Field(description="Who does it.")


@dataclass(frozen=True)
class Call(Generic[Query, Body]):
    """One question, checked. `number` is 0 where the path has none."""

    number: int
    query: Query
    body: Body


@dataclass(frozen=True)
class Operation(Generic[Query, Body]):
    """One thing that can be asked, in words the docstring of `run`, which may block.

    `run` answers with an `answer`, or with a list of them where it is `many`. `query` and `body` are what checks the
    parameters and the body; `status` is that of a good answer.
    """

    method: str
    path: str
    run: Callable[[Call[Query, Body]], Document | Sequence[Document]]
    answer: type[Document]
    query: type[Query]
    body: type[Body]
    many: bool = False
    status: int = 200
