"""The demo against a real SGLang on a CPU: `make demo-sglang`.

Starts SGLang with the hook, traffic and the daemon, slows the server down by its own `/slow_down`, and shows what the
daemon says of it. Takes about four minutes.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from daemon_process import Daemon, Phase
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import ROOT, ring_directory

VERSION = "0.5.23"
DETECTION = {"reference_s": 60, "warmup_s": 5, "min_effect": 0.15, "persistence_s": 20, "false_alarms_per_hour": 1}


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
    sys.stdout.flush()


def _state(daemon: Daemon) -> str:
    phase = daemon.phase("decode")
    if phase is None:
        return "waiting for cycles"
    ratio = "" if phase.ratio is None else f", {phase.ratio - 1:+.1%} against expected"
    return f"decode {phase.median_s * 1e3:.2f} ms, baseline {phase.baseline_progress:.0%}{ratio}"


def _watch(daemon: Daemon, reached: Callable[[Phase], bool], seconds: float) -> bool:
    """Show the state every 5 s until it is the one waited for; False where it does not come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        phase = daemon.phase("decode")
        _say(_state(daemon))
        if phase is not None and reached(phase):
            return True
        time.sleep(5)
    return False


def main() -> int:
    """Run the story; exit code 1 if the slowdown was not found."""
    venv = ROOT / ".sglang" / VERSION
    directory = ROOT / ".demo-sglang"
    shutil.rmtree(directory, ignore_errors=True)
    for rings in ring_directory():
        with tempfile.TemporaryDirectory() as workdir:
            _say(f"starting SGLang {VERSION} on the CPU")
            environment = {"CYCLEWATCH_RING_DIR": str(rings)}
            with (
                SGLangServer(venv, VERSION, Path(workdir), extra_env=environment) as server,
                Daemon(directory, rings, DETECTION) as daemon,
                Traffic(server.base_url, concurrency=4, seconds=400),
            ):
                _say(f"watching {server.base_url}; metrics at {daemon.url}/metrics")
                _watch(daemon, lambda phase: phase.baseline_progress == 1.0, 120)
                _say("POST /slow_down: every forward pass 1 ms longer")
                server.slow_down(0.001)
                found = _watch(daemon, lambda phase: phase.regression_open, 90)
                _say("POST /slow_down: null")
                server.slow_down(None)
                _watch(daemon, lambda phase: not phase.regression_open, 90)
                for one in reversed(daemon.regressions()):
                    cause = one["causes"][0]["subject"] if one["causes"] else "not shown"
                    _say(f"{one['phase']}: {one['effect']:+.1%}, {one['state']}, first cause: {cause}")
    _say(f"database: {directory / 'cyclewatch.db'}, log: {directory / 'daemon.log'}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
