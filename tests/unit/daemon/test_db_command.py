"""`cyclewatch db`: upgrade, check, backup, prune, stats."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection

from cyclewatch.daemon.store import retention
from cyclewatch.daemon.store.database import HEAD
from postgres_server import PostgresServer
from shell import Shell
from units import SECOND, unit

NOW_S = 1_790_000_000


@pytest.fixture(name="shell")
def _shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "db")


def test_an_upgrade_makes_a_database_and_says_where_it_is(shell: Shell) -> None:
    assert shell.json("upgrade") == {"database": f"sqlite:///{shell.database}", "schema": HEAD}
    assert shell.run("upgrade").stdout == f"sqlite:///{shell.database}: schema {HEAD}\n"


def test_a_newer_schema_is_neither_upgraded_nor_taken_back(shell: Shell) -> None:
    shell.store()
    with contextlib.closing(sqlite3.connect(shell.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    result = shell.run("upgrade")
    assert result.exit_code == 1
    assert "schema 9999 is of a newer release of cyclewatch: install that one" in result.stderr


@pytest.mark.parametrize("command", [("check",), ("prune",), ("stats",), ("backup", "x.db")])
def test_a_database_that_is_not_there_is_one_sentence(shell: Shell, command: tuple[str, ...]) -> None:
    result = shell.run(*command)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"cyclewatch: {shell.database}: no database yet")


def test_a_sound_database_is_said_to_be_sound(shell: Shell) -> None:
    shell.store(unit())
    assert shell.json("check")["flaws"] == []
    assert "sound" in shell.run("check").stdout


def test_damage_is_found(shell: Shell) -> None:
    """A row whose parent is gone; and a page that was written over."""
    shell.store(unit())
    with contextlib.closing(sqlite3.connect(shell.database)) as connection, connection:
        connection.execute("DELETE FROM runs")
    result = shell.run("check")
    assert result.exit_code == 3
    assert "a row of windows refers to one of runs that is not there" in result.stdout
    assert "put a backup in its place" in result.stderr
    with shell.database.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * 8 * 4096)
    assert shell.run("check").exit_code in {1, 3}


def test_a_copy_is_a_whole_database(shell: Shell, tmp_path: Path) -> None:
    """Taken while another connection writes; never over a file that is there."""
    shell.store(*(unit(number) for number in range(20)))
    copy = tmp_path / "copy.db"
    with contextlib.closing(sqlite3.connect(shell.database)) as writing:
        writing.execute("BEGIN IMMEDIATE")
        assert shell.json("backup", str(copy))["bytes"] == copy.stat().st_size
        writing.rollback()
    assert copy.stat().st_mode & 0o077 == 0
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM windows").fetchone() == (20,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.db"]
    again = shell.run("backup", str(copy))
    assert again.exit_code == 1
    assert again.stderr == f"cyclewatch: {copy}: is there already: name another file\n"
    missing = shell.run("backup", str(tmp_path / "no/such.db"))
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)


def test_what_is_too_old_goes_at_once(shell: Shell) -> None:
    shell.store(unit(NOW_S - 4000 * 86_400), unit(NOW_S - 3999 * 86_400))
    said = shell.json("prune")
    assert said["rows_before"] > said["rows_after"]
    assert shell.json("stats")["rows"]["windows"] == 0
    assert "rows before" in shell.run("prune").stdout


def test_a_file_that_cannot_be_made_smaller_now_is_one_sentence(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program took the lock in between."""
    shell.store(unit())
    with contextlib.closing(sqlite3.connect(shell.database)) as other:

        def mostly_free(_: Connection) -> bool:
            other.execute("BEGIN IMMEDIATE")
            return True

        monkeypatch.setattr("cyclewatch.daemon.store.sqlite._BUSY_TIMEOUT_MS", 20)
        monkeypatch.setattr(retention, "mostly_free", mostly_free)
        result = shell.run("prune")
    assert result.exit_code == 1
    assert result.stderr == f"cyclewatch: database sqlite:///{shell.database}: database is locked\n"


def test_the_statistics_say_what_is_there(shell: Shell) -> None:
    shell.store(unit(NOW_S), unit(NOW_S + 5))
    found = shell.json("stats")
    assert (found["schema"], found["nodes"], found["rows"]["windows"]) == (HEAD, ["node"], 2)
    assert found["windows_by_length_s"] == {"5": 2}
    assert found["last_window"] == "2026-09-21T14:13:25Z"
    assert found["bytes"] > 0
    text = shell.run("stats").stdout
    assert "windows: 2 rows" in text
    assert "2 of 5 s" in text


@pytest.fixture(name="remote")
def _remote(postgres: PostgresServer, tmp_path: Path) -> Shell:
    database = postgres.database()
    return Shell(tmp_path, "db", settings=f"[store]\nurl = '{postgres.url(database)}'\n")


def test_all_but_copies_work_with_postgresql(remote: Shell, tmp_path: Path) -> None:
    """Which has a tool of its own for those."""
    before = remote.run("stats")
    assert before.exit_code == 1
    assert "schema missing" in before.stderr
    assert remote.json("upgrade")["schema"] == HEAD
    assert remote.json("check")["flaws"] == []
    assert remote.json("prune")["rows_after"] >= 0
    assert remote.json("stats")["bytes"] > SECOND // 10**6
    refused = remote.run("backup", str(tmp_path / "a.db"))
    assert (refused.exit_code, refused.stderr) == (
        1,
        "cyclewatch: backup copies SQLite alone: use pg_dump for PostgreSQL\n",
    )
