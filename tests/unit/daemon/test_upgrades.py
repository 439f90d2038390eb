"""Databases of every earlier schema, on both databases: what they hold stays, and the newest release can use them."""

from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    Boolean,
    Connection,
    Engine,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    create_engine,
    func,
    inspect,
    select,
)

from cyclewatch.daemon.store import incident_models, models
from cyclewatch.daemon.store.database import HEAD, StoreError, open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.migrate import alembic_config, begin_upgrade
from cyclewatch.daemon.store.transactions import Transactions
from units import RUN, unit

REVISIONS = sorted(
    script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions() if script.revision
)


@pytest.fixture(name="empty", params=["sqlite", "postgresql"])
def _empty(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """The address of a database without anything in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'a.db'}"
    server = request.getfixturevalue("postgres")
    return str(server.url(server.database()))


def make(address: str, revision: str) -> dict[str, int]:
    """A database of an earlier schema with a row in every table; gives the rows by table."""
    engine = create_engine(address)
    config = alembic_config()
    with engine.connect() as connection:
        begin_upgrade(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()
        metadata = MetaData()
        metadata.reflect(connection)
        for table in metadata.sorted_tables:
            if table.name != "alembic_version":
                # Numbers are the database's own, or it would give the same ones again.
                row = {column.name: value(column) for column in table.columns if column.name != "id"}
                connection.execute(table.insert().values(row))
        connection.commit()
        counts = count(connection, metadata)
    engine.dispose()
    return counts


def value(column: Any) -> Any:
    """Something for a column: 1, or what comes nearest to it."""
    if column.name == "node":
        return "old"
    if isinstance(column.type, Boolean):
        return True
    if isinstance(column.type, LargeBinary):
        return b"1"
    if isinstance(column.type, JSON) or str(column.type) == "JSON":
        return {"one": 1}
    return "1" if isinstance(column.type, String) and not isinstance(column.type, Numeric) else 1


def count(connection: Connection, metadata: MetaData) -> dict[str, int]:
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
        if table.name != "alembic_version"
    }


def opened(address: str) -> Engine:
    return open_database(address, create=True)


@pytest.mark.parametrize("revision", REVISIONS)
def test_everything_stays_and_the_newest_release_can_use_it(empty: str, revision: str) -> None:
    before = make(empty, revision)
    engine = opened(empty)
    with engine.connect() as connection:
        after = count(connection, models.Base.metadata)
        assert {name: after[name] for name in before} == before
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, models.Base.metadata) == []
        names = ("facts", "rings", "series", "change_events", "detector_states", "status")
        for name in names:
            if name in before:
                table = models.Base.metadata.tables[name]
                assert connection.execute(select(table.c.node)).scalars().all() == ["old"], name
        if engine.dialect.name == "sqlite":
            made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'samples'").scalar_one()
            assert "WITHOUT ROWID" in made
    Transactions(engine, "node").write(unit())
    assert StoreHistory(engine, "node").runs() == [RUN]
    engine.dispose()


def test_references_between_tables_hold_after_an_upgrade(empty: str) -> None:
    """Tables that are made anew in SQLite are referred to by others."""
    make(empty, REVISIONS[0])
    engine = opened(empty)
    with engine.connect() as connection:
        references = {
            (name, foreign["referred_table"])
            for name in ("windows", "levels", "samples", "regressions")
            for foreign in inspect(connection).get_foreign_keys(name)
        }
        assert references == {
            ("windows", "runs"),
            ("levels", "runs"),
            ("samples", "series"),
            ("regressions", "runs"),
        }
        if engine.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    engine.dispose()


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction: no half of a schema, on either database."""
    before = make(empty, REVISIONS[0])
    script = ScriptDirectory.from_config(alembic_config()).get_revision(HEAD)
    assert script is not None

    def cut_off(*_: Any) -> None:
        raise StoreError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr("alembic.op.create_table", cut_off)
        with pytest.raises(StoreError, match="killed here"):
            opened(empty)
    engine = create_engine(empty)
    with engine.connect() as connection:
        metadata = MetaData()
        metadata.reflect(connection)
        assert count(connection, metadata) == before
        assert "sketch" not in {column["name"] for column in inspect(connection).get_columns("windows")}
    engine.dispose()
    opened(empty).dispose()


def test_tables_of_incidents_are_part_of_the_schema() -> None:
    assert incident_models.IncidentRow.__tablename__ in models.Base.metadata.tables
