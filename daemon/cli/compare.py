"""`cyclewatch compare`: two runs, profiles, files or stretches of time, side by side."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cyclewatch.daemon.cli.common import EXIT_ERROR, ConfigOption, JsonOption, console, errors_exit, settings_or_exit

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cyclewatch.daemon.compare.comparison import Comparison
    from cyclewatch.daemon.store.unit import Run
    from cyclewatch.detectors.load.speed_of_light import ServedModel

_STDOUT = "-"


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="What was before: a file, or what is below.")],
    second: Annotated[str | None, typer.Argument(metavar="B", help="What was after. A may have both.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Which server, where several ran.")] = None,
    rank: Annotated[str | None, typer.Option("--rank", help="Which of its ranks.")] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="Which work: decode, extend, ...")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown there; - for standard output.")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page; - likewise.")
    ] = None,
) -> None:
    """Compare two runs, kernel profiles, recordings of cycles, or stretches of time.

    A and B are files (a profile, a ring or recording of cycles), profile:NUMBER, run:KEY, or a stretch of time:
    2026-11-21T10:00/2026-11-21T11:00, -2h/-1h, -1h/now. A alone can be regression:NUMBER, or a suspicion report.

    Exit code 0 also where a difference is found, or the two are not comparable (the output says so); 1 where one of
    them cannot be read, 2 for a wrong configuration or command line.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from cyclewatch.daemon.compare.compare import compare_sources
    from cyclewatch.daemon.compare.sources import SourceError, Sources
    from cyclewatch.daemon.compare.stored import Wanted
    from cyclewatch.daemon.store.database import reason_of

    engines: list[Engine] = []

    def store() -> "Engine":
        """The database, opened when something in it is named."""
        from cyclewatch.daemon.store.database import open_database

        if not engines:
            engines.append(open_database(settings_or_exit(config).database_url, create=False))
        return engines[0]

    def served(run: "Run") -> "ServedModel":
        """What a run serves, as far as its model is found here."""
        from cyclewatch.daemon.model_bound import served_model

        return served_model(run, settings_or_exit(config).engine.hub)

    try:
        with errors_exit():
            sources = Sources(store, time.time_ns())
            comparison = compare_sources(sources, first, second, Wanted(target, rank, phase), store, served)
    except SourceError as error:
        _fail(str(error))
    except SQLAlchemyError as error:
        _fail(f"the database does not answer: {reason_of(error)}")
    finally:
        for engine in engines:
            engine.dispose()
    _show(comparison, markdown, html, as_json=as_json)


def _show(comparison: "Comparison", markdown: str | None, html: str | None, *, as_json: bool) -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal cannot show
    if markdown is not None:
        from cyclewatch.daemon.compare.markdown import comparison_markdown

        _write(markdown, comparison_markdown(comparison))
    if html is not None:
        from cyclewatch.daemon.compare.html import comparison_html

        _write(html, comparison_html(comparison))
    if as_json:
        from cyclewatch.daemon.compare.document import comparison_document

        typer.echo(json.dumps(comparison_document(comparison), indent=2, allow_nan=False))
    elif markdown is None and html is None:
        from cyclewatch.daemon.compare.text import print_comparison

        print_comparison(console(), comparison)


def _write(place: str, text: str) -> None:
    if place == _STDOUT:
        typer.echo(text, nl=False)
        return
    try:
        Path(place).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        _fail(f"{place}: cannot be written: {(error.strerror or str(error)).lower()}")


def _fail(sentence: str) -> None:
    typer.echo(f"cyclewatch: {sentence}", err=True)
    raise typer.Exit(EXIT_ERROR) from None
