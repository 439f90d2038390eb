"""Alembic, driven from code: no ini file to find.

As a command (`python -m cyclewatch.daemon.store.migrate`) it upgrades the database whose address comes by
standard input.
"""

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from cyclewatch.daemon.store.database import StoreError, open_database

_LOCK = 0x6379636C65  # any number, as long as nobody else takes it for another purpose


def alembic_config() -> Config:
    """The configuration of the migrations that ship with this package."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def known_revisions() -> set[str]:
    """Revisions this release knows."""
    return {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}


def upgrade(engine: Engine) -> None:
    """Bring the schema to its newest revision, in one transaction: a process that dies in between leaves the old one.

    Daemons that share a database wait for the one that comes first.
    """
    config = alembic_config()
    try:
        with engine.connect() as connection:
            begin_upgrade(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    finally:
        engine.dispose()  # of a connection that does not look after its foreign keys


def begin_upgrade(connection: Connection) -> None:
    """Begin a transaction in which tables may be made anew, and in which nobody else upgrades."""
    if connection.dialect.name == "sqlite":
        # A table to which others refer is dropped when it is made anew. Outside of a transaction, or it is ignored.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        # Python's driver would begin with the first row written, and tables made before that would stay.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def main() -> int:
    """Upgrade the database named by standard input; the last line of standard error says why it could not be."""
    try:
        open_database(sys.stdin.read().strip(), create=True).dispose()
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
