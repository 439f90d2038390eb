"""The API as an application: routes from the operations, questions checked, answers and problems as JSON."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError
from pydantic_core import to_json
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from cyclewatch.daemon.incidents.acting import ActError, NotThereError
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.triage.documents import json_of
from cyclewatch.daemon.triage.requests import Request as Asked
from cyclewatch.daemon.triage.requests import RequestError, what_is_wrong
from cyclewatch.daemon.web.api.access import LATE_S, Access, Guard, Reason
from cyclewatch.daemon.web.api.openapi import openapi_document
from cyclewatch.daemon.web.api.operations import Call, Nothing, Operation, Page
from cyclewatch.daemon.web.api.problem import Problem, json_response

PREFIX = "/api/v1"
MOST_BYTES = 16_384
"""Longest body that is read."""

_BODY_S = 10.0
_MOST_DIGITS = 18  # what databases can hold
_MOST_THREADS = 4
_MOST_WAITING = 12
"""A database that hangs must not take the connections that /metrics and /healthz need."""

_Model = TypeVar("_Model", bound=Asked)

log = structlog.get_logger(__name__)


def build_api(
    operations: Sequence[Operation[Any, Any]],
    access: Access,
    refused: Callable[[Reason], None] = lambda _: None,
    late_s: float = LATE_S,
) -> ASGIApp:
    """The API with these operations, for whom `access` lets in; `refused` and `late_s` as of `Guard`."""
    by_path: dict[str, dict[str, Operation[Any, Any]]] = defaultdict(dict)
    for one in operations:
        by_path[one.path][one.method] = one
    room = _Room()
    routes = [Route(path, _Path(methods, room).answer, methods=list(methods)) for path, methods in by_path.items()]
    app = Starlette(
        routes=[*routes, Route("/openapi.json", _description(operations))],
        exception_handlers={Problem: _problem, HTTPException: _http_problem, Exception: _our_fault},
    )
    app.router.redirect_slashes = False
    return Guard(app, access, refused, late_s)


class _Room:
    """How many questions are answered at once, and how many may wait; a context manager.

    Raises:
        Problem: too many wait.
    """

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(_MOST_THREADS)
        self._inside = 0

    async def __aenter__(self) -> None:
        if self._inside >= _MOST_THREADS + _MOST_WAITING:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many questions at once: ask again in a second",
                {"retry-after": "1"},
            )
        self._inside += 1
        try:
            await self._threads.acquire()
        except BaseException:
            self._inside -= 1
            raise

    async def __aexit__(self, *_error: object) -> None:
        self._inside -= 1
        self._threads.release()


class _Path:
    """One path with its methods."""

    def __init__(self, operations: Mapping[str, Operation[Any, Any]], room: _Room) -> None:
        self._operations = operations
        self._room = room

    async def answer(self, request: Request) -> Response:
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        number = _number(request.path_params.get("number"))
        query = _checked(operation.query, dict(request.query_params))
        body = Nothing() if operation.body is Nothing else _checked(operation.body, await _body(request))
        async with self._room:
            return await run_in_threadpool(_answered, operation, Call(number, query, body))


def _answered(operation: Operation[Any, Any], call: Call[Any, Any]) -> Response:
    """What the operation answers.

    Raises:
        Problem: it cannot be done.
    """
    try:
        documents = operation.run(call)
    except NotThereError as error:
        raise Problem(HTTPStatus.NOT_FOUND, str(error)) from None
    except ActError as error:
        raise Problem(HTTPStatus.CONFLICT, str(error)) from None
    except RequestError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
    except SQLAlchemyError as error:
        log.warning("the API cannot answer: the database does not", reason=reason_of(error))
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer: ask again later", {"retry-after": "10"}
        ) from None
    return json_response(json_of(documents), operation.status, _next_page(call.query, documents))


def _number(text: str | None) -> int:
    """The number in a path; 0 where there is none."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise Problem(HTTPStatus.NOT_FOUND, "what stands there for a number is none")
    return int(text)


def _checked(model: type[_Model], values: Mapping[str, str] | bytes) -> _Model:
    try:
        return model.model_validate_json(values) if isinstance(values, bytes) else model.model_validate(values)
    except ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, what_is_wrong(error)) from None


async def _body(request: Request) -> bytes:
    """The body, of JSON and not too long. A page of elsewhere cannot send that type without being asked first."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be JSON: say Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BYTES:
                    raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {MOST_BYTES} bytes")
    except TimeoutError:
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, f"the body took longer than {_BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise Problem(HTTPStatus.BAD_REQUEST, "the connection ended within the body") from None
    return bytes(body)


def _next_page(query: Asked, documents: Any) -> dict[str, str]:  # noqa: ANN401 (one document, or many)
    """The header Link to what follows, where something may."""
    if not isinstance(query, Page) or len(documents) < query.limit:
        return {}
    following = query.model_copy(update={"before": documents[-1].id})
    words = "&".join(f"{name}={str(value).lower()}" for name, value in following.model_dump().items())
    return {"link": f'<?{words}>; rel="next"'}


def _description(operations: Iterable[Operation[Any, Any]]) -> Any:  # noqa: ANN401 (what Route takes)
    def openapi(_request: Request) -> Response:
        return json_response(to_json(openapi_document(operations, PREFIX)), HTTPStatus.OK)

    return openapi


def _problem(_request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()


def _http_problem(_request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: an unknown path, a method that is not for it."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = {
        HTTPStatus.NOT_FOUND: f"there is nothing at this path; {PREFIX}/openapi.json lists what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take that method",
    }.get(status, error.detail)
    return Problem(status, detail, error.headers).response()


def _our_fault(_request: Request, _error: Exception) -> Response:
    """An error of cyclewatch; uvicorn logs it with its traceback."""
    return Problem(
        HTTPStatus.INTERNAL_SERVER_ERROR, "this is a fault of cyclewatch: the daemon's log has it, please report it"
    ).response()
