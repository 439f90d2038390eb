"""A daemon's store, the PostgreSQL that it writes to, and all that happens to either at random moments."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
from sqlalchemy import func, select

import outage_writer
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from postgres_server import PostgresServer
from small_disk import SmallDisk
from units import SECOND

_PATIENCE_S = 120
_POLL_S = 0.02
_MOMENT_S = 0.3
_LONG_UNITS = 600
"""What ten minutes leave, a unit a second."""

_SAID_BYTES = 200


Event = Callable[[], None]


class Daemon:
    """The store's part of a daemon, in a process of its own. `safe` is the last number that could be relied upon."""

    def __init__(self, url: str, directory: Path) -> None:
        self._said = directory / "said"
        self._command = [sys.executable, outage_writer.__file__, url, str(directory)]
        self._process: subprocess.Popen[bytes] | None = None
        self._safe_before = -1
        self.safe = -1

    @property
    def process(self) -> psutil.Process:
        """The one that runs now."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def start(self) -> None:
        self._safe_before = self.safe
        with self._said.open("wb") as file:
            places = [str(Path(outage_writer.__file__).parent), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
            self._process = subprocess.Popen(self._command, stdout=file, env=environment)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def ask_to_end(self) -> None:
        self._end(signal.SIGTERM)

    def wait(self, number: int = 0) -> None:
        """Wait until it writes again, and until `number` is safe; start it where the database was away at its start."""
        wait_until(lambda: self._writes() and self.safe >= number)

    def advances(self) -> bool:
        """Whether more becomes safe within a moment."""
        before = self.safe
        time.sleep(_MOMENT_S)
        return not self._hear() or self.safe > before

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(_PATIENCE_S)
        self._hear()
        self._process = None

    def _writes(self) -> bool:
        ended = None if self._process is None else self._process.poll()
        assert ended in {None, outage_writer.AWAY}
        if self._process is None or ended is not None:
            self.start()
        return self._hear()

    def _hear(self) -> bool:
        """Take in what it has said; whether it writes. It must have gone on after what was safe."""
        with self._said.open() as file:
            first = file.readline().split()
            file.seek(max(file.tell(), self._said.stat().st_size - _SAID_BYTES))
            *lines, _ = file.read().split("\n")
        if not first or not lines:
            return False
        assert int(first[1]) > self._safe_before, f"{self._safe_before} was safe, and it went on with {first[1]}"
        self.safe = max(self.safe, int(lines[-1].split()[1]))
        return True


class Outages:
    """Both sides, on disks that can become full where `small_disks`. Each public method is something that happens."""

    def __init__(self, directory: Path, chance: random.Random, resources: ExitStack, *, small_disks: bool) -> None:
        self._chance = chance
        data = None
        if small_disks:
            data = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="cyclewatch-disk-")))
            self._data_disk = _disk(data, resources)
            self._spool_disk = _disk(directory / "spool", resources)
        self._server = PostgresServer(data)
        resources.callback(self._server.close)
        self._start()
        url = self._server.url(self._server.database())
        self._engine = open_database(url, create=True)
        resources.callback(self._engine.dispose)
        self.daemon = Daemon(url, directory)
        resources.callback(self.daemon.kill)
        self.daemon.start()

    def daemon_is_killed(self) -> None:
        self.daemon.kill()

    def server_is_killed(self) -> None:
        self._server.stop(signal.SIGKILL)
        self._pause()
        self._start()

    def server_is_restarted(self) -> None:
        self._server.stop()
        self._pause()
        self._start()

    def both_are_killed(self) -> None:
        self._server.stop(signal.SIGKILL)
        self._pause()
        self.daemon.kill()
        self._start()

    def server_hangs(self) -> None:
        self._server.freeze()
        self._pause()
        self._server.thaw()

    def server_hangs_when_the_daemon_is_to_end(self) -> None:
        self._server.freeze()
        self._pause()
        self.daemon.ask_to_end()
        self._server.thaw()

    def server_is_away_for_ten_minutes(self) -> None:
        self._server.stop()
        self.daemon.wait(self.daemon.safe + _LONG_UNITS)
        self._start()

    def disk_of_the_server_is_full(self) -> None:
        refused = self._server.refused_for_room()
        self._data_disk.fill()
        wait_until(lambda: self._server.refused_for_room() > refused)
        self._pause()
        self._data_disk.free()
        if not self._server.answers():  # without room for its log it ends
            self._start()

    def disk_of_the_spool_is_full(self) -> None:
        """While the database is away; either may be mended first."""
        self._fill_spool()
        for mend in self._chance.sample([self._start, self._spool_disk.free], 2):
            mend()
            self._pause()

    def daemon_is_killed_when_the_disk_of_the_spool_is_full(self) -> None:
        self._fill_spool()
        self.daemon.kill()
        self._spool_disk.free()
        self._start()

    @property
    def to_the_server(self) -> list[Event]:
        """What the daemon outlives."""
        return [self.server_is_killed, self.server_is_restarted, self.server_hangs]

    @property
    def to_the_daemon(self) -> list[Event]:
        """What it does not."""
        return [self.daemon_is_killed, self.both_are_killed, self.server_hangs_when_the_daemon_is_to_end]

    @property
    def to_the_disks(self) -> list[Event]:
        """What it outlives, too."""
        return [self.disk_of_the_server_is_full, self.disk_of_the_spool_is_full]

    def happens(self, what: Event) -> None:
        """One round: at a random moment while it writes, this; then it writes again, and all is in order.

        Every other time the database gets as far as the daemon was; or it would never see the end of the spool.
        """
        self.daemon.wait()
        self._pause()
        what()
        self.daemon.wait()
        stored, safe = self.check(), self.daemon.safe
        if self._chance.random() < 0.5:
            self._database_has(safe)
        print(f"{what.__name__}: {safe + 1} units are safe, {stored} were in the database", flush=True)

    def check(self) -> int:
        """How many units the database has: at any moment all up to some number, each once."""
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")
            count, last_ns = connection.execute(
                select(func.count(), func.max(models.WindowRow.start_ns)).select_from(models.WindowRow)
            ).one()
            regressions = connection.execute(select(func.count()).select_from(models.RegressionRow)).scalar_one()
        assert count == regressions == (0 if last_ns is None else last_ns // SECOND + 1)
        return int(count)

    def all_is_there(self) -> None:
        """Nothing lost, nothing doubled, and what is newest stands last, after all has been written."""
        self.daemon.wait()
        self.daemon.ask_to_end()
        safe = self.daemon.safe
        self.daemon.wait()
        self._database_has(safe)
        self.daemon.kill()
        self.check()
        with self._engine.connect() as connection:
            starts = connection.execute(select(models.WindowRow.start_ns).order_by(models.WindowRow.start_ns)).scalars()
            found = [start_ns // SECOND for start_ns in starts]
            keys = set(connection.execute(select(models.RegressionRow.key)).scalars())
        assert found == list(range(len(found)))
        assert keys == {f"r{number}" for number in found}
        state = StoreHistory(self._engine, outage_writer.NODE).detector_state(outage_writer.KEY)
        assert state is not None
        assert state["number"] == found[-1]

    def _database_has(self, number: int) -> None:
        """Wait until it has this unit, too; however long that takes, as long as it gets further."""
        while (stored := self.check()) <= number:
            wait_until(lambda stored=stored: self.check() > stored)  # type: ignore[misc]

    def _fill_spool(self) -> None:
        """Until neither database nor disk take anything, and the units wait in memory."""
        self._server.stop()
        self._spool_disk.fill()
        wait_until(lambda: not self.daemon.advances())
        self._pause()

    def _start(self) -> None:
        self._server.start("max_wal_size=64MB", "fsync=off")  # processes are killed, never the machine

    def _pause(self) -> None:
        time.sleep(self._chance.uniform(0, 0.5))


def shuffled(events: list[Event], rounds: int, chance: random.Random) -> Iterator[Event]:
    """`rounds` of them, each as often as the others, in random order."""
    while rounds > 0:
        deck = chance.sample(events, len(events))[:rounds]
        rounds -= len(deck)
        yield from deck


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(_POLL_S)


def _disk(place: Path, resources: ExitStack) -> SmallDisk:
    disk = SmallDisk(place)
    resources.callback(disk.close)
    return disk
