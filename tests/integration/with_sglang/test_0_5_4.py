"""SGLang 0.5.4, which has no plugin framework: the import finder puts the hooks in."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon_process import Daemon
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import RingTap, dose_s, ring_directory, sglang_environment, told

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(900)]

CONCURRENCY = 4
rings = pytest.fixture(scope="module")(ring_directory)


@pytest.fixture(name="server", scope="module")
def _server(rings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangServer]:
    venv = sglang_environment("0.5.4")
    workdir = tmp_path_factory.mktemp("sglang")
    environment = {"CYCLEWATCH_RING_DIR": str(rings), "CYCLEWATCH_RING_RECORDS": "4096"}
    with SGLangServer(venv, "0.5.4", workdir, extra_env=environment) as server:
        yield server


def test_cycles_are_recorded_and_a_slowdown_is_found(server: SGLangServer, rings: Path, tmp_path: Path) -> None:
    """Cycles fill the busy time, the engine says who it is, and a third more a pass is a regression."""
    told(lambda directory: _slowdown(server, rings, directory), tmp_path)


def _slowdown(server: SGLangServer, rings: Path, directory: Path) -> None:
    server.slow_down(None)
    detection = {"reference_s": 30, "warmup_s": 5, "min_effect": 0.15, "persistence_s": 20, "false_alarms_per_hour": 1}
    traffic = Traffic(server.base_url, concurrency=CONCURRENCY, seconds=240)
    with (
        RingTap(rings, CONCURRENCY) as tap,
        traffic,
        Daemon(directory, rings, detection) as daemon,
        tap.judged_at_pace(),
    ):
        daemon.wait_for(daemon.settled, 100, "settled")
        busy_ns = time.monotonic_ns()
        time.sleep(10)
        records = tap.records(busy_ns, busy_ns + 9 * 10**9)
        assert records["cycle_ns"].sum() == pytest.approx(9e9, rel=0.1)
        before_ms = tap.median_decode_ms(busy_ns, time.monotonic_ns())
        tap.changed()
        server.slow_down(dose_s(before_ms))
        daemon.wait_for(daemon.slowed, 60, "confirmed")
        print(daemon.regressions())
        page = daemon.get("/metrics")
    assert page is not None
    assert "cyclewatch_engine_running_requests" in page
    assert traffic.totals.failures == 0
