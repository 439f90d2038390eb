"""The real SGLang comes back with another argument, and slower: the daemon says so, and names the argument.

What makes it slower is `/slow_down` right after its start, since an argument that surely makes this small server on a
CPU slower is not known. From outside it is the same: a new configuration whose every step takes longer.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon_process import Daemon
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import RingTap, dose_s, ring_directory, sglang_environment, told

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.story, pytest.mark.timeout(1800)]

DETECTION = {
    "reference_s": 60,
    "warmup_s": 5,
    "min_effect": 0.15,
    "min_deployment_effect": 0.15,
    "persistence_s": 20,
    "false_alarms_per_hour": 1,
}
CONCURRENCY = 4
ARGUMENT = ["--schedule-conservativeness", "1.01"]
rings = pytest.fixture(scope="module")(ring_directory)


@pytest.fixture(name="server")
def _server(rings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangServer]:
    venv = sglang_environment("0.5.23")
    environment = {"CYCLEWATCH_RING_DIR": str(rings), "CYCLEWATCH_RING_RECORDS": "4096"}
    with SGLangServer(venv, "0.5.23", tmp_path_factory.mktemp("sglang"), extra_env=environment) as server:
        yield server


def test_a_slower_configuration_is_found_against_the_one_before(
    server: SGLangServer, rings: Path, tmp_path: Path
) -> None:
    """Found once its baseline stands, with the size that the ring shows; over when the old pace is back."""
    told(lambda directory: _deployment(server, rings, directory), tmp_path)


def _deployment(server: SGLangServer, rings: Path, directory: Path) -> None:
    server.restart([])
    with (
        RingTap(rings, CONCURRENCY) as tap,
        Daemon(directory, rings, DETECTION) as daemon,
        tap.judged_at_pace(),
    ):
        with Traffic(server.base_url, concurrency=CONCURRENCY, seconds=200):
            daemon.wait_for(daemon.settled, 150, "settled")
            time.sleep(15)
            before_ms = tap.median_decode_ms(time.monotonic_ns() - 60 * 10**9, time.monotonic_ns())
        server.restart(ARGUMENT)
        server.slow_down(dose_s(before_ms))
        with Traffic(server.base_url, concurrency=CONCURRENCY, seconds=400):
            tap.changed()
            slow_ns = time.monotonic_ns()
            delay_s = daemon.wait_for(daemon.slowed, 150, "found")
            null_ns = time.monotonic_ns()
            time.sleep(2)
            found = [one for one in daemon.regressions() if one["phase"] == "decode"]
            assert [(one["kind"], one["state"]) for one in found] == [("deployment", "open")]
            effect, causes = found[0]["effect"], found[0]["causes"]
            truth = tap.median_decode_ms(slow_ns + 5 * 10**9, null_ns) / before_ms - 1
            print(f"truth {truth:+.1%}, found {effect:+.1%} {found[0]['ci']} after {delay_s:.0f} s: {causes}")
            assert effect == pytest.approx(truth, rel=0.25)
            tap.changed()
            server.slow_down(None)
            resolved_s = daemon.wait_for(lambda: not daemon.slowed(), 150, "resolved")
            print(f"resolved {resolved_s:.0f} s after the old pace was back")
        assert "deployment" in [cause["kind"] for cause in causes]
        assert "schedule_conservativeness" in str(causes)
