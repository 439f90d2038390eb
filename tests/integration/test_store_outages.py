"""A real PostgreSQL that goes away in every way, and a daemon that is killed meanwhile: nothing is lost or doubled."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

import outage_writer
from cyclewatch.daemon.store import models, postgres
from cyclewatch.daemon.store.database import StoreError, open_database
from cyclewatch.daemon.store.history import StoreHistory
from postgres_server import PostgresServer
from units import SECOND

ROUNDS = int(os.environ.get("CYCLEWATCH_TEST_OUTAGES", "10"))
"""How often something is killed; a hundred take ten minutes."""


@pytest.fixture(name="server")
def _server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


class Daemon:
    """The store's part of a daemon, in a process of its own."""

    def __init__(self, url: str, directory: Path) -> None:
        self._said = directory / "said"
        self._command = [sys.executable, outage_writer.__file__, url, str(directory)]
        self._process: subprocess.Popen[bytes] | None = None
        self.most_bytes = 0

    def start(self) -> None:
        with self._said.open("wb") as file:
            environment = {**os.environ, "PYTHONPATH": str(Path(outage_writer.__file__).parent)}
            self._process = subprocess.Popen(self._command, stdout=file, env=environment)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def runs(self) -> bool:
        """Whether it has come to write; starts it again where the database was away at its start."""
        if self._process is None or self._process.poll() is not None:
            self.start()
            return False
        self.most_bytes = max(self.most_bytes, psutil.Process(self._process.pid).memory_info().rss)
        return self.number("safe") is not None

    def number(self, word: str) -> int | None:
        """The last number that it said this of."""
        found = re.findall(rf"^{word} (\d+)$", self._said.read_text(), re.MULTILINE)
        return int(found[-1]) if found else None


def wait_for(daemon: Daemon) -> None:
    deadline = time.monotonic() + 120
    while not daemon.runs():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nothing_is_lost_or_doubled_whatever_is_killed(
    server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of all that could be relied upon, at random moments."""
    chance = random.Random(20261121)
    url = server.url(server.database())
    open_database(url, create=True).dispose()
    daemon, safe = Daemon(url, tmp_path), -1
    request.addfinalizer(daemon.kill)
    daemon.start()
    for _ in range(ROUNDS):
        wait_for(daemon)
        time.sleep(chance.uniform(0, 0.5))
        happens = chance.choice(["daemon", "crash", "away", "frozen", "both"])
        if happens in {"crash", "both"}:
            server.stop(signal.SIGKILL)
        elif happens == "away":
            server.stop(signal.SIGINT)
        elif happens == "frozen":
            server.freeze()
        time.sleep(chance.uniform(0, 0.7))
        if happens in {"daemon", "both"}:
            daemon.kill()
            safe = max(safe, daemon.number("safe") or 0)
        if happens in {"crash", "both", "away"}:
            server.start()
        elif happens == "frozen":
            server.thaw()
        if happens in {"daemon", "both"}:
            wait_for(daemon)
            began = daemon.number("start")
            assert began is not None
            assert began > safe, f"{safe} was safe, and it went on with {began}"
    wait_for(daemon)
    daemon.kill()
    last = daemon.number("safe")
    daemon.start()
    wait_for(daemon)
    daemon.kill()
    assert last is not None
    engine = open_database(url, create=False)
    with engine.connect() as connection:
        windows = connection.execute(select(models.WindowRow.start_ns).order_by(models.WindowRow.start_ns)).scalars()
        found = [start_ns // SECOND for start_ns in windows]
        keys = connection.execute(select(models.RegressionRow.key)).scalars().all()
    assert found == list(range(len(found)))
    assert len(found) > last
    assert sorted(keys) == sorted(f"r{number}" for number in found)
    state = StoreHistory(engine, "node").detector_state(outage_writer.KEY)
    assert state == {"version": 1, "number": found[-1]}
    engine.dispose()
    assert daemon.most_bytes < 2**28


def test_a_server_that_stands_still_is_given_up(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes what is sent and answers nothing; the one who asks must not wait for ever."""
    monkeypatch.setattr(postgres, "_ANSWER_S", 0.5)
    engine = open_database(server.url(server.database()), create=True)
    with engine.connect() as connection:
        server.freeze()
        with pytest.raises(OperationalError, match="did not answer within"):
            connection.execute(text("SELECT 1"))
        server.thaw()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


def test_who_asks_while_it_is_away_does_not_wait_again_and_again(server: PostgresServer) -> None:
    """After one failure the others fail at once; when it is back, so are they."""
    engine = open_database(server.url(server.database()), create=True)
    server.stop()
    for _ in range(200):
        with pytest.raises(OperationalError), engine.connect():
            pass
    server.start()
    deadline = time.monotonic() + 60
    while True:
        try:
            with engine.connect() as connection:
                assert connection.execute(text("SELECT 1")).scalar() == 1
        except OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            break
    engine.dispose()


def test_a_refused_password_is_one_sentence_without_it(server: PostgresServer) -> None:
    address = f"postgresql://nobody:s3cret@/nowhere?host={server.directory}&password=s3cret"
    with pytest.raises(StoreError) as caught:
        open_database(address, create=True)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
