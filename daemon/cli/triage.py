"""What the commands about incidents share: the store, who does it, and how errors and documents are shown."""

import contextlib
import getpass
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from cyclewatch.daemon.cli.common import EXIT_ERROR, errors_exit, settings_or_exit
from cyclewatch.daemon.incidents.acting import ActError
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incidents import IncidentStore
from cyclewatch.daemon.triage.requests import RequestError, what_is_wrong

WhoOption = Annotated[str, typer.Option("--who", help="Who does it; default the name of the login.")]
ForOption = Annotated[str, typer.Option("--for", metavar="TIME", help="How long it holds: 90s, 15m, 1h, 2d or 1w.")]
FromOption = Annotated[
    str, typer.Option("--from", metavar="TIME", help="When it begins: now, +30m, -10m, or ISO 8601 (UTC).")
]
ReasonOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for those who wonder.")]
OverOption = Annotated[bool, typer.Option("--over", help="Those too whose time has passed.")]


@contextlib.contextmanager
def acting(config: Path | None) -> Iterator[IncidentStore]:
    """The store of incidents; what cannot be done becomes one sentence and exit code 1."""
    settings = settings_or_exit(config)
    with errors_exit():
        engine = open_database(settings.database_url, create=False)
    try:
        yield IncidentStore(engine)
    except ValidationError as error:
        fail(what_is_wrong(error))
    except (ActError, RequestError) as error:
        fail(str(error))
    finally:
        engine.dispose()


def fail(sentence: str) -> NoReturn:
    """End the command with a sentence and exit code 1."""
    typer.echo(f"cyclewatch: {sentence}", err=True)
    raise typer.Exit(EXIT_ERROR) from None


def name_of(who: str) -> str:
    """`who`, or the name of the login: behind sudo that of the person."""
    if who or (who := os.environ.get("SUDO_USER", "")):
        return who
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"
