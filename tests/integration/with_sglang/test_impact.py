"""`cyclewatch doctor --impact` on the real SGLang: what it says, and that the daemon samples on, whatever happens."""

import math
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from daemon_process import COMMAND, Daemon
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(600)]

CONCURRENCY = 4


def samplings(daemon: Daemon) -> int:
    """How often the rings have been looked at."""
    page = daemon.get("/metrics") or ""
    (count,) = re.findall(r'^cyclewatch_collector_duration_seconds_count{collector="cycles"} (\S+)', page, re.MULTILINE)
    return int(float(count))


def test_the_impact_is_told_and_the_daemon_samples_on(server: SGLangServer, rings: Path, tmp_path: Path) -> None:
    """Three pairs: finite intervals for decodes; nothing is lost or comes too late for its window."""
    with (
        Traffic(server.base_url, concurrency=CONCURRENCY, seconds=120) as traffic,
        Daemon(tmp_path / "daemon", rings, {"warmup_s": 0}) as daemon,
    ):
        daemon.wait_for(lambda: daemon.phase("decode"), 60, "watching")
        answer = daemon.command("doctor", "--impact", "--seconds", "5", "--pairs", "3")
        (rank,) = answer["ranks"]
        for phase in rank["phases"]:
            print(f"{phase['sentence']}; {phase['cycles']} cycles of {phase['median_ns'] / 1e6:.3f} ms")
        (decode,) = [one for one in rank["phases"] if one["phase"] == "decode"]
        assert decode["pairs"] == 3
        assert all(math.isfinite(edge) for edge in decode["ci"])
        before = samplings(daemon)
        daemon.wait_for(lambda: samplings(daemon) > before + 2, 15, "sampling again")
        page = daemon.get("/metrics") or ""
        assert "cyclewatch_records_refused_total{" not in page
        assert re.findall(r"^cyclewatch_ring_records_lost_total{.*} (\S+)", page, re.MULTILINE) == ["0.0"]
    assert traffic.totals.failures == 0


def test_the_daemon_samples_on_after_kill_9_of_the_command(server: SGLangServer, rings: Path, tmp_path: Path) -> None:
    with Daemon(tmp_path / "daemon", rings, {}) as daemon:
        arguments = ["doctor", "--impact", "--seconds", "18", "--config", str(daemon.config)]
        with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.DEVNULL) as command:

            def still() -> bool:
                before = samplings(daemon)
                time.sleep(2.5)
                return samplings(daemon) == before

            daemon.wait_for(still, 60, "paused")
            command.send_signal(signal.SIGKILL)
        before = samplings(daemon)
        daemon.wait_for(lambda: samplings(daemon) > before + 2, 10, "sampling again")
        assert daemon.get("/healthz") is not None
