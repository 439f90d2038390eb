"""HTTP GET from servers that may be slow, wrong or hostile: bounded in time and in bytes."""

import ssl
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from cyclewatch.collectors.deadline import Deadline


@dataclass(frozen=True)
class Response:
    """A complete answer. `content_type` is in lower case and without parameters."""

    status: int
    content_type: str
    body: bytes


class FetchError(Exception):
    """An answer was refused or did not come; one sentence that names the address, without credentials."""


class UnreachableError(FetchError):
    """Nobody listens at the address: the server is down, or has not come up yet."""


class Fetcher(Protocol):
    """The way to the servers; tests have their own."""

    def get(self, url: str, *, timeout_s: float, max_bytes: int) -> Response:
        """The answer to GET `url`, whatever its status; redirects are answers, and not followed.

        Raises:
            UnreachableError: nobody listens there.
            FetchError: no complete answer within `timeout_s`, or one longer than `max_bytes`.
        """
        ...


def public_url(url: str) -> str:
    """`url` as it may be shown: without user name, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "malformed address"
    place = parts.netloc.rpartition("@")[2]
    # urlunsplit would make `ipc:/run/x` of `ipc:///run/x`.
    return f"{parts.scheme}://{place}{parts.path}" if parts.scheme and "://" in url else f"{place}{parts.path}"


class HttpFetcher:
    """`Fetcher` on httpx. Each request has its own connection, since servers close idle ones between two readings."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx.Client] = {}

    def get(self, url: str, *, timeout_s: float, max_bytes: int) -> Response:
        """See `Fetcher`."""
        shown = public_url(url)
        deadline = Deadline(timeout_s)
        late = FetchError(
            f"{shown}: no complete answer within {timeout_s:g} s: the server hangs, "
            "or engine.timeout_s is too short for it"
        )
        try:
            response = self._get(url, shown, deadline, max_bytes)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise UnreachableError(f"{shown}: {error}: is the server running?") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise FetchError(f"{shown}: not an http address: correct the target's url") from None
        except httpx.TimeoutException:
            raise late from None
        except httpx.HTTPError as error:
            # The text of the error may quote what the server sent.
            broken = FetchError(f"{shown}: {type(error).__name__}: the answer is not complete HTTP")
            raise (late if deadline.passed else broken) from None
        finally:
            deadline.cancel()
        if deadline.passed:  # without a length, an answer that is cut off looks complete
            raise late
        return response

    def _get(self, url: str, shown: str, deadline: Deadline, max_bytes: int) -> Response:
        request_url = httpx.URL(url)
        # httpx logs addresses: the credentials go beside them.
        auth = (request_url.username, request_url.password) if request_url.userinfo else None
        with self._client(request_url.scheme).stream(
            "GET",
            request_url.copy_with(userinfo=b""),
            auth=auth,
            timeout=deadline.timeout_s,
            extensions={"trace": deadline.trace},
        ) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise FetchError(f"{shown}: the answer is compressed, which was not asked for: is a proxy in between?")
            too_long = FetchError(
                f"{shown}: the answer is longer than {max_bytes} bytes: raise engine.max_bytes if that is right"
            )
            length = response.headers.get("content-length", "")
            if length.isdecimal() and int(length) > max_bytes:
                raise too_long
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > max_bytes:
                    raise too_long
            content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            return Response(response.status_code, content_type, bytes(body))

    def _client(self, scheme: str) -> httpx.Client:
        """One client a scheme: loading certificates takes long, and most servers are asked without TLS."""
        if scheme not in self._clients:
            context = ssl.create_default_context() if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._clients[scheme] = httpx.Client(
                verify=context,
                trust_env=False,
                follow_redirects=False,
                headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "cyclewatch"},
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        return self._clients[scheme]
