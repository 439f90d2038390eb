"""The way out: a POST to a service that may be slow, wrong or somebody else, bounded in time and in bytes."""

import ssl
import time
from collections.abc import Callable, Collection
from typing import Protocol

import httpx

from cyclewatch.collectors.deadline import Deadline
from cyclewatch.daemon.alerts.exchange import Request, Response

MAX_ANSWER_BYTES = 2**16
"""What is read of an answer. The rest says nothing more; a longer one is no error, the message may have arrived."""


_HEADERS = {
    "Content-Type": "application/json; charset=utf-8",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "User-Agent": "cyclewatch",
}


class PostError(Exception):
    """No answer came; one sentence that names the host and no secret."""


class ForbiddenHostError(PostError):
    """The host is not one that messages may go to, and will not be later."""


class Poster(Protocol):
    """The way to the services; tests have their own."""

    def post(self, request: Request) -> Response:
        """The answer to `request`, whatever its status; redirects are answers, and not followed.

        Raises:
            ForbiddenHostError: messages may not go there.
            PostError: no complete answer in time, or none at all.
        """
        ...


class HttpPoster:
    """`Poster` on httpx's transport, a connection for each request; not on its client, which logs addresses.

    Args:
        allowed_hosts: the only hosts that requests may go to, in lower case.
        timeout_s: time for a whole exchange, beside the resolution of the name.
        context: whom TLS trusts.
        proxy: its address, or empty. The environment's is not used, nor its certificates.
        now_ns: UTC in nanoseconds.
    """

    def __init__(
        self,
        allowed_hosts: Collection[str],
        timeout_s: float,
        context: ssl.SSLContext,
        proxy: str = "",
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._allowed_hosts = frozenset(allowed_hosts)
        self._timeout_s = timeout_s
        self._now_ns = now_ns
        self._transport = httpx.HTTPTransport(
            verify=context,
            trust_env=False,
            proxy=httpx.Proxy(proxy) if proxy else None,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def post(self, request: Request) -> Response:
        """See `Poster`."""
        url = httpx.URL(request.url)
        if url.host.lower() not in self._allowed_hosts:
            raise ForbiddenHostError(f"{url.host}: messages may not go there: add it to alerts.allowed_hosts")
        deadline = Deadline(self._timeout_s)
        late = PostError(f"{url.host}: no complete answer within {self._timeout_s:g} s (alerts.timeout_s)")
        try:
            response = self._exchange(url, request, deadline)
        except httpx.TimeoutException:
            raise late from None
        except httpx.HTTPError as error:
            # Its text is of this machine where no connection came about; later it may quote what the service sent.
            text = str(error) if isinstance(error, httpx.ConnectError) else type(error).__name__
            broken = PostError(f"{url.host}: {text or type(error).__name__}")
            raise (late if deadline.passed else broken) from None
        finally:
            deadline.cancel()
        if deadline.passed:  # without a length, an answer that is cut off looks complete
            raise late
        return response

    def _exchange(self, url: httpx.URL, request: Request, deadline: Deadline) -> Response:
        sent = httpx.Request(
            "POST",
            url,
            content=request.body,
            headers=[(name.encode(), value.encode()) for name, value in {**_HEADERS, **request.headers}.items()],
            extensions={"timeout": httpx.Timeout(self._timeout_s).as_dict(), "trace": deadline.trace},
        )
        response = self._transport.handle_request(sent)
        try:
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) >= MAX_ANSWER_BYTES:
                    break
        finally:
            response.close()
        return Response(
            response.status_code,
            {name.lower(): value for name, value in response.headers.items()},
            bytes(body[:MAX_ANSWER_BYTES]),
            self._now_ns(),
        )
