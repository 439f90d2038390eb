"""The configuration read again while the daemon runs."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import rings
from cyclewatch.config.load import ConfigError
from cyclewatch.config.settings import Detection, Gpu, Log, Settings, Target
from cyclewatch.config.store import Store
from cyclewatch.config.web import Web
from cyclewatch.daemon.reload import reloaded
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store import models
from notify_socket import NotifySocket, listening
from rings import PlainRing
from simulated import server
from watched import QUICK, SECOND, Replay, Watched

WINDOWS = 44
SLOWER = {30: 1.2}
PACE_S = 0.01
DEAF = QUICK.model_copy(update={"detection": QUICK.detection.model_copy(update={"min_effect": 0.5})})


pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def test_what_can_change_is_taken_over_and_what_waits_is_named() -> None:
    """Without its value, which may be secret."""
    running = Settings(node="a")
    wanted = Settings(
        node="b",
        detection=Detection(min_effect=0.1, warmup_s=5),
        log=Log(level="debug"),
        gpu=Gpu(interval_s=7),
        store=Store(url="postgresql://cyclewatch:s3cret@db/x"),
        targets=(Target.model_validate({"name": "one", "url": "http://127.0.0.1:30000"}),),
    )
    found = reloaded(running, wanted)
    assert found.settings == running.model_copy(update={"detection": wanted.detection, "log": wanted.log})
    assert found.changed == ("detection.warmup_s", "detection.min_effect", "log.level")
    assert found.waiting == ("node", "targets", "gpu.interval_s", "store.url")


def test_what_is_the_same_is_not_spoken_of() -> None:
    found = reloaded(Settings(), Settings())
    assert (found.settings, found.changed, found.waiting) == (Settings(), (), ())


@pytest.mark.parametrize("case", range(5))
def test_reloads_of_the_same_settings_change_no_verdict(watched: Watched, tmp_path: Path, case: int) -> None:
    """At random moments: the windows, the levels and the regression are those of a daemon that is left alone."""
    chance = random.Random(case)
    story = list(server(WINDOWS, seed=case, slower=SLOWER))
    (tmp_path / "alone").mkdir()
    alone = Watched(tmp_path / "alone")
    Replay(alone, story).run()
    replay = Replay(watched, story)
    for at_s in sorted(chance.sample(range(1, WINDOWS * 5), 6)):
        replay.run(at_s * SECOND)
        watched.pipeline.take_settings(QUICK)
    replay.run()
    for table in (models.WindowRow, models.LevelRow):
        assert len(watched.rows(table)) == len(alone.rows(table))
    assert watched.history.regressions(all_directions=True) == alone.history.regressions(all_directions=True) != []
    alone.close()


OTHERS = (
    {"history_s": 120.0},
    {"history_s": 86_400.0},
    {"reference_s": 30.0},
    {"reference_s": 400.0},
    {"persistence_s": 600.0, "min_cycles": 1},
    {"min_cycles": 100_000, "warmup_s": 1000.0},
    {"false_alarms_per_hour": 10.0, "min_effect": 0.9, "min_tail_effect": 0.9},
)


@pytest.mark.parametrize("case", range(5))
def test_any_settings_can_follow_any_others(watched: Watched, case: int) -> None:
    """Longer and shorter histories, baselines half learned: it goes on, stores every window, and can be restarted."""
    chance = random.Random(case)
    replay = Replay(watched, list(server(WINDOWS, seed=case, slower=SLOWER)))
    for at_s in range(10, WINDOWS * 5, 10):
        replay.run(at_s * SECOND)
        changes = {key: value for one in chance.sample(OTHERS, 2) for key, value in one.items()}
        detection = QUICK.detection.model_copy(update=changes)
        watched.pipeline.take_settings(QUICK.model_copy(update={"detection": detection}))
        if chance.random() < 0.2:
            replay.kill(chance)
    watched.lag = 0
    replay.run()
    assert len({row.start_ns for row in watched.rows(models.WindowRow)}) == WINDOWS


def test_detection_goes_by_the_new_settings_from_then_on(watched: Watched) -> None:
    """The baseline stays: a slowdown that was too small to be reported is reported once smaller ones are."""
    watched.pipeline.take_settings(DEAF)
    replay = Replay(watched, server(WINDOWS, seed=1, slower=SLOWER))
    replay.run(40 * 5 * SECOND)
    assert watched.history.regressions(all_directions=True) == []
    watched.pipeline.take_settings(QUICK)
    replay.run()
    (found,) = watched.history.regressions(all_directions=True)
    assert found.started_at_ns < found.detected_at_ns


def test_a_wrong_configuration_leaves_everything_as_it_is(tmp_path: Path) -> None:
    """One line, and a counter."""

    def wrong() -> Settings:
        raise ConfigError("a.toml: detection.min_efect: no such key\na.toml: nod: no such key")

    daemon = Server(Settings(state_dir=tmp_path), load=wrong)
    before = daemon.settings
    with capture_logs() as events:
        daemon._reload()
    assert daemon.settings is before
    assert [(one["log_level"], one["reason"]) for one in events] == [
        ("error", "a.toml: detection.min_efect: no such key; a.toml: nod: no such key")
    ]
    value = daemon.metrics.registry.get_sample_value
    assert value("cyclewatch_configuration_reloads_total", {"result": "refused"}) == 1
    daemon._engine.dispose()


def test_messages_go_by_the_new_settings_and_only_then_is_anything_begun_anew(tmp_path: Path) -> None:
    """A sink that is added gets its courier; the outbox is in the database."""
    sink = {"type": "webhook", "url": "http://127.0.0.1:9/"}
    wanted = [
        Settings(state_dir=tmp_path, log=Log(level="error")),
        Settings.model_validate({"state_dir": tmp_path, "alerts": {"sinks": {"team": sink}}}),
    ]
    daemon = Server(Settings(state_dir=tmp_path), load=lambda: wanted.pop(0))
    daemon._alerting.start()
    before = daemon._alerting._delivery
    daemon._reload()
    assert daemon._alerting._delivery is before
    daemon._reload()
    assert daemon._alerting._delivery is not before
    assert [thread.name for thread in threading.enumerate() if "team" in thread.name]
    daemon._alerting.stop()
    assert not [thread.name for thread in threading.enumerate() if "team" in thread.name]
    daemon._engine.dispose()


class Service:
    """The real daemon, started as systemd starts it, beside a scheduler that writes a cycle every 10 ms."""

    def __init__(self, directory: Path, heard: NotifySocket) -> None:
        self.heard = heard
        self.config = directory / "cyclewatch.toml"
        self.state = directory / "state"
        (directory / "rings").mkdir()
        self._ring = PlainRing(directory / "rings", 16384)
        self._ends = threading.Event()
        self._writer = threading.Thread(target=self._write)
        self.first_ns = time.monotonic_ns()
        self.configure()

    def configure(self, extra: str = "") -> None:
        self.config.write_text(
            f"state_dir = '{self.state}'\n[rings]\ndirectory = '{self.state.parent}/rings'\ninterval_s = 0.5\n"
            f"[web]\nport = 0\n[windows]\nlength_s = 1.0\n[gpu]\nenabled = false\n[host]\nenabled = false\n{extra}"
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        self._writer.start()
        command = [sys.executable, "-m", "cyclewatch.daemon", "run", "-c", str(self.config)]
        environment = {**os.environ, "NOTIFY_SOCKET": self.heard.address, "WATCHDOG_USEC": "2000000"}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            try:
                self.heard.wait_for("READY")
                yield process
            finally:
                process.kill()
                self._ends.set()
                self._writer.join()
                self._ring.close()

    def _write(self) -> None:
        while not self._ends.wait(PACE_S):
            self._ring.write(rings.payload(end_ns=time.monotonic_ns()))

    def windows(self) -> list[tuple[int, int]]:
        """Start in seconds and cycles of each stored window."""
        question = "SELECT start_ns / 1000000000, sum(count) FROM windows GROUP BY start_ns ORDER BY start_ns"
        with contextlib.closing(sqlite3.connect(self.state / "cyclewatch.db")) as connection:
            return connection.execute(question).fetchall()


@pytest.fixture(name="service")
def _service(tmp_path: Path) -> Iterator[Service]:
    with listening(tmp_path / "notify") as heard:
        yield Service(tmp_path, heard)


def test_hangups_leave_no_gap_and_systemd_hears_of_each(service: Service) -> None:
    """Good ones, wrong ones, and one that asks for what needs a restart."""
    extras = ["[detection]\nmin_effect = 0.1\n", "[detection]\nmin_efect = 0.1\n", "[store]\nmax_pending = 500\n", ""]
    with service.running() as process:
        for number, extra in enumerate(extras, start=2):
            service.configure(extra)
            process.send_signal(signal.SIGHUP)
            service.heard.wait_for("READY", number)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert len(service.heard.said("RELOADING")) == len(service.heard.said("MONOTONIC_USEC")) == len(extras)
    assert service.heard.said("STOPPING") == ["1"]
    assert service.heard.said("WATCHDOG")
    assert "servers watched: 1" in service.heard.said("STATUS")[-2]
    assert "did you mean detection.min_effect?" in log
    assert "need_restart=['store.max_pending']" in log
    windows = service.windows()
    starts = [start for start, _ in windows]
    assert starts == list(range(starts[0], starts[0] + len(starts)))
    assert len(starts) >= len(extras)


def test_a_turn_that_hangs_misses_its_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is fed by the loop that does the work, and by nothing else."""
    with listening(tmp_path / "notify") as heard:
        monkeypatch.setenv("NOTIFY_SOCKET", heard.address)
        monkeypatch.setenv("WATCHDOG_USEC", "1000")
        monkeypatch.setattr("cyclewatch.daemon.server._TURN_S", 0.1)
        daemon = Server(Settings(state_dir=tmp_path / "state", web=Web(enabled=False), gpu=Gpu(enabled=False)))
        hangs, hanging, goes_on = threading.Event(), threading.Event(), threading.Event()
        turn = daemon.pipeline.turn

        def hang(now: object) -> None:
            turn(now)  # type: ignore[arg-type]
            if hangs.is_set():
                hanging.set()
                goes_on.wait(60)

        monkeypatch.setattr(daemon.pipeline, "turn", hang)
        thread = threading.Thread(target=daemon.run)
        thread.start()
        heard.wait_for("READY")
        heard.wait_for("WATCHDOG", 2)
        hangs.set()
        assert hanging.wait(60)
        time.sleep(0.2)  # what was said before is heard
        fed = len(heard.said("WATCHDOG"))
        time.sleep(0.5)
        assert len(heard.said("WATCHDOG")) == fed
        hangs.clear()
        goes_on.set()
        heard.wait_for("WATCHDOG", fed + 1)
        daemon.stop()
        thread.join(20)
    assert heard.said("STOPPING") == ["1"]
