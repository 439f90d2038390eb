import json
import logging
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pydantic import HttpUrl

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.engine import IDENTITY_INTERVAL_NS, IDENTITY_RETRY_NS, EngineCollector
from cyclewatch.collectors.fetch import FetchError, HttpFetcher, Response, UnreachableError
from cyclewatch.collectors.records import Fact, Failure, NoData, Reading, RingIdentity, Sample, ServerIdentity
from cyclewatch.config.settings import Engine, Target
from fake_http import Answer, HttpServer, closed_port, http_server
from model_configs import LLAMA_3_8B

FIXTURES = Path(__file__).parents[2] / "fixtures/engine"
SECOND = 1_000_000_000
INFO = json.dumps({"version": "0.5.23", "model_path": "m", "tp_size": 2, "api_key": "s3cret"}).encode()
METRICS = b'sglang:num_running_reqs{tp_rank="0"} 3\nsglang:num_requests_total 100\n'


class FakeFetcher:
    """Answers by address; an exception is raised, and an address without an answer refuses the connection."""

    def __init__(self) -> None:
        self.answers: dict[str, Response | FetchError] = {}
        self.asked: list[str] = []

    def get(self, url: str, *, timeout_s: float, max_bytes: int) -> Response:
        assert (timeout_s, max_bytes) == (2.0, 8 * 2**20)
        self.asked.append(url)
        answer = self.answers.get(url, UnreachableError(f"{url}: Connection refused"))
        if isinstance(answer, FetchError):
            raise answer
        return answer

    def answer(self, url: str, body: bytes, status: int = 200, content_type: str = "text/plain") -> None:
        self.answers[url] = Response(status, content_type, body)


class Watch:
    """A collector on fake servers `a` and, if wanted, `b`."""

    def __init__(self, *names: str) -> None:
        self.fetch = FakeFetcher()
        self.discovery = Discovery([Target(name=name, url=HttpUrl(f"http://{name}:1")) for name in names])
        self.now_ns = 7 * SECOND
        self.engine = EngineCollector(Engine(), self.discovery, self.fetch, clock=lambda: self.now_ns)
        for name in names:
            self.fetch.answer(f"http://{name}:1/server_info", INFO, content_type="application/json")
            self.fetch.answer(f"http://{name}:1/metrics", METRICS)

    def collect(self, seconds: float = 10) -> list[Sample]:
        self.now_ns += int(seconds * SECOND)
        self.fetch.asked.clear()
        return self.engine.collect(Now(self.now_ns, 0))

    @property
    def asked(self) -> list[str]:
        return [url.rpartition("/")[2] for url in self.fetch.asked]


@pytest.fixture(name="watch")
def _watch() -> Watch:
    return Watch("a")


def readings(samples: list[Sample]) -> dict[tuple[str, str], float]:
    return {(one.target, one.name): one.value for one in samples if isinstance(one, Reading)}


def reasons(samples: list[Sample], kind: type[Failure | NoData]) -> list[str]:
    return [one.reason for one in samples if isinstance(one, kind)]


def ring(pid: int) -> RingIdentity:
    identity = dict.fromkeys(("parent_pid", "parent_start_ticks", "monotonic_ns", "wall_ns"), 1)
    text = json.dumps(identity | {"pid": pid, "server": {"host": "a", "port": 1}})
    return RingIdentity.parse("1-1-1", text.encode())


def test_the_shape_of_a_model_that_lies_here_is_a_fact(watch: Watch, tmp_path: Path) -> None:
    """One that cannot be understood is no failure of the server."""
    watch.fetch.answer("http://a:1/server_info", json.dumps({"version": "1", "model_path": str(tmp_path)}).encode())
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    (fact,) = (sample for sample in watch.collect() if isinstance(sample, Fact))
    assert (fact.target, fact.subject) == ("a", "model_shape")
    assert fact.value.startswith("LlamaForCausalLM: 32 layers of 4096")


def test_identity_and_gauges_come_with_the_first_answer_rates_with_the_second(watch: Watch) -> None:
    assert watch.collect() == [
        ServerIdentity("a", "http://a:1", "0.5.23", "m", {"model_path": "m", "tp_size": 2}),
        Reading("a", "engine.running_requests", 3),
    ]
    watch.fetch.answer("http://a:1/metrics", METRICS.replace(b"100", b"150"))
    assert watch.collect(10) == [
        Reading("a", "engine.running_requests", 3),
        Reading("a", "engine.requests_per_s", 5),
    ]


@pytest.mark.parametrize(
    ("version", "info", "others", "more"),
    [("0.5.23", "server_info", [], []), ("0.5.4", "get_server_info", ["server_info"], ["cuda_graph_ratio"])],
)
def test_real_answers(watch: Watch, version: str, info: str, others: list[str], more: list[str]) -> None:
    watch.fetch.answer("http://a:1/server_info", b'{"detail":"Not Found"}', 404)
    watch.fetch.answer(f"http://a:1/{info}", (FIXTURES / f"{info}-{version}.json").read_bytes())
    watch.fetch.answer("http://a:1/metrics", (FIXTURES / f"metrics-{version}.txt").read_bytes())
    samples = watch.collect()
    assert watch.asked == [*others, info, "metrics"]
    assert isinstance(samples[0], ServerIdentity)
    assert samples[0].version == version
    assert set(readings(samples)) == {
        ("a", f"engine.{name}")
        for name in ("running_requests", "queued_requests", "kv_used_ratio", "kv_used_tokens", *more)
    }
    assert readings(watch.collect())["a", "engine.requests_per_s"] == 0


def test_identity_is_asked_for_again_after_a_while_and_not_before(watch: Watch) -> None:
    watch.collect()
    watch.collect(10)
    assert watch.asked == ["metrics"]
    watch.collect(IDENTITY_INTERVAL_NS / SECOND)
    assert watch.asked == ["server_info", "metrics"]


def test_identity_is_asked_for_again_after_the_server_was_away(watch: Watch) -> None:
    watch.collect()
    answers, watch.fetch.answers = watch.fetch.answers, {}
    assert watch.collect() == [NoData("http://a:1/metrics: Connection refused")]
    assert watch.collect() == [NoData("http://a:1/server_info: Connection refused")]
    assert watch.asked == ["server_info"]  # nobody there: the second question would fail as well
    watch.fetch.answers = answers
    samples = watch.collect()
    assert [type(sample) for sample in samples] == [ServerIdentity, Reading]  # no rates over the gap


def test_identity_is_asked_for_again_when_counters_began_anew(watch: Watch) -> None:
    watch.collect()
    watch.fetch.answer("http://a:1/metrics", METRICS.replace(b"100", b"5"))
    assert set(readings(watch.collect())) == {("a", "engine.running_requests")}
    watch.fetch.answer("http://a:1/metrics", METRICS.replace(b"100", b"15"))
    samples = watch.collect(10)
    assert watch.asked == ["server_info", "metrics"]
    assert readings(samples)["a", "engine.requests_per_s"] == 1


def test_identity_is_asked_for_again_when_the_rings_are_others(watch: Watch) -> None:
    watch.discovery.note(ring(5))
    watch.collect()
    watch.collect()
    assert watch.asked == ["metrics"]
    watch.discovery.note(ring(6))
    watch.collect()
    assert watch.asked == ["server_info", "metrics"]


def test_no_server_is_no_data() -> None:
    assert reasons(Watch().collect(), NoData) == ["no server known yet: name one in [[targets]], or wait for its rings"]


def test_server_that_is_gone_is_forgotten() -> None:
    watch = Watch()
    watch.discovery.note(ring(5))
    for path in ("server_info", "metrics"):
        watch.fetch.answer(f"http://a:1/{path}", INFO if path == "server_info" else METRICS)
    watch.collect()
    watch.discovery.forget("1-1-1")
    assert len(watch.collect()) == 1
    watch.discovery.note(ring(5))
    assert isinstance(watch.collect()[0], ServerIdentity)


def test_key_protected_server_has_metrics_but_no_identity(watch: Watch) -> None:
    watch.fetch.answer("http://a:1/server_info", b'{"error":"Unauthorized"}', 401)
    samples = watch.collect()
    assert "wants the server's API key" in reasons(samples, NoData)[0]
    assert readings(samples) == {("a", "engine.running_requests"): 3}
    watch.collect()
    assert watch.asked == ["metrics"]
    watch.collect(IDENTITY_RETRY_NS / SECOND)
    assert watch.asked == ["server_info", "metrics"]


@pytest.mark.parametrize(
    ("status", "body", "content_type", "kind", "reason"),
    [
        (404, b"{}", "application/json", NoData, "does not exist: start SGLang with --enable-metrics"),
        (401, b"{}", "application/json", NoData, "asks for credentials"),
        (200, b"", "text/plain", NoData, "has none of the series of SGLang yet"),
        (200, b"vllm:running 1\n", "text/plain", NoData, "has none of the series of SGLang yet"),
        (307, b"", "text/plain", Failure, "redirects elsewhere, which is not followed"),
        (500, b"s3cret", "text/plain", Failure, "answered with status 500"),
        (200, b"<p>s3cret", "text/html", Failure, "is a web page: --enable-metrics may be missing"),
        (200, b"\n <!doctype html>s3cret", "text/plain", Failure, "is a web page: --enable-metrics may be missing"),
        (200, b"sglang:token_usage s3cret", "text/plain", Failure, "not in the Prometheus text format: line 1"),
        (200, b"\xff\xfe", "text/plain", Failure, "not in the Prometheus text format: byte 0 is not UTF-8"),
    ],
)
def test_page_that_gives_nothing(
    watch: Watch, status: int, body: bytes, content_type: str, kind: type[Failure | NoData], reason: str
) -> None:
    watch.fetch.answer("http://a:1/metrics", body, status, content_type)
    samples = watch.collect()
    assert isinstance(samples[0], ServerIdentity)
    assert [type(sample) for sample in samples[1:]] == [kind]
    assert reason in reasons(samples, kind)[0]
    assert reasons(samples, kind)[0].startswith("http://a:1/metrics")
    assert "s3cret" not in repr(samples)


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"[" * 100_000, "is not JSON"), (INFO[:20], "is not JSON"), (b"{}", "has no version"), (b"<p>", "is not JSON")],
)
def test_identity_that_cannot_be_read_is_a_failure_and_metrics_go_on(watch: Watch, body: bytes, reason: str) -> None:
    watch.fetch.answer("http://a:1/server_info", body)
    samples = watch.collect()
    assert reason in reasons(samples, Failure)[0]
    assert readings(samples) == {("a", "engine.running_requests"): 3}


def test_server_without_any_info_is_said(watch: Watch) -> None:
    for path in ("server_info", "get_server_info"):
        watch.fetch.answer(f"http://a:1/{path}", b"", 404)
    assert "has none of /server_info, /get_server_info" in reasons(watch.collect(), NoData)[0]


def test_failing_server_does_not_stop_the_others() -> None:
    watch = Watch("a", "b", "c")
    watch.fetch.answers["http://a:1/metrics"] = FetchError("http://a:1/metrics: too long")
    watch.fetch.answers["http://b:1/server_info"] = UnreachableError("http://b:1/server_info: Connection refused")
    samples = watch.collect()
    assert reasons(samples, Failure) == ["http://a:1/metrics: too long"]
    assert reasons(samples, NoData) == ["http://b:1/server_info: Connection refused"]
    assert readings(samples) == {("c", "engine.running_requests"): 3}


def test_rates_go_on_over_a_late_answer(watch: Watch) -> None:
    watch.collect()
    answer = watch.fetch.answers["http://a:1/metrics"]
    watch.fetch.answers["http://a:1/metrics"] = FetchError("late")
    watch.collect(10)
    watch.fetch.answers["http://a:1/metrics"] = answer
    watch.fetch.answer("http://a:1/metrics", METRICS.replace(b"100", b"200"))
    assert readings(watch.collect(10))["a", "engine.requests_per_s"] == 5


def test_close_forgets(watch: Watch) -> None:
    watch.collect()
    watch.engine.close()
    watch.collect()
    assert watch.asked == ["server_info", "metrics"]


# Over real HTTP


def over_http(server: HttpServer, url: str = "", **settings: Any) -> EngineCollector:
    discovery = Discovery([Target(name="a", url=HttpUrl(url or server.url))])
    return EngineCollector(Engine(timeout_s=0.5, max_bytes=2**20, **settings), discovery, HttpFetcher())


@pytest.fixture(name="server")
def _server() -> Iterator[HttpServer]:
    with http_server({"/server_info": Answer(INFO), "/metrics": Answer(METRICS)}) as server:
        yield server


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    for _ in range(200):
        handler.wfile.write(b"sglang:token_usage 0.5\n" * 50_000)


def slow(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    for _ in range(400):
        handler.wfile.write(b"#\n")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (Answer(send=endless), Failure, "longer than 1048576 bytes"),
        (Answer(send=slow), Failure, "no complete answer within 0.5 s"),
        (Answer(b"<html>", 200, "text/html"), Failure, "--enable-metrics may be missing"),
        (Answer(b"", 302, headers=(("Location", "http://s3cret/"),)), Failure, "redirects elsewhere"),
        (Answer(b"", 404), NoData, "--enable-metrics"),
    ],
)
def test_hostile_page_over_http(server: HttpServer, answer: Answer, kind: type[Failure | NoData], reason: str) -> None:
    server.answers["/metrics"] = answer
    samples = list(over_http(server).collect(Now(1, 0)))
    assert isinstance(samples[0], ServerIdentity)
    assert reason in reasons(samples, kind)[0]
    assert f"{server.url}/metrics" in reasons(samples, kind)[0]
    assert "s3cret" not in repr(samples)


def test_server_that_does_not_run_over_http(server: HttpServer) -> None:
    samples = over_http(server, f"http://127.0.0.1:{closed_port()}").collect(Now(1, 0))
    assert "is the server running?" in reasons(samples, NoData)[0]


def test_no_key_and_no_password_gets_out(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    engine = over_http(server, server.url.replace("//", "//someone:s3cret@"))
    samples = engine.collect(Now(1, 0))
    server.answers["/server_info"] = Answer(INFO[:-3])
    server.answers["/metrics"] = Answer(METRICS + b"sglang:token_usage s3cret\n")
    samples += engine.collect(Now(1 + IDENTITY_INTERVAL_NS, 0))
    assert [type(sample) for sample in samples] == [ServerIdentity, Reading, Failure, Failure]
    held = [vars(state) for state in engine._states.values()]
    for state in held:
        del state["server"]  # knows the address with the password, as it must
    assert "s3cret" not in f"{samples!r} {held!r} {caplog.text}"
