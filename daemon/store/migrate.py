"""Alembic, driven from code: no ini file to find.

As a command (`python -m cyclewatch.daemon.store.migrate`) it upgrades the database whose address comes by
standard input.
"""

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from cyclewatch.daemon.store.database import StoreError, open_database


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
    """Bring the schema to its newest revision, in one transaction."""
    config = alembic_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


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
