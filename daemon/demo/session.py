"""One showing of the demo: player, daemon, progress, and what was found."""

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.config.settings import Detection, Engine, Gpu, Host, Probe, Profiling, Rings, Settings
from cyclewatch.config.web import Web
from cyclewatch.daemon.alerts.message import Message, State
from cyclewatch.daemon.alerts.text import text_of
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.demo.recording import Recording
from cyclewatch.daemon.incidents.reconcile import Decision
from cyclewatch.daemon.incidents.wording import worded
from cyclewatch.daemon.reports.regression import regression_markdown
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import RegressionView
from cyclewatch.daemon.store.incidents import IncidentStore

_SETTLE_S = 15.0
"""Seconds of the recording's clock after its end: the last windows close and are stored."""

_FILES = ("cyclewatch.db", "cyclewatch.db-wal", "cyclewatch.db-shm", "metrics.txt", "report.md")
"""What an earlier showing may have left in the directory; nothing else there is touched."""

_STOP_TIMEOUT_S = 30.0


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


@dataclass(frozen=True)
class Shown:
    """What a showing left behind; `told` are messages as a chat shows them, `metrics`, `report`, `database` files."""

    found: list[RegressionView]
    told: list[str]
    metrics: Path
    report: Path
    database: Path


def show(
    recording: Recording, path: Path, directory: Path, speed: float, progress: Callable[[float, str], None]
) -> Shown:
    """Play `recording` (from `path`) to a daemon that keeps its store in `directory`; blocks until all is judged.

    `progress` is called with the seconds of the recording that have passed and a sentence.

    Raises:
        DemoError: no tmpfs for the ring, or the player ended early.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        (directory / name).unlink(missing_ok=True)
    with _ring_directory() as rings:
        real_origin_ns = time.monotonic_ns()
        origin = Now(recording.first_ns, int(recording.identity["wall_ns"]))
        clock = ScaledClock(origin, real_origin_ns, speed)
        server = Server(_settings(directory, rings), clock)
        command = [sys.executable, "-m", "cyclewatch.daemon.demo.player", str(rings), str(path)]
        command += ["--real-origin-ns", str(real_origin_ns), "--speed", str(speed)]
        thread = threading.Thread(target=server.run, name="daemon")
        with subprocess.Popen(command, stderr=subprocess.PIPE) as player:  # noqa: S603 (our own module)
            try:
                thread.start()
                metrics = _follow(recording, server, player, clock, progress)
            finally:
                player.terminate()
                server.stop()
                thread.join(_STOP_TIMEOUT_S)
    return _written(server, directory, metrics)


def _settings(directory: Path, rings: Path) -> Settings:
    """A short baseline, since the recording is short; only the rings, since only they were recorded."""
    return Settings(
        state_dir=directory,
        rings=Rings(directory=rings),
        engine=Engine(enabled=False),
        host=Host(enabled=False),
        gpu=Gpu(enabled=False),
        profiling=Profiling(enabled=False),
        probe=Probe(enabled=False),
        detection=Detection(reference_s=60, warmup_s=5, min_effect=0.1, persistence_s=30, false_alarms_per_hour=1),
        web=Web(port=0),
    )


@contextlib.contextmanager
def _ring_directory() -> Iterator[Path]:
    """A directory on tmpfs, removed afterwards."""
    shared_memory = Path("/dev/shm")  # noqa: S108 (mkdtemp makes a private directory in it)
    if not shared_memory.is_dir():
        raise DemoError(f"{shared_memory}: no such directory: the demo needs a tmpfs for its ring")
    with tempfile.TemporaryDirectory(prefix="cyclewatch-demo-", dir=shared_memory) as rings:
        yield Path(rings)


def _follow(
    recording: Recording,
    server: Server,
    player: "subprocess.Popen[bytes]",
    clock: ScaledClock,
    progress: Callable[[float, str], None],
) -> str:
    """Report progress until the recording has been played and judged; gives the last page of /metrics."""
    end_s = recording.length_s + _SETTLE_S
    while (passed_s := (clock.now().monotonic_ns - recording.first_ns) / 1e9) < end_s:
        if player.poll() not in (None, 0):
            reason = player.stderr.read().decode(errors="replace").strip().splitlines() if player.stderr else []
            raise DemoError(f"the player ended early: {reason[-1] if reason else 'no reason given'}")
        progress(passed_s, _sentence(server))
        time.sleep(0.1)
    with urllib.request.urlopen(f"{server.web.url}/metrics", timeout=5) as answer:  # noqa: S310 (our own loopback address)
        page: bytes = answer.read()
    return page.decode()


def _sentence(server: Server) -> str:
    """What the daemon is doing, from its own state."""
    phases = server.metrics.state.phases.values()
    decode = next((state for state in phases if state.phase == "decode"), None)
    if decode is None:
        return "the recording has ended" if server.history.regressions() else "waiting for the first window"
    if decode.baseline_progress < 1:
        return f"learning the baseline, decode {decode.median_s * 1e3:.2f} ms"
    expected = "" if decode.ratio is None else f", {decode.ratio - 1:+.1%} against expected"
    return f"{'REGRESSION, ' if decode.regression_open else ''}decode {decode.median_s * 1e3:.2f} ms{expected}"


def _written(server: Server, directory: Path, metrics: str) -> Shown:
    metrics_path, report = directory / "metrics.txt", directory / "report.md"
    metrics_path.write_text(metrics)
    found = server.history.regressions()
    report.write_text("\n".join(regression_markdown(view) for view in found) or "No regression was found.\n")
    return Shown(found, _told(server.settings), metrics_path, report, directory / "cyclewatch.db")


def _told(settings: Settings) -> list[str]:
    """What a chat would have been told of the incidents first."""
    engine = open_database(settings.database_url, create=False)
    try:
        incidents = IncidentStore(engine).incidents(ended=True)
    finally:
        engine.dispose()
    return [
        _as_text(worded(Decision(incident, tell=State.OPENED), incident.number, settings.incidents, told.at_ns))
        for incident in reversed(incidents)
        if (told := incident.told) is not None and incident.number is not None
    ]


def _as_text(message: Message) -> str:
    text = text_of(message)
    return "\n".join([text.title, *map(str, text.lines), text.where])
