"""A real PostgreSQL that goes away in every way, and a daemon that is killed meanwhile: nothing is lost or doubled."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from cyclewatch.daemon.store import postgres
from cyclewatch.daemon.store.database import StoreError, open_database
from outages import Outages, shuffled
from postgres_server import PostgresServer

SEED = 20261121


@pytest.fixture(name="server")
def _server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(name="resources")
def _resources() -> Iterator[ExitStack]:
    with ExitStack() as resources:
        yield resources


def test_nothing_is_lost_or_doubled_whatever_happens(tmp_path: Path, resources: ExitStack) -> None:
    """Of all that could be relied upon: each of it once, at random moments."""
    chance = random.Random(SEED)
    outages = Outages(tmp_path, chance, resources, small_disks=False)
    for event in shuffled([*outages.to_the_server, *outages.to_the_daemon], 6, chance):
        outages.happens(event)
    outages.all_is_there()


def test_a_full_disk_costs_nothing(tmp_path: Path, resources: ExitStack) -> None:
    """That of the database, and that of the spool while the database is away."""
    outages = Outages(tmp_path, random.Random(SEED), resources, small_disks=True)
    for event in (*outages.to_the_disks, outages.daemon_is_killed_when_the_disk_of_the_spool_is_full):
        outages.happens(event)
    outages.all_is_there()


@pytest.mark.story
@pytest.mark.timeout(3600)
def test_a_hundred_outages(tmp_path: Path, resources: ExitStack) -> None:
    """One daemon outlives the first fifty, ten minutes among them, in the same memory; then it dies, too."""
    chance = random.Random(SEED)
    outages = Outages(tmp_path, chance, resources, small_disks=True)
    outlived = [*outages.to_the_server, *outages.to_the_disks, outages.server_is_away_for_ten_minutes]
    outages.daemon.wait()
    survivor, rss_bytes = outages.daemon.process, []
    for event in shuffled(outlived, 50, chance):
        outages.happens(event)
        rss_bytes.append(survivor.memory_info().rss)
    early, late = max(rss_bytes[:20]), max(rss_bytes[-20:])
    print(f"RSS: at most {early / 2**20:.1f} MiB in the first twenty rounds, {late / 2**20:.1f} in the last")
    deadly = [*outages.to_the_daemon, outages.daemon_is_killed_when_the_disk_of_the_spool_is_full]
    for event in shuffled([*outlived, *deadly], 50, chance):
        outages.happens(event)
    outages.all_is_there()
    print(f"{outages.daemon.safe + 1} units, all there once")
    assert late < early * 1.1


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
