"""Who may use the API.

With a token, whoever says it. Without one, it can be read from this node alone: by a connection from loopback that
asks for loopback by name. The name is checked because a page of elsewhere can have its own name resolved to 127.0.0.1
(DNS rebinding), and a browser would then let it read. Nothing can be changed without a token.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from cyclewatch.daemon.loopback import is_loopback
from cyclewatch.daemon.secrets import SecretError, secret
from cyclewatch.daemon.web.api.problem import Problem

log = structlog.get_logger(__name__)

_SHORTEST_TOKEN = 16
_HOW_TO_SET_ONE = "name one in web.token (docs/api.md says how) and start the daemon again"


@dataclass(frozen=True)
class Access:
    """What the API asks of those who come. `token` is empty where none is configured.

    `usable` is false where the configured one cannot be had: then nobody is let in.
    """

    token: str = field(default="", repr=False)
    usable: bool = True

    def refusal(self, asker: HTTPConnection, method: str) -> Problem | None:
        """Why this one is not let in; None for one who is."""
        if not self.usable:
            return Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "the token in web.token cannot be used: the daemon's log says why"
            )
        if self.token:
            return None if self._says_token(asker) else _unauthorized()
        if method not in {"GET", "HEAD"}:
            return Problem(HTTPStatus.FORBIDDEN, f"nothing can be changed without a token: {_HOW_TO_SET_ONE}")
        if asker.client is None or not is_loopback(asker.client.host):
            return Problem(
                HTTPStatus.FORBIDDEN, f"without a token it can be read from this node only: {_HOW_TO_SET_ONE}"
            )
        if not is_loopback(_host(asker.headers.get("host", ""))):
            return Problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "without a token the host asked for must be 127.0.0.1, [::1] or localhost",
            )
        return None

    def _says_token(self, asker: HTTPConnection) -> bool:
        scheme, _, said = asker.headers.get("authorization", "").partition(" ")
        # In constant time: how long it takes must not tell how much of it is right.
        return scheme.lower() == "bearer" and hmac.compare_digest(said.strip().encode(), self.token.encode())


def access_with(reference: str, environ: Mapping[str, str]) -> Access:
    """The rules of access with the token that `reference`, the setting `web.token`, names; it may be empty.

    Raises:
        SecretError: the token cannot be had, or is no token; one sentence without it.
    """
    if not reference:
        return Access()
    token = secret(reference, environ)
    if len(token) < _SHORTEST_TOKEN:
        raise SecretError(
            f"{reference}: shorter than {_SHORTEST_TOKEN} characters: openssl rand -hex 32 makes a good one"
        )
    if not token.isascii() or " " in token:
        raise SecretError(f"{reference}: a token is of ASCII without spaces: openssl rand -hex 32 makes a good one")
    return Access(token)


def access_or_nobody(reference: str, environ: Mapping[str, str]) -> Access:
    """The same for the daemon, which goes on where the token cannot be had: the log says why, and nobody is let in."""
    try:
        return access_with(reference, environ)
    except SecretError as error:
        log.error("nobody can use the API", reason=f"web.token: {error}")  # noqa: TRY400 (one sentence)
        return Access(usable=False)


class Guard:
    """Lets in whom `access` lets in, before anything else is looked at."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the question on, or refuse it."""
        refusal = self._access.refusal(HTTPConnection(scope), scope["method"])
        await (refusal.response() if refusal else self._app)(scope, receive, send)


def _unauthorized() -> Problem:
    return Problem(
        HTTPStatus.UNAUTHORIZED,
        "say the token of web.token in the header Authorization: Bearer TOKEN",
        {"www-authenticate": "Bearer"},
    )


def _host(header: str) -> str:
    """The name in a Host header, without brackets and port; empty where there is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
