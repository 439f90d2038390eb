import contextlib
import os
import sqlite3
import subprocess
from io import StringIO
from pathlib import Path

import psutil
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, select, text

from cyclewatch.daemon.store.database import HEAD, StoreError, open_database, url_without_password
from cyclewatch.daemon.store.migrate import alembic_config, known_revisions
from cyclewatch.daemon.store.models import Base, WindowRow


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def refusal(address: str, *, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        open_database(address, create=create)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_migrations_make_exactly_the_models_schema(tmp_path: Path) -> None:
    """Nothing that Alembic would still change."""
    engine = open_database(url(tmp_path / "a.db"), create=True)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_the_head_written_in_the_code_is_alembics() -> None:
    """So that Alembic need not be loaded to see that there is nothing to do."""
    assert ScriptDirectory.from_config(alembic_config()).get_current_head() == HEAD
    assert HEAD in known_revisions()


def test_a_stretch_of_time_lies_together_among_the_windows_of_a_series(tmp_path: Path) -> None:
    """Otherwise whoever asks for ten minutes looks at all that is stored."""
    engine = open_database(url(tmp_path / "a.db"), create=True)
    columns = ["run_id", "rank", "phase", "start_ns", "bucket"]
    assert inspect(engine).get_pk_constraint("windows")["constrained_columns"] == columns
    assert [column.name for column in WindowRow.__table__.primary_key] == columns
    engine.dispose()


def test_a_database_of_the_first_schema_keeps_its_windows(tmp_path: Path) -> None:
    """They have no sketch; new ones do."""
    path = tmp_path / "a.db"
    engine = create_engine(url(path))
    config = alembic_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        assert "sketch" not in {column["name"] for column in inspect(connection).get_columns("windows")}
        connection.execute(
            text("INSERT INTO runs VALUES (1, 'r', 'n', 't', 1, 2, 'f00d', '0.5.23', 'tiny', '{}')"),
        )
        numbers = ", ".join("7" for _ in range(18))
        connection.execute(text(f"INSERT INTO windows VALUES (1, 'tp0', 'decode', 8, 5, {numbers})"))
    engine.dispose()
    assert f"schema 0001, this release reads {HEAD}: run `cyclewatch db upgrade`" in refusal(url(path), create=False)
    engine = open_database(url(path), create=True)
    with engine.connect() as connection:
        (row,) = connection.execute(select(WindowRow.__table__))
        assert (row.rank, row.bucket, row.queue_length, row.sketch) == ("tp0", 8, 7, None)
    engine.dispose()


def test_the_sketch_is_bytes_on_postgresql_too() -> None:
    said = StringIO()
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": said})
    revision = ScriptDirectory.from_config(alembic_config()).get_revision("0002")
    assert revision is not None
    with Operations.context(context):
        revision.module.upgrade()
    assert said.getvalue().strip() == "ALTER TABLE windows ADD COLUMN sketch BYTEA;"


def test_an_upgrade_in_a_process_of_its_own_makes_the_same_schema(tmp_path: Path) -> None:
    """The daemon does not carry Alembic's memory for months."""
    for name, apart in (("a.db", False), ("b.db", True)):
        open_database(url(tmp_path / name), create=True, upgrade_apart=apart).dispose()
    schemas = []
    for name in ("a.db", "b.db"):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection:
            schemas.append(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall())
    assert schemas[0] == schemas[1]


def test_an_upgrade_in_a_process_of_its_own_that_fails_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_database(url(path), create=True).dispose()
    set_revision(path, "9999")
    with pytest.raises(StoreError, match="9999 is of a newer release of cyclewatch: install that one"):
        open_database(url(path), create=True, upgrade_apart=True)


def test_a_password_does_not_stand_on_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every user of the machine could read it."""
    calls: list[tuple[list[str], str]] = []

    def run(command: list[str], *, input: str, **_: object) -> subprocess.CompletedProcess[str]:  # noqa: A002
        calls.append((command, input))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", run)
    open_database(f"sqlite:///{tmp_path}/a.db?timeout=3", create=True, upgrade_apart=True).dispose()
    ((command, given),) = calls
    assert not any(str(tmp_path) in word for word in command)
    assert str(tmp_path) in given


def set_revision(path: Path, revision: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_opening_twice_changes_nothing(tmp_path: Path) -> None:
    """Also with two daemons by mistake, or the command line beside one."""
    first = open_database(url(tmp_path / "a.db"), create=True)
    second = open_database(url(tmp_path / "a.db"), create=True)
    third = open_database(url(tmp_path / "a.db"), create=False)
    for engine in (first, second, third):
        with engine.connect() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [HEAD]
        engine.dispose()


def test_the_directory_is_made(tmp_path: Path) -> None:
    open_database(url(tmp_path / "a/b/c.db"), create=True).dispose()
    assert (tmp_path / "a/b/c.db").is_file()


def test_readers_do_not_wait_for_the_writer(tmp_path: Path) -> None:
    """WAL: `status` answers while a batch is written."""
    engine = open_database(url(tmp_path / "a.db"), create=True)
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
    engine.dispose()


def test_a_schema_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    """Not migrated down, not guessed."""
    path = tmp_path / "a.db"
    open_database(url(path), create=True).dispose()
    set_revision(path, "9999")
    assert (
        refusal(url(path)) == f"database {url(path)}: schema 9999 is of a newer release of cyclewatch: install that one"
    )
    assert "schema 9999, this release reads" in refusal(url(path), create=False)


def test_a_missing_database_says_what_to_start(tmp_path: Path) -> None:
    """And none is made by asking."""
    path = tmp_path / "a.db"
    assert refusal(url(path), create=False) == (
        f"{path}: no database yet: has `cyclewatch run` been started with this configuration?"
    )
    assert not path.exists()


def test_an_empty_database_is_made_by_the_daemon_only(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    assert "schema missing" in refusal(url(path), create=False)
    open_database(url(path), create=True).dispose()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """And left as it was; no descriptor stays open."""
    path = tmp_path / "a.db"
    path.write_bytes(b"something else" * 1000)
    before = psutil.Process().num_fds()
    assert refusal(url(path)) == f"database {url(path)}: file is not a database"
    assert path.read_bytes() == b"something else" * 1000
    assert psutil.Process().num_fds() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file where the directory should be; a directory where the file should be."""
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refusal(url(tmp_path / "file/a.db"))
    assert "unable to open database file" in refusal(url(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in refusal(url(tmp_path / "a/b.db"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "database with a malformed address: "),
        ("postgres//u:s3cret@h/db", "database with a malformed address: "),
        ("postgresql://u:s3cret@h:port/db", "database with a malformed address: "),
        ("mysql://u:s3cret@h/db", "mysql is not supported: use sqlite or postgresql"),
        ("nosuch://u:s3cret@h/db", "nosuch is not supported"),
        ("sqlite://", "a database in memory cannot be shared"),
        ("sqlite:///:memory:", "a database in memory cannot be shared"),
        ("postgresql+psycopg://u:s3cret@127.0.0.1:1/db", "database postgresql+psycopg://u:***@127.0.0.1:1/db: "),
    ],
)
def test_an_address_that_cannot_be_used_is_one_sentence_without_a_password(address: str, said: str) -> None:
    message = refusal(address)
    assert said in message
    assert "s3cret" not in message


def test_an_address_is_shown_without_its_password() -> None:
    assert url_without_password("postgresql://me:s3cret@host/db") == "postgresql://me:***@host/db"
    hidden = url_without_password("postgresql://me@host/db?password=s3cret&sslmode=require&sslpassword=s3cret")
    assert hidden == "postgresql://me@host/db?password=***&sslmode=require&sslpassword=***"
    assert url_without_password("sqlite:////var/lib/a.db") == "sqlite:////var/lib/a.db"
    assert url_without_password("") == ""
