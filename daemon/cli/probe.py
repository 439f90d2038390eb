"""`cyclewatch probe`: is it the machine that has become slower?"""

import json
from typing import Annotated, Any

import typer

from cyclewatch.config.settings import Settings
from cyclewatch.daemon.cli.common import EXIT_ERROR, ConfigOption, JsonOption, console, settings_or_exit, utc


def probe(
    gpu: Annotated[
        bool, typer.Option("--gpu", help="The GPUs too, where memory is free and the load is low; takes some seconds.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do the same fixed work as always, and say whether the machine takes longer for it than usual."""
    from cyclewatch.collectors.probe.programs import ProbeError
    from cyclewatch.daemon.control import ControlError, NoDaemonError, asked

    settings = settings_or_exit(config)
    try:
        try:
            with asked(settings.state_dir, {"do": "probe", "gpu": gpu}) as answer:
                document = answer["probe"]
        except NoDaemonError:
            document = _without_daemon(settings, gpus=gpu)
    except (ControlError, ProbeError) as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        _print(document)


def _without_daemon(settings: Settings, *, gpus: bool) -> dict[str, Any]:
    from cyclewatch.daemon.probing.alone import probe_alone
    from cyclewatch.daemon.reports.probe import probe_document

    document = probe_document(probe_alone(settings, gpus=gpus))
    document["notes"].append("no daemon runs with this state_dir: these times are not kept")
    return document


def _print(document: dict[str, Any]) -> None:
    from rich.table import Table

    from cyclewatch.daemon.reports.probe import verdict_sentence, work_row

    screen = console()
    screen.print(verdict_sentence(document), style="bold")
    for sentence in document["means"]:
        screen.print(sentence)
    table = Table(title=f"{utc(document['at_ns'])}", title_justify="left")
    for column in ("work", "timed"):
        table.add_column(column)
    for column in ("now", "usually", "times as long"):
        table.add_column(column, justify="right")
    for work in document["works"]:
        table.add_row(*work_row(work))
    screen.print(table)
    for note in document["notes"]:
        screen.print(f"note: {note}")
