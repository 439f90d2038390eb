"""The real daemon watching the real SGLang 0.5.23 on a CPU.

Shared machines drift by 3 to 13 % by themselves between windows of 5 s; the minimum effect here, 15 %, stands above
that. Some drift by much more: the stories look first, and stand above what they saw.
How sensitive detection is, is measured on simulated and on recorded cycles.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon_process import Daemon
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import RingTap, dose_s, told

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(1200)]

DETECTION = {"reference_s": 60, "warmup_s": 5, "min_effect": 0.15, "persistence_s": 20, "false_alarms_per_hour": 1}
SHORT_BASELINE = {**DETECTION, "reference_s": 30}
CONCURRENCY = 4


def _open_one(daemon: Daemon) -> dict[str, Any]:
    """The open regression of the decode phase, as the store has it a moment after the daemon found it."""
    time.sleep(2)
    found = [one for one in daemon.regressions() if one["phase"] == "decode" and one["state"] == "open"]
    assert len(found) == 1, found
    return found[0]


def test_a_slowdown_is_confirmed_measured_and_resolved(server: SGLangServer, rings: Path, tmp_path: Path) -> None:
    """`/slow_down` of 1 ms: confirmed within 60 s, effect within a quarter of the truth; gone after `null`."""
    told(lambda directory: _slowdown(server, rings, directory), tmp_path)


def _slowdown(server: SGLangServer, rings: Path, directory: Path) -> None:
    traffic = Traffic(server.base_url, concurrency=CONCURRENCY, seconds=420)
    with (
        RingTap(rings, CONCURRENCY) as tap,
        traffic,
        Daemon(directory, rings, SHORT_BASELINE) as daemon,
        tap.judged_at_pace(),
    ):
        daemon.wait_for(daemon.settled, 110, "settled")
        time.sleep(10)
        assert not daemon.slowed()
        before_ms = tap.median_decode_ms(time.monotonic_ns() - 40 * 10**9, time.monotonic_ns())
        with _slowed(server, tap, dose_s(before_ms)):
            slow_ns = time.monotonic_ns()
            delay_s = daemon.wait_for(daemon.slowed, 60, "confirmed")
            null_ns = time.monotonic_ns()
            found = _open_one(daemon)
        after_ms = tap.median_decode_ms(slow_ns + 10**9, null_ns)
        truth, causes = after_ms / before_ms - 1, found["causes"]
        print(
            f"decode {before_ms:.3f} ms, with /slow_down {after_ms:.3f} ms ({truth:+.1%}); found "
            f"{found['effect']:+.1%} {found['ci']} after {delay_s:.0f} s; causes {causes}"
        )
        assert found["effect"] == pytest.approx(truth, rel=0.25)
        # The sleep is in run_batch, off the CPU. A neighbour may take the time of the thread besides, and be named.
        assert causes[0]["kind"] != "unexplained"
        assert "stage_launch_blocked" in [cause["kind"] for cause in causes]
        resolved_s = daemon.wait_for(lambda: not daemon.slowed(), 90, "resolved")
        print(f"resolved {resolved_s:.0f} s after its end")
        time.sleep(2)
        (ended,) = [one for one in daemon.regressions() if one["id"] == found["id"]]
        assert ended["state"] == "resolved"
        assert ended["ended_at"] is not None
    assert traffic.totals.failures == 0


@contextmanager
def _slowed(server: SGLangServer, tap: RingTap, seconds: float) -> Iterator[None]:
    """Every forward pass sleeps first for so long."""
    tap.changed()
    server.slow_down(seconds)
    try:
        yield
    finally:
        tap.changed()
        server.slow_down(None)


@pytest.mark.story
@pytest.mark.timeout(2400)  # it is told three times at most
def test_steady_traffic_load_changes_and_kills_are_no_regression(
    server: SGLangServer, rings: Path, tmp_path: Path
) -> None:
    """Five steady minutes with `kill -9` of the daemon, 4 to 12 requests and back: nothing is reported."""
    moments = _moments()
    told(lambda directory: _steady(server, rings, directory, moments), tmp_path)


def _steady(server: SGLangServer, rings: Path, directory: Path, moments: random.Random) -> None:
    log_before = server.log_path.read_text().count("Traceback")
    with _at_its_own_pace(server, rings, directory) as (tap, traffic, daemon, _):
        started = time.monotonic()
        for until_s in (100, 200, 300):
            quiet_ns = time.monotonic_ns()
            time.sleep(max(0.0, started + until_s - 40 + moments.uniform(0, 30) - time.monotonic()))
            kill_ns = time.monotonic_ns()
            daemon.kill()
            time.sleep(2)
            daemon.start()
            # The server goes on at its pace: nothing stops it while its watcher dies and comes back.
            stops = tap.records(kill_ns, time.monotonic_ns())
            assert len(stops)
            longest_ms = float(stops["cycle_ns"].max()) / 1e6
            usual_ms = float(tap.records(quiet_ns, kill_ns)["cycle_ns"].max()) / 1e6
            print(f"longest cycle around kill -9: {longest_ms:.1f} ms, in the quiet before: {usual_ms:.1f} ms")
            assert longest_ms < max(2 * usual_ms, 100)
        time.sleep(max(0.0, started + 300 - time.monotonic()))
        assert daemon.settled()
        traffic.set_concurrency(12)
        time.sleep(50)
        traffic.set_concurrency(CONCURRENCY)
        time.sleep(40)
        assert daemon.regressions() == []
        assert server.log_path.read_text().count("Traceback") == log_before
    assert traffic.totals.failures == 0


@pytest.mark.story
@pytest.mark.timeout(1800)  # it is told three times at most
def test_a_daemon_killed_under_suspicion_finds_the_slowdown_once(
    server: SGLangServer, rings: Path, tmp_path: Path
) -> None:
    """`kill -9` while a slowdown is suspected, and again while it is open: found once, resolved once."""
    moments = _moments()
    told(lambda directory: _killed_under_suspicion(server, rings, directory, moments), tmp_path)


def _killed_under_suspicion(server: SGLangServer, rings: Path, directory: Path, moments: random.Random) -> None:
    with _at_its_own_pace(server, rings, directory) as (tap, _, daemon, min_effect):
        daemon.wait_for(daemon.settled, 150, "settled")
        time.sleep(15)
        before_ms = tap.median_decode_ms(time.monotonic_ns() - 30 * 10**9, time.monotonic_ns())
        with _slowed(server, tap, dose_s(before_ms, min_effect)):
            time.sleep(moments.uniform(8, 20))
            daemon.kill()
            daemon.start()
            delay_s = daemon.wait_for(daemon.slowed, 60, "confirmed")
            found = _open_one(daemon)
        daemon.kill()
        daemon.start()
        resolved_s = daemon.wait_for(lambda: not daemon.slowed(), 90, "resolved")
        time.sleep(2)
        assert [one["id"] for one in daemon.regressions() if one["phase"] == "decode"] == [found["id"]]
        print(f"killed under suspicion: confirmed {delay_s:.0f} s later, resolved {resolved_s:.0f} s after its end")


def _moments() -> random.Random:
    seed = random.randrange(10**6)
    print(f"kill moments from seed {seed}")
    return random.Random(seed)


@contextmanager
def _at_its_own_pace(
    server: SGLangServer, rings: Path, directory: Path
) -> Iterator[tuple[RingTap, Traffic, Daemon, float]]:
    """Traffic, and a daemon that looks for effects above what the machine was seen to do by itself in a minute."""
    with RingTap(rings, CONCURRENCY) as tap, Traffic(server.base_url, concurrency=CONCURRENCY, seconds=700) as traffic:
        time.sleep(65)
        min_effect = tap.min_effect(time.monotonic_ns() - 60 * 10**9, time.monotonic_ns())
        print(f"minimum effect, above what the machine does by itself: {min_effect:.2f}")
        detection = {**DETECTION, "min_effect": min_effect}
        with Daemon(directory, rings, detection) as daemon, tap.judged_at_pace(min_effect):
            yield tap, traffic, daemon, min_effect


def test_a_server_restart_is_a_change_event_and_keeps_the_baseline(
    server: SGLangServer, rings: Path, tmp_path: Path
) -> None:
    """Stopped and started again with the same arguments: an event, no regression, no new baseline to learn."""
    told(lambda directory: _restart(server, rings, directory), tmp_path)


def _restart(server: SGLangServer, rings: Path, directory: Path) -> None:
    with (
        RingTap(rings, CONCURRENCY) as tap,
        Daemon(directory, rings, SHORT_BASELINE) as daemon,
        tap.judged_at_pace(),
    ):
        with Traffic(server.base_url, concurrency=CONCURRENCY, seconds=120):
            daemon.wait_for(daemon.settled, 110, "settled")
        before = daemon.command("status")["events"]  # that of the telling before this one, whose ring is still there
        server.restart()
        with Traffic(server.base_url, concurrency=CONCURRENCY, seconds=40) as traffic:
            time.sleep(30)
            phase = daemon.phase("decode")
            traffic.stop()
        assert phase is not None
        assert phase.baseline_progress == 1.0
        after = daemon.command("status")["events"]
        assert [event["kind"] for event in after if event not in before] == ["restart"]
        assert [one for one in daemon.regressions() if one["phase"] == "decode"] == []


def test_a_ring_cut_off_or_deleted_does_not_harm_the_server(server: SGLangServer, rings: Path, tmp_path: Path) -> None:
    """Truncated, scribbled over, deleted while the server writes: it answers on, and the daemon says what it sees."""
    with (
        Traffic(server.base_url, concurrency=CONCURRENCY, seconds=60) as traffic,
        Daemon(tmp_path / "daemon", rings, DETECTION) as daemon,
    ):
        daemon.wait_for(lambda: daemon.phase("decode"), 30, "watching")
        for ring in rings.glob("*.ring"):
            os.truncate(ring, 5000)
        daemon.wait_for(lambda: "cut off" in daemon.log_path.read_text(), 10, "told of the cut")
        for ring in rings.glob("*.ring"):
            ring.write_bytes(random.randbytes(100_000))
        time.sleep(3)
        for ring in rings.glob("*.ring"):
            ring.unlink()
        served = traffic.totals.requests
        time.sleep(5)
        assert traffic.totals.requests > served
        assert daemon.get("/healthz") is not None
    assert traffic.totals.failures == 0
