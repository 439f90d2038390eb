"""`cyclewatch doctor --impact`: a real daemon in this process, a ring that is written meanwhile."""

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import rings
from cyclewatch.config.settings import Discovery, Engine, Gpu, Profiling, Rings, Settings
from cyclewatch.config.web import Web
from cyclewatch.daemon import impact
from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.control import ControlError
from cyclewatch.daemon.impact import ImpactError, RankImpact, measure
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store.database import open_database
from cyclewatch.detectors.costs.impact import Impact
from cyclewatch.detectors.phases import Phase
from rings import PlainRing


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(name="settings")
def _settings() -> Iterator[Settings]:
    """A directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        settings = Settings(
            state_dir=Path(directory),
            rings=Rings(directory=Path(directory) / "rings", interval_s=0.05),
            engine=Engine(enabled=False),
            discovery=Discovery(enabled=False),
            gpu=Gpu(enabled=False),
            profiling=Profiling(enabled=False),
            web=Web(port=0),
        )
        settings.rings.directory.mkdir()
        open_database(settings.database_url, create=True).dispose()
        yield settings


@pytest.fixture(name="server")
def _server(settings: Settings) -> Iterator[Server]:
    server = Server(settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server._turns > 0)
    yield server
    server.stop()
    thread.join(10)


@contextlib.contextmanager
def traffic(directory: Path) -> Iterator[PlainRing]:
    """A scheduler that writes some 200 cycles a second."""
    ring, ended = PlainRing(directory, 4096, rings.identity()), threading.Event()

    def write() -> None:
        while not ended.wait(0.005):
            ring.write(rings.payload(end_ns=time.monotonic_ns()))

    thread = threading.Thread(target=write)
    thread.start()
    yield ring
    ended.set()
    thread.join()
    ring.close()


def test_a_server_is_measured_with_and_without_sampling(server: Server, settings: Settings) -> None:
    """Cycles of one length: the effect is none, to the last digit; and the daemon samples again."""
    said: list[str] = []
    with traffic(settings.rings.directory):
        (rank,) = measure(settings, 3, 0.5, said.append)
    assert said == ["pair 1 of 3, 1 s", "pair 2 of 3, 1 s", "pair 3 of 3, 1 s"]
    assert (rank.target, rank.rank) == ("127.0.0.1:30000", "tp0")
    (found,) = rank.phases
    assert (found.phase, found.pairs, found.effect) == (Phase.DECODE, 3, 0.0)
    assert found.cycles > 100
    assert not server._pause.active


def test_a_server_without_traffic_tells_nothing(server: Server, settings: Settings) -> None:
    ring = PlainRing(settings.rings.directory, 64, rings.identity())
    assert measure(settings, 3, 0.05, lambda _: None) == [RankImpact("127.0.0.1:30000", "tp0", ())]
    ring.close()


def test_without_a_ring_there_is_nothing_to_measure(server: Server, settings: Settings) -> None:
    (settings.rings.directory / "1-2-3.ring").write_bytes(b"garbage")
    with pytest.raises(ImpactError, match="no ring in"):
        measure(settings, 3, 0.05, lambda _: None)


def test_without_a_daemon_there_is_no_pause(settings: Settings) -> None:
    ring = PlainRing(settings.rings.directory, 64, rings.identity())
    with pytest.raises(ControlError, match="no daemon runs"):
        measure(settings, 3, 0.05, lambda _: None)
    ring.close()


def doctor(tmp_path: Path, *arguments: str) -> Result:
    config = tmp_path / "cyclewatch.toml"
    config.write_text(f"state_dir = '{tmp_path}'\n[rings]\ndirectory = '{tmp_path}'\n")
    return CliRunner().invoke(app, ["doctor", "--impact", *arguments, "--config", str(config)])


@pytest.fixture(name="measured")
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take two minutes."""
    found = Impact(Phase.DECODE, 0.001, (-0.003, 0.005), 6, 12_345, 5.25e6)
    ranks = [RankImpact("prod", "tp0", (found,)), RankImpact("prod", "tp1", ())]
    monkeypatch.setattr(impact, "measure", lambda *_: ranks)


@pytest.mark.usefixtures("measured")
def test_people_get_a_sentence_a_phase(tmp_path: Path) -> None:
    first, second = doctor(tmp_path).output.splitlines()
    sentence = "sampling makes decode cycles 0.1% longer (-0.3% to +0.5%), which may be chance"
    assert first == f"prod tp0: {sentence}; 12,345 cycles of 5.250 ms in 6 pairs"
    assert second == "prod tp1: too few cycles to tell: is there traffic?"


@pytest.mark.usefixtures("measured")
def test_programs_get_json(tmp_path: Path) -> None:
    document = json.loads(doctor(tmp_path, "--json", "--seconds", "5", "--pairs", "4").output)
    assert (document["seconds"], document["pairs"]) == (5, 4)
    (phase,) = document["ranks"][0]["phases"]
    assert (phase["phase"], phase["effect"], phase["ci"]) == ("decode", 0.001, [-0.003, 0.005])
    assert phase["sentence"].startswith("sampling makes decode cycles")
    assert document["ranks"][1] == {"target": "prod", "rank": "tp1", "phases": []}


def test_what_cannot_be_measured_is_one_sentence(tmp_path: Path) -> None:
    answer = doctor(tmp_path)
    assert answer.exit_code == 1
    assert answer.stderr == f"cyclewatch: no ring in {tmp_path}: `cyclewatch doctor` says why\n"
