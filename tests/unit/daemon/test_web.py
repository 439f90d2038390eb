import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette

from cyclewatch.config.web import Web
from cyclewatch.daemon.web.app import Health, build_app
from cyclewatch.daemon.web.server import WebError, WebServer

GOOD, BAD = Health(good=True, reason="ok"), Health(good=False, reason="the pipeline has not turned for 60 s")


def app(healthy: Health = GOOD, ready: Health = GOOD) -> Starlette:
    registry = CollectorRegistry()
    Gauge("cyclewatch_x", "A gauge.", registry=registry).set(3)
    return build_app(registry, lambda: healthy, lambda: ready, Starlette())


def get(application: Starlette, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    """The answer without a network in between."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://daemon") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(ask())


def test_metrics_are_in_the_text_format() -> None:
    answer = get(app(), "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "cyclewatch_x 3.0\n" in answer.text


def test_metrics_are_in_openmetrics_where_that_is_asked_for() -> None:
    """As Prometheus does."""
    answer = get(app(), "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize(("health", "status"), [(GOOD, 200), (BAD, 503)])
def test_probes_answer_with_a_status_and_a_sentence(path: str, health: Health, status: int) -> None:
    """200 or 503: what Kubernetes and load balancers look at."""
    answer = get(app(healthy=health, ready=health), path)
    assert (answer.status_code, answer.text) == (status, f"{health.reason}\n")


def test_the_probes_are_two() -> None:
    """Alive but not ready is no reason to be killed."""
    application = app(healthy=GOOD, ready=BAD)
    assert get(application, "/healthz").status_code == 200
    assert get(application, "/readyz").status_code == 503


def test_there_is_nothing_else_and_nothing_can_be_changed() -> None:
    assert get(app(), "/").status_code == 404
    assert get(app(), "/../etc/passwd").status_code == 404
    assert get(app(), "/metrics", method="POST").status_code == 405


@contextmanager
def serving(settings: Web, application: Starlette) -> Iterator[WebServer]:
    server = WebServer(settings, application)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_port_zero_takes_a_free_one_and_says_which() -> None:
    with serving(Web(port=0), app()) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert not server.url.endswith(":0")
        assert httpx.get(f"{server.url}/healthz").text == "ok\n"


def test_after_stop_the_port_is_free_and_the_thread_gone() -> None:
    """Within the same second, and again."""
    threads = threading.active_count()
    with serving(Web(port=0), app()) as server:
        port = int(server.url.rpartition(":")[2])
        httpx.get(f"{server.url}/healthz")
    deadline = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)  # the workers that answered are told to end, not waited for
    assert threading.active_count() <= threads  # those of other tests may have ended meanwhile
    with serving(Web(port=port), app()) as server:
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_port_that_is_taken_is_one_sentence_with_its_keys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(WebError) as caught:
            WebServer(Web(port=port), app()).start()
    assert str(caught.value) == (
        f"web.host and web.port: cannot listen on 127.0.0.1:{port}: Address already in use: choose another port"
    )


def test_an_address_of_another_host_is_one_sentence() -> None:
    with pytest.raises(WebError, match=r"web\.host and web\.port: cannot listen on 203\.0\.113\.1:0: "):
        WebServer(Web(host="203.0.113.1", port=0), app()).start()


def test_ipv6_addresses_are_written_as_such() -> None:
    assert WebServer(Web(host="::1", port=9472), app()).url == "http://[::1]:9472"


def test_a_probe_that_hangs_does_not_stop_the_page() -> None:
    """Handlers run in threads."""
    leave = threading.Event()

    def hang() -> Health:
        leave.wait(5)
        return GOOD

    registry = CollectorRegistry()
    slow: Callable[[], Health] = hang
    with serving(Web(port=0), build_app(registry, slow, lambda: GOOD, Starlette())) as server:
        asking = threading.Thread(target=lambda: httpx.get(f"{server.url}/healthz", timeout=6))
        asking.start()
        assert httpx.get(f"{server.url}/metrics", timeout=3).status_code == 200
        leave.set()
        asking.join()
