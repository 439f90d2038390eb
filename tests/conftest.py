"""What holds for every test."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
import structlog
from hypothesis import settings
from sqlalchemy import Engine, inspect, make_url
from structlog.testing import capture_logs

from cyclewatch.daemon.store import migrate
from cyclewatch.daemon.store.sqlite import sqlite_engine
from databases import _address, _postgres  # noqa: F401 (fixtures)

# On a busy machine an example may take its time; a failing one prints how to get it again. Every run draws others, so
# that half the usual number finds as much in two runs.
settings.register_profile("cyclewatch", deadline=None, print_blob=True, max_examples=50)
settings.load_profile("cyclewatch")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nothing is rendered: without a configuration structlog draws every traceback with all local variables."""
    with capture_logs():
        yield


@pytest.fixture(name="logging_as_before")
def _logging_as_before() -> Iterator[None]:
    """For tests in which the daemon sets up its log: afterwards it is as it was."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Migrations make the schema of an empty SQLite file once; other files are given a copy of it.

    They take longer than most tests that need a database. Files that have a schema are upgraded as they always are.
    """
    upgrade, ready = migrate.upgrade, tmp_path_factory.mktemp("schema") / "ready.db"

    def upgrade_or_copy(engine: Engine) -> None:
        if engine.dialect.name != "sqlite" or inspect(engine).get_table_names():
            upgrade(engine)
            return
        if not ready.exists():
            first = sqlite_engine(make_url(f"sqlite:///{ready}"))
            upgrade(first)
            first.dispose()
        with closing(sqlite3.connect(ready)) as made, closing(engine.raw_connection()) as empty:
            assert isinstance(empty.driver_connection, sqlite3.Connection)
            made.backup(empty.driver_connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "upgrade", upgrade_or_copy)
        yield
