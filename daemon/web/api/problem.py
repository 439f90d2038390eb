"""Answers of the API, good and bad."""

from collections.abc import Mapping
from http import HTTPStatus

from pydantic_core import to_json
from starlette.responses import Response

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Problem(Exception):  # noqa: N818 (the word of RFC 9457)
    """What was asked for cannot be had; `detail` is one sentence with the mend."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """It as `application/problem+json` (RFC 9457)."""
        document = {"type": "about:blank", "title": self.status.phrase, "status": self.status, "detail": self.detail}
        return json_response(to_json(document), self.status, self.headers, "application/problem+json")


def json_response(
    content: bytes, status: int, headers: Mapping[str, str] | None = None, media_type: str = "application/json"
) -> Response:
    """JSON that is neither kept on the way nor taken for anything else."""
    return Response(content, status, {**_HEADERS, **(headers or {})}, media_type)
