"""/metrics for Prometheus, /healthz and /readyz for probes, and the API."""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from cyclewatch.daemon.web.api.app import PREFIX


@dataclass(frozen=True)
class Health:
    """Answer to a probe; `reason` is one sentence."""

    good: bool
    reason: str


def build_app(page: Collector, healthy: Callable[[], Health], ready: Callable[[], Health], api: ASGIApp) -> Starlette:
    """The application; but for `api`, it only reads."""

    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(page), headers={"content-type": content_type})

    def probe(ask: Callable[[], Health]) -> Callable[[Request], Response]:
        def answer(_request: Request) -> Response:
            health = ask()
            return PlainTextResponse(f"{health.reason}\n", status_code=200 if health.good else 503)

        return answer

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", probe(healthy)),
            Route("/readyz", probe(ready)),
            Mount(PREFIX, api),
        ]
    )
