"""Alembic, driven from code: no ini file to find."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine


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
