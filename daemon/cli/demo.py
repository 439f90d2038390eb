"""`cyclewatch demo`."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from cyclewatch.daemon.cli.common import EXIT_ERROR, console, errors_exit


def demo(
    directory: Annotated[Path, typer.Option("--dir", help="Where the database and the report are left.")] = Path(
        ".demo"
    ),
    speed: Annotated[float, typer.Option("--speed", min=1.0, max=20.0, help="How much faster than recorded.")] = 6.0,
) -> None:
    """Show the real daemon finding a slowdown in cycles recorded from a real SGLang."""
    from rich.progress import BarColumn, Progress, TextColumn

    from cyclewatch.config.settings import Log
    from cyclewatch.daemon.demo.recording import SHIPPED, RecordingError, load
    from cyclewatch.daemon.demo.session import DemoError, show
    from cyclewatch.daemon.log import configure_logging

    if importlib.util.find_spec("cyclewatch_sglang") is None:
        typer.echo("cyclewatch: the demo writes through the hook's own ring: pip install cyclewatch-sglang", err=True)
        raise typer.Exit(EXIT_ERROR)
    screen = console()
    configure_logging(Log(level="error"))
    try:
        recording = load()
        for line in recording.provenance["story"]:
            screen.print(line)
        columns = (
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TextColumn("{task.description}"),
        )
        with errors_exit(), Progress(*columns, console=screen) as bar:
            task = bar.add_task("starting", total=recording.length_s)
            shown = show(
                recording,
                SHIPPED,
                directory.resolve(),
                speed,
                lambda passed_s, text: bar.update(task, completed=min(passed_s, recording.length_s), description=text),
            )
    except (RecordingError, DemoError) as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    if not shown.found:
        typer.echo("cyclewatch: the demo found no regression, which is a defect: please report it", err=True)
        raise typer.Exit(EXIT_ERROR)
    screen.print(shown.report.read_text(), markup=False)
    for told in shown.told:
        screen.print("# What a chat would have been told\n")
        screen.print(told, markup=False, end="\n\n")
    screen.print(f"metrics:  {shown.metrics}\nreport:   {shown.report}\ndatabase: {shown.database}", markup=False)
