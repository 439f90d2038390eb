"""A real Prometheus scrapes the real daemon; its rules hold, and every query of the dashboards finds something.

Debian's prometheus, or any on the PATH. The daemon watches the recorded demo, six times as fast as it was, with a
stand-in for SGLang's HTTP pages, a recording of an H200 in NVML's place, and cores of bare metal.
"""

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.config.alerts import Alerts
from cyclewatch.config.settings import Detection, Engine, Host, Probe, Profiling, Rings, Settings, Target
from cyclewatch.config.web import Web
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.demo.recording import SHIPPED, Recording, load
from cyclewatch.daemon.server import Server
from fake_http import Answer, closed_port, http_server
from nvml_lab import recording as nvml_recording

PROGRAM = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Prometheus on the PATH: install prometheus"),
]

DEPLOY = Path(__file__).parents[2] / "deploy"
PAGES = Path(__file__).parents[1] / "fixtures/engine"
DASHBOARDS = sorted((DEPLOY / "grafana/dashboards").glob("*.json"))
SPEED = 6.0
SETTLE_S = 10.0
CHOSEN = {"$instance": "daemon", "$target": ".+", "$__rate_interval": "10s"}
"""What a reader may have chosen above a dashboard, and what Grafana puts in for itself at a scrape a second."""

ABSENT_HERE = {
    "cyclewatch_host_cgroup_throttled_ratio": "control groups may not be mounted",
    "cyclewatch_host_pressure_ratio": "kernels may be built without it",
}
"""What the machine of a test need not have; its queries are run all the same."""


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)


class GrowingPage(Answer):
    """SGLang's metrics, recorded once: every counter has grown by as much at each reading."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.read_bytes())
        self._lines = self.body.decode().splitlines()
        self._readings = 0
        self.send = self._grow

    def _grow(self, handler: BaseHTTPRequestHandler) -> None:
        self._readings += 1
        self.body = "\n".join(map(self._grown, self._lines)).encode() + b"\n"
        self._send(handler)

    def _grown(self, line: str) -> str:
        name = re.match(r"\w+:\w+(?:_total|_sum|_count|_bucket)\b", line)
        series, _, value = line.rpartition(" ")
        return f"{series} {float(value) * self._readings}" if name else line


def metal(sys: Path) -> Path:
    """A /sys with the frequency and heat of each core, which virtual machines do not show."""
    for number in range(os.cpu_count() or 1):
        for name, content in (
            ("cpufreq/scaling_cur_freq", "2900000"),
            ("cpufreq/cpuinfo_max_freq", "3600000"),
            ("thermal_throttle/core_throttle_count", "3"),
            ("thermal_throttle/core_throttle_total_time_ms", "40"),
        ):
            path = sys / f"devices/system/cpu/cpu{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
    return sys


@contextlib.contextmanager
def played(rings: Path, real_origin_ns: int) -> Iterator[None]:
    """The demo's player, a process that writes the recorded cycles."""
    command = [sys.executable, "-m", "cyclewatch.daemon.demo.player", str(rings), str(SHIPPED)]
    command += ["--real-origin-ns", str(real_origin_ns), "--speed", str(SPEED)]
    with subprocess.Popen(command) as player:
        try:
            yield
        finally:
            player.terminate()


@contextlib.contextmanager
def watching(settings: Settings, clock: ScaledClock) -> Iterator[Server]:
    """The daemon, on a faster clock."""
    server = Server(settings, clock, RecordedDoor(nvml_recording("h200"), copies=2))
    thread = threading.Thread(target=server.run, name="daemon")
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(30)


@contextlib.contextmanager
def prometheus(directory: Path, address: str) -> Iterator[str]:
    """Prometheus with the shipped configuration, but for the address and the pace; gives its own address."""
    assert PROGRAM is not None
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    for shipped, ours in (
        ("rules/*.yml", str(DEPLOY / "prometheus/rules/*.yml")),
        ('["127.0.0.1:9472"]', f'["{address}"]\n        labels: {{instance: daemon}}'),
        ("15s", "1s"),
    ):
        assert shipped in text
        text = text.replace(shipped, ours)
    config = directory / "prometheus.yml"
    config.write_text(text)
    url = f"127.0.0.1:{closed_port()}"
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={url}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
        try:
            until(lambda: _ready(f"http://{url}") or process.poll() is not None, "Prometheus ready")
            assert process.poll() is None, log.read_text()
            yield f"http://{url}"
        finally:
            process.terminate()
            process.wait()


def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
    return False


@dataclass(frozen=True)
class Scraped:
    """What a Prometheus has scraped of a daemon since `began_s`; `page` is the last page, `until_s` its time."""

    url: str
    began_s: float
    until_s: float
    page: bytes
    recording: Recording

    def ask(self, path: str, **parameters: Any) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False)
        body = answer.json()
        assert body["status"] == "success", f"{parameters}: {body}"
        return body["data"]

    def values(self, expr: str) -> list[float]:
        """All finite values of all series over the whole time."""
        found = self.ask("query_range", query=expr, start=self.began_s, end=self.until_s, step=1)
        values = [float(value) for series in found["result"] for _, value in series["values"]]
        return [value for value in values if math.isfinite(value)]


@pytest.fixture(name="scraped", scope="module")
def _scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """One showing of the demo, from its first cycle until all is judged."""
    directory = tmp_path_factory.mktemp("prometheus")
    recording = load()
    with contextlib.ExitStack() as stack:
        stack.enter_context(capture_logs())
        rings = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cyclewatch-test-", dir="/dev/shm")))
        pages = {
            "/metrics": GrowingPage(PAGES / "metrics-0.5.23.txt"),
            "/server_info": Answer((PAGES / "server_info-0.5.23.json").read_bytes()),
        }
        sglang = stack.enter_context(http_server(pages))
        chat = stack.enter_context(http_server({"/": Answer()}))
        settings = Settings(
            state_dir=directory,
            rings=Rings(directory=rings),
            targets=(Target.model_validate({"name": "sglang", "url": sglang.url}),),
            engine=Engine(interval_s=10.0),
            host=Host(survey_interval_s=10.0, sys=metal(directory / "sys")),
            profiling=Profiling(enabled=False),
            probe=Probe(enabled=False),
            alerts=Alerts.model_validate({"sinks": {"chat": {"type": "webhook", "url": f"{chat.url}/"}}}),
            detection=Detection(reference_s=60, warmup_s=5, min_effect=0.1, persistence_s=30, false_alarms_per_hour=1),
            web=Web(port=0),
        )
        origin_ns = time.monotonic_ns()
        clock = ScaledClock(Now(recording.first_ns, int(recording.identity["wall_ns"])), origin_ns, SPEED)
        server = stack.enter_context(watching(settings, clock))
        stack.enter_context(played(rings, origin_ns))
        until(lambda: not server.web.url.endswith(":0"), "the daemon listens")
        url = stack.enter_context(prometheus(directory, server.web.url.removeprefix("http://")))
        began_s = time.time()
        end_s = recording.length_s / SPEED + SETTLE_S
        until(lambda: (time.monotonic_ns() - origin_ns) / 1e9 > end_s, "the end of the recording", end_s + 60)
        page = httpx.get(f"{server.web.url}/metrics", trust_env=False).content
        yield Scraped(url, began_s, time.time(), page, recording)


def _queries() -> Iterator[Any]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")


def _chosen(expr: str) -> str:
    for variable, value in CHOSEN.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, f"a variable that this test does not know: {expr}"
    return expr


@pytest.mark.parametrize("expr", list(_queries()))
def test_every_query_of_the_dashboards_finds_something(scraped: Scraped, expr: str) -> None:
    """From the start of the recording to its end."""
    values = scraped.values(_chosen(expr))
    if not values:
        reasons = [reason for metric, reason in ABSENT_HERE.items() if metric in expr]
        assert reasons, f"no data: {expr}"
        pytest.skip(reasons[0])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: str(path.stem))
def test_every_variable_has_something_to_choose(scraped: Scraped, path: Path) -> None:
    """Nodes, and the servers of a node."""
    for variable in json.loads(path.read_text())["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert found
        assert scraped.ask(f"label/{found[2]}/values", **{"match[]": _chosen(found[1])})


def test_a_change_point_is_marked_where_it_was(scraped: Scraped) -> None:
    """The recorded server was slowed down 75 s after its start: by the recording's clock, within a window or three."""
    (annotation,) = json.loads((DEPLOY / "grafana/dashboards/node.json").read_text())["annotations"]["list"]
    marks_ms = set(scraped.values(_chosen(annotation["expr"])))
    slowed_ms = scraped.recording.identity["wall_ns"] / 1e6 + 75_000
    print("marks, in s after the slowdown:", sorted(round((mark - slowed_ms) / 1e3) for mark in marks_ms))
    assert any(abs(mark - slowed_ms) < 15_000 for mark in marks_ms)


def test_no_rule_fails(scraped: Scraped) -> None:
    rules = [rule for group in scraped.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 10
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}


def test_the_regression_alerts(scraped: Scraped) -> None:
    """And nothing else does, but that the stand-in for SGLang has no hook, which takes ten minutes to be told."""
    firing = scraped.ask(
        "query_range", query='ALERTS{alertstate="firing"}', start=scraped.began_s, end=scraped.until_s, step=1
    )
    assert {series["metric"]["alertname"] for series in firing["result"]} == {"CyclewatchRegression"}
    pending = scraped.values('ALERTS{alertstate="pending", alertname="CyclewatchHookMissing"}')
    assert pending


def test_promtool_finds_nothing_wrong_with_the_page(scraped: Scraped) -> None:
    """Names, units and help texts by Prometheus' conventions."""
    if PROMTOOL is None:
        pytest.skip("no promtool on the PATH: install prometheus")
    answer = subprocess.run([PROMTOOL, "check", "metrics"], input=scraped.page, capture_output=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, b""), answer.stderr.decode()
