"""Who may use the API.

With a token, whoever says it. Without one, it can be read from this node alone: by a connection from loopback that
asks for loopback by name. The name is checked because a page of elsewhere can have its own name resolved to 127.0.0.1
(DNS rebinding), and a browser would then let it read. Nothing can be changed without a token.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal
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
LATE_S = 1.0
"""How late an answer to a wrong token is."""

_MOST_LATE = 4
"""Answers that are late at once: they hold connections, which /metrics and others need too."""

Reason = Literal["no_token", "wrong_token", "act", "address", "host", "unusable"]


@dataclass(frozen=True)
class Refusal:
    """Why somebody is not let in: in a word for the counter, and as the answer."""

    reason: Reason
    problem: Problem


@dataclass(frozen=True)
class Access:
    """What the API asks of those who come. `token` is empty where none is configured.

    `usable` is false where the configured one cannot be had: then nobody is let in.
    """

    token: str = field(default="", repr=False)
    usable: bool = True

    def refusal(self, asker: HTTPConnection, method: str) -> Refusal | None:
        """Why this one is not let in; None for one who is."""
        if not self.usable:
            sentence = "the token in web.token cannot be used: the daemon's log says why"
            return Refusal("unusable", Problem(HTTPStatus.SERVICE_UNAVAILABLE, sentence))
        if self.token:
            reason: Reason = "wrong_token" if "authorization" in asker.headers else "no_token"
            return None if self._says_token(asker) else Refusal(reason, _unauthorized())
        if method not in {"GET", "HEAD"}:
            sentence = f"nothing can be changed without a token: {_HOW_TO_SET_ONE}"
            return Refusal("act", Problem(HTTPStatus.FORBIDDEN, sentence))
        if asker.client is None or not is_loopback(asker.client.host):
            sentence = f"without a token it can be read from this node only: {_HOW_TO_SET_ONE}"
            return Refusal("address", Problem(HTTPStatus.FORBIDDEN, sentence))
        if not is_loopback(_host(asker.headers.get("host", ""))):
            sentence = "without a token the host asked for must be 127.0.0.1, [::1] or localhost"
            return Refusal("host", Problem(HTTPStatus.MISDIRECTED_REQUEST, sentence))
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
    """Lets in whom `access` lets in, before anything else is looked at.

    A wrong token is answered late, so that a script that has an old one does not ask all the time. The right one is let
    in at once: whatever others say, they lock nobody out.

    Args:
        app: what is guarded.
        access: who is let in.
        refused: told the reason of each refusal.
        late_s: how late a wrong token is answered.
    """

    def __init__(self, app: ASGIApp, access: Access, refused: Callable[[Reason], None], late_s: float) -> None:
        self._app = app
        self._access = access
        self._refused = refused
        self._late_s = late_s
        self._late = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the question on, or refuse it."""
        refusal = self._access.refusal(HTTPConnection(scope), scope["method"])
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._refused(refusal.reason)
        if refusal.reason == "wrong_token" and self._late < _MOST_LATE:
            self._late += 1
            try:
                await asyncio.sleep(self._late_s)
            finally:
                self._late -= 1
        await refusal.problem.response()(scope, receive, send)


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
