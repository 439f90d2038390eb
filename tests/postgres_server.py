"""A real PostgreSQL for the tests: on a Unix socket in a directory of its own, of a user that is not root."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

_TIMEOUT_S = 60


def programs() -> Path:
    """Where `initdb` and `postgres` are; skips the test where there are none."""
    for place in (shutil.which("initdb"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)):
        if place is not None:
            return Path(place).resolve().parent
    pytest.skip("there is no PostgreSQL here: apt-get install postgresql")


class PostgresServer:
    """One server; every process it has was started here and is known by its number."""

    def __init__(self, data: Path | None = None) -> None:
        """`data` is an empty directory for what it stores, where that is to lie elsewhere."""
        self._programs = programs()
        self._user = _other_user() if os.geteuid() == 0 else None
        self.directory = Path(tempfile.mkdtemp(prefix="cyclewatch-pg-"))
        self._data = data or self.directory / "data"
        if self._user is not None:
            for place in filter(Path.exists, (self.directory, self._data)):
                os.chown(place, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "cyclewatch", "--no-sync", "-E", "UTF8")
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0

    @property
    def runs(self) -> bool:
        """Whether it is there, be it that it stands still."""
        return self._process is not None and self._process.poll() is None

    def start(self, *options: str) -> None:
        """Start, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", self._data, "-k", self.directory, "-c", "listen_addresses=", "-c", "max_connections=30"),
                    *(part for option in options for part in ("-c", option)),
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
                **self._as_user(),
            )
        assert self.answers(), (self.directory / "log").read_text()

    def answers(self) -> bool:
        """Wait until it answers; False where it ended meanwhile."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self.ask("SELECT 1")
            except psycopg.OperationalError:
                if not self.runs:
                    return False
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return True

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT in order, SIGQUIT without, SIGKILL as a crash; wait until nothing of it is left."""
        if self._process is not None and self.runs:
            family = [*psutil.Process(self._process.pid).children(recursive=True), psutil.Process(self._process.pid)]
            self._process.send_signal(number)
            self._process.wait(_TIMEOUT_S)
            psutil.wait_procs(family, _TIMEOUT_S)
        self._process = None

    def refused_for_room(self) -> int:
        """How often its disk was full."""
        return (self.directory / "log").read_text(errors="replace").count("No space left on device")

    def freeze(self) -> None:
        """Let all of it stand still: connections stay, and nobody answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """End it and leave nothing behind."""
        if self.runs:
            self.thaw()
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """What it answers."""
        place = f"host={self.directory} user=cyclewatch dbname={database}"
        with psycopg.connect(place, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def database(self, template: str = "template1") -> str:
        """The name of a new database."""
        self._count += 1
        name = f"d{self._count}"
        self.ask(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def url(self, database: str) -> str:
        """The address of one of its databases."""
        return f"postgresql+psycopg://cyclewatch@/{database}?host={self.directory}"

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that was given up ends as soon as it may
                process.send_signal(number)

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._programs / program, *words],
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
            **self._as_user(),
        )

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [], "cwd": "/"}


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
