"""The real SGLang 0.5.23 publishing its forward-pass metrics, and the real daemon watching it without a ring.

SGLang times passes with the events of the device, which torch does not have on a CPU: there the server dies at its
first pass. A stand-in for `torch.cpu.Event` alone, which reads the clock, lets all the rest run as it is.
"""

import time
from pathlib import Path

import numpy as np
import pytest

from daemon_process import Daemon
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import RingTap, ring_directory, sglang_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(600)]

CONCURRENCY = 4
EVENTS = """
import sys

if not any("resource_tracker" in word for word in sys.orig_argv):
    import time

    import torch.cpu

    class Event(torch.cpu.Event):
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls)

        def __init__(self, enable_timing=False):
            self.at_ns = 0

        def record(self, stream=None):
            self.at_ns = time.monotonic_ns()

        def query(self):
            return True

        def elapsed_time(self, end):
            return (end.at_ns - self.at_ns) / 1e6

    torch.cpu.Event = Event
"""
rings = pytest.fixture(ring_directory)


def test_forward_passes_are_watched_where_there_is_no_ring(rings: Path, tmp_path: Path) -> None:
    """As many as there are cycles, none lost, and each a little shorter than the `run_batch` that the hook times."""
    venv = sglang_environment("0.5.23")
    (site := tmp_path / "site").mkdir()
    (site / "sitecustomize.py").write_text(EVENTS)
    (elsewhere := rings / "elsewhere").mkdir()  # the hook writes here for the comparison; the daemon looks elsewhere
    server = SGLangServer(
        venv,
        "0.5.23",
        tmp_path / "sglang",
        extra_env={"PYTHONPATH": str(site), "CYCLEWATCH_RING_DIR": str(rings)},
        extra_args=["--enable-forward-pass-metrics", "--forward-pass-metrics-ipc-name", f"ipc://{rings}/passes"],
    )
    with server, Traffic(server.base_url, concurrency=CONCURRENCY, seconds=120), RingTap(rings, CONCURRENCY) as tap:
        began_ns = time.monotonic_ns()
        target = f'[[targets]]\nname = "chat"\nurl = "{server.base_url}"\n'
        with Daemon(tmp_path / "daemon", elsewhere, {"reference_s": 60, "warmup_s": 0}, target) as daemon:
            waited_s = daemon.wait_for(lambda: daemon.phase("decode"), 60, "watched")
            time.sleep(15)
            phase, looked_ns = daemon.phase("decode"), time.monotonic_ns()
            time.sleep(2)
            (rank,) = daemon.command("status")["targets"]["chat"]["ranks"]
            ended_ns = time.monotonic_ns()
        records = tap.records(began_ns, ended_ns)
        # Of about the window that the page shows: a shared machine changes its pace within a minute.
        near = tap.records(looked_ns - 15 * 10**9, looked_ns)
        launch_ms = float(np.median(near[near["batch_size"] == CONCURRENCY]["launch_ns"])) / 1e6
    assert phase is not None
    print(f"watched after {waited_s:.0f} s: decode {phase.median_s * 1e3:.3f} ms of run_batch's {launch_ms:.3f} ms")
    print(f"{rank['read']} passes, {len(records)} records of the ring in all the time")
    assert (rank["rank"], rank["lost"], rank["torn"]) == ("dp0", 0, 0)
    assert 100 < rank["read"] <= len(records)
    assert 0.3 * launch_ms < phase.median_s * 1e3 < 1.2 * launch_ms
