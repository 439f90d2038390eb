"""Both databases for the same tests: a file, and a real PostgreSQL. Ask for `address`.

conftest.py imports the fixtures, and nobody else: each module that imports a fixture of the session has one of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cyclewatch.daemon.store.database import open_database
from postgres_server import PostgresServer


@pytest.fixture(scope="session", name="postgres")
def _postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process, with a database `ready` that has the schema."""
    server = PostgresServer()
    try:
        server.start("fsync=off")
        server.ask("CREATE DATABASE ready")
        open_database(server.url("ready"), create=True).dispose()
        yield server
    finally:
        server.close()


@pytest.fixture(name="address", params=["sqlite", "postgresql"])
def _address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, or of one that has the schema."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'a.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.database("ready"))
