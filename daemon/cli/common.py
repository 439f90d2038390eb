"""What every command shares: the configuration option, errors in one sentence, and how values are shown."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from cyclewatch.daemon import time_words

if TYPE_CHECKING:
    from rich.console import Console

    from cyclewatch.config.settings import Settings
    from cyclewatch.daemon.store.history import StoreHistory

EXIT_ERROR = 1
EXIT_CONFIG = 2
EXIT_FOUND = 3
"""`doctor` or `sink list` found something to mend; `list --fail` of regressions or incidents found an open one."""

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; default /etc/cyclewatch/cyclewatch.toml, where it exists."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Most that are listed, the newest.")]
LIMIT = 200

_One = TypeVar("_One")


def listed(found: list[_One], limit: int) -> list[_One]:
    """The first `limit` of what was found; a sentence on stderr where there are more."""
    if len(found) > limit:
        typer.echo(f"cyclewatch: there are more than the {limit} listed: --limit lists up to 10000", err=True)
    return found[:limit]


def settings_or_exit(path: Path | None) -> "Settings":
    """The settings; a wrong one ends the command with exit code 2."""
    from cyclewatch.config.load import ConfigError, load_settings

    try:
        return load_settings(path)
    except ConfigError as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_CONFIG) from None


def history_or_exit(settings: "Settings") -> "StoreHistory":
    """The stored past; a database that cannot be read ends the command with exit code 1."""
    from cyclewatch.daemon.store.start import open_history

    with errors_exit():
        return open_history(settings)


@contextlib.contextmanager
def errors_exit() -> Iterator[None]:
    """An expected error becomes one sentence and exit code 1."""
    from cyclewatch.daemon.lock import LockError
    from cyclewatch.daemon.store.database import StoreError
    from cyclewatch.daemon.web.server import WebError

    try:
        yield
    except (StoreError, WebError, LockError) as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None


def console() -> "Console":
    """Where text for people goes; wide enough for tables where the output is not a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 160
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)  # names may hold brackets


def utc(at_ns: int | None) -> str | None:
    """An instant as ISO 8601 in UTC, to the second, where there is one."""
    return None if at_ns is None else time_words.utc(at_ns)
