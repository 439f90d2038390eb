"""The command line with a configuration and a store of its own."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import Unit


class Shell:
    """A state directory, and one `command` of the command line, or all of it, that looks at it.

    `settings` are lines of the configuration, `columns` how wide the terminal is.
    """

    def __init__(self, directory: Path, *command: str, settings: str = "", columns: int = 160) -> None:
        self.directory = directory
        self.config = directory / "cyclewatch.toml"
        self.config.write_text(f"state_dir = '{directory}/state'\n[rings]\ndirectory = '{directory}/rings'\n{settings}")
        self._command = command
        self._terminal = {"COLUMNS": str(columns), "TERM": "dumb"}

    @property
    def database(self) -> Path:
        return self.directory / "state/cyclewatch.db"

    def store(self, *units: Unit) -> None:
        """Store these units; without any, make an empty store."""
        engine = open_database(f"sqlite:///{self.database}", create=True)
        writer = Transactions(engine, "node")
        for one in units:
            writer.write(one)
        engine.dispose()

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*self._command, *words, "-c", str(self.config)], env=self._terminal)

    def json(self, *words: str) -> Any:
        """What the command says with `--json`."""
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)
