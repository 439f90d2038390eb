"""Kernel profiles of the real SGLang 0.5.23 and of a plain PyTorch program on a CPU, through Kineto's channel."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cyclewatch.collectors.start_profile import StartedProfile
from cyclewatch.detectors.costs.profile_cost import STRETCH_NS, ProfileCost, profile_cost
from daemon_process import COMMAND, Daemon
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import RingTap, kineto_environment, sglang_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(900)]

VERSION = "0.5.23"
CONCURRENCY = 4
STEPS = 10
DETECTION: dict[str, float] = {"reference_s": 600, "warmup_s": 5}
LOOP = """
import time, torch
matrix = torch.randn(64, 64)
end = time.monotonic() + 120
while time.monotonic() < end:
    torch.nn.functional.softmax(matrix @ matrix, dim=-1)
    time.sleep(0.002)
"""


@pytest.fixture(name="daemon")
def _daemon(rings: Path, channel: Path, tmp_path: Path) -> Iterator[Daemon]:
    """Takes profiles only when asked: the baseline takes longer than what a ring holds of the tests before."""
    with Daemon(tmp_path / "daemon", rings, DETECTION, f'[profiling]\nsocket_dir = "{channel}"\n') as daemon:
        yield daemon


def profiles(daemon: Daemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.command("profiles", "list")
    return found


def registered(daemon: Daemon) -> int:
    """How many processes ask on the channel."""
    count: int = (daemon.command("status")["profiling"] or {}).get("processes", 0)
    return count


def test_a_running_server_is_sampled_reduced_and_stored(
    server: SGLangServer, daemon: Daemon, channel: Path, tmp_path: Path
) -> None:
    """Its scheduler is picked from the processes that ask, its operators are kept, its trace is not."""
    kept = tmp_path / "trace.json"
    with Traffic(server.base_url, concurrency=CONCURRENCY, seconds=120) as traffic:
        daemon.wait_for(lambda: registered(daemon) >= 3, 60, "asked by SGLang's processes")
        asked_ns = time.time_ns()
        profile = daemon.command("profile", "--out", str(kept))
        began_ns, ended_ns = profile["began_at_ns"], profile["ended_at_ns"]
        print(
            f"ordered {(began_ns - asked_ns) / 1e9:.1f} s after the command, exposed for "
            f"{(ended_ns - began_ns) / 1e9:.1f} s, reduced and shown {(time.time_ns() - ended_ns) / 1e9:.1f} s later"
        )
        daemon.wait_for(lambda: any(one["state"] == "kept" for one in profiles(daemon)), 10, "stored")
        assert (profile["state"], profile["method"], profile["reason"]) == ("kept", "kineto", "asked")
        assert profile["pid"] == server.scheduler_pid()
        assert profile["rank"] == "tp0"
        names = {kernel["name"] for kernel in profile["kernels"]}
        assert {"aten::mm", "aten::addmm", "aten::linear"} & names, sorted(names)
        assert {kernel["kind"] for kernel in profile["kernels"]} == {"cpu_op"}
        assert json.loads(kept.read_text())["traceEvents"]
        assert [path.name for path in channel.iterdir() if path.name.startswith("cyclewatch-")] == []
        daemon.wait_for(lambda: profiles(daemon)[0]["cost"], 60, "priced")
        (stored,) = profiles(daemon)
        shown = daemon.command("profiles", "show", str(stored["id"]))
        print(f"cost {shown['cost']}")
        assert len(shown["kernels"]) == len(profile["kernels"])
        assert shown["cost"]["cycles_during"] > 10
        assert traffic.totals.failures == 0
    page = daemon.get("/metrics")
    assert page is not None
    assert 'cyclewatch_profiles_total{reason="asked",state="kept"' in page


def test_a_profile_that_start_profile_takes_the_place_of_is_known_as_such(
    server: SGLangServer, daemon: Daemon, channel: Path, tmp_path: Path
) -> None:
    """Refused with that reason; once the other one is over, the next one works."""
    with Traffic(server.base_url, concurrency=CONCURRENCY, seconds=240):
        daemon.wait_for(lambda: registered(daemon) >= 3, 60, "asked by SGLang's processes")
        command = [*COMMAND, "profile", "--duration-ms", "4000", "--json", "--config", str(daemon.config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
            # Its file is opened when recording begins; looked at here, since a command takes a good part of the 4 s.
            daemon.wait_for(lambda: list(channel.glob("cyclewatch-*.tmp")), 40, "begun")
            time.sleep(1)
            started = StartedProfile(server.base_url, tmp_path, STEPS, gpu=False)
            with httpx.Client() as client:
                started.begin(client)
            answer, _ = asking.communicate(timeout=60)
            # Known at once, while the other one may still record: a profile begun now would go the same way.
            until_ns = time.monotonic_ns() + 120 * 10**9
            started.wait(1, lambda: time.monotonic_ns() > until_ns, lambda: time.sleep(0.5))
            started.remove()
        refused = json.loads(answer)
        assert refused["state"] == "refused"
        assert "/start_profile" in refused["detail"]
        assert asking.returncode == 1
        again = [*COMMAND, "profile", "--config", str(daemon.config)]
        # The file of the other one is there before all of it is written: until then the next goes the same way.
        daemon.wait_for(lambda: subprocess.run(again, check=False, timeout=60).returncode == 0, 240, "profiled again")


def test_an_unmodified_pytorch_program_is_sampled_by_its_pid(daemon: Daemon, channel: Path) -> None:
    python = sglang_environment(VERSION) / "bin/python"
    environment = {**os.environ, **kineto_environment(channel)}
    with subprocess.Popen([python, "-c", LOOP], env=environment, stderr=subprocess.DEVNULL) as loop:
        try:
            daemon.wait_for(lambda: registered(daemon) >= 1, 60, "asked by the program")
            profile = daemon.command("profile", "--pid", str(loop.pid))
        finally:
            loop.terminate()
    print(f"{profile['target']}: {[kernel['name'] for kernel in profile['kernels']]}")
    assert profile["state"] == "kept"
    assert profile["pid"] == loop.pid
    assert "aten::mm" in {kernel["name"] for kernel in profile["kernels"]}


@pytest.mark.story
def test_the_channel_costs_less_than_start_profile(
    server: SGLangServer, rings: Path, daemon: Daemon, tmp_path: Path
) -> None:
    """What both cost the same server under the same traffic, side by side, from its cycle records."""
    costs: dict[str, list[ProfileCost]] = {"daemon channel, 300 ms": [], f"/start_profile, {STEPS} steps": []}
    by_channel, by_http = costs.values()

    def take_by_channel() -> tuple[int, int]:
        profile = daemon.command("profile")
        offset_ns = time.time_ns() - time.monotonic_ns()
        return profile["began_at_ns"] - offset_ns, profile["ended_at_ns"] - offset_ns

    def take_by_http() -> tuple[int, int]:
        began_ns = time.monotonic_ns()
        started = StartedProfile(server.base_url, tmp_path, STEPS, gpu=False)
        with httpx.Client() as client:
            started.begin(client)
        started.wait(1, lambda: time.monotonic_ns() - began_ns > 120 * 10**9, lambda: time.sleep(0.5))
        return began_ns, time.monotonic_ns()

    with (
        RingTap(rings, CONCURRENCY) as tap,
        Traffic(server.base_url, concurrency=CONCURRENCY, seconds=800) as traffic,
    ):
        daemon.wait_for(lambda: registered(daemon) >= 3, 60, "asked by SGLang's processes")
        for _ in range(3):
            for measured, take in ((by_channel, take_by_channel), (by_http, take_by_http)):
                time.sleep(STRETCH_NS / 1e9 + 2)
                began_ns, ended_ns = take()
                time.sleep(STRETCH_NS / 1e9 + 2)
                measured.append(profile_cost(tap.records(began_ns - STRETCH_NS), began_ns, ended_ns))
        assert traffic.totals.failures == 0
    sys.stdout.write(f"\n{'':28}{'longest before':>16}{'longest during':>16}{'stall':>12}{'during':>9}{'after':>9}\n")
    for method, measured in costs.items():
        for cost in measured:
            sys.stdout.write(f"{method:28}{_row(cost)}\n")
    assert max(_stall_ns(cost) for cost in by_channel) < min(_stall_ns(cost) for cost in by_http)


def _stall_ns(cost: ProfileCost) -> int:
    assert cost.stall_ns is not None
    return cost.stall_ns


def _row(cost: ProfileCost) -> str:
    before, during = (cost.longest_before_ns or 0) / 1e6, (cost.longest_during_ns or 0) / 1e6
    figures = f"{before:13.1f} ms{during:13.1f} ms{_stall_ns(cost) / 1e6:9.1f} ms"
    return figures + "".join(f"{ratio - 1:+9.1%}" for ratio in (cost.during_ratio or 1, cost.after_ratio or 1))
