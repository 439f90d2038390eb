"""The application: the table of its commands, each of which is loaded when it is called."""

from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand


class Entry(NamedTuple):
    """One command: its function, or the `Typer` of its subcommands, and what the list of commands says of it."""

    module: str
    attribute: str
    summary: str
    context_settings: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)


COMMANDS: Final = {
    "run": Entry("run", "run", "Watch the servers of this node until stopped."),
    "demo": Entry("demo", "demo", "Show a slowdown being found, in cycles of a real SGLang."),
    "status": Entry("status", "status", "Show targets, ranks, phases and open regressions."),
    "compare": Entry(
        "compare",
        "compare",
        "Compare two runs, profiles, recordings or stretches of time.",
        {"ignore_unknown_options": True},  # -2h/-1h is a stretch of time
    ),
    "detect": Entry("detect", "detect", "Find lasting changes of the level of any series."),
    "backtest": Entry("backtest", "backtest", "Say what other settings would have flagged."),
    "doctor": Entry("doctor", "doctor", "Say what is missing on this node and how to mend it."),
    "install": Entry("install", "install", "Set cyclewatch up as a service of systemd."),
    "uninstall": Entry("install", "uninstall", "Stop the service and remove what was installed."),
    "kernels": Entry("kernels", "kernels", "Show the kernels of profiles, by family, operator and step."),
    "metrics": Entry("metrics", "metrics", "Print every metric with its unit, labels, source and cost."),
    "probe": Entry("probe", "probe", "Do the same fixed work as always: is it the machine?"),
    "profile": Entry("profile", "profile", "Ask the running daemon for a kernel profile, and show it."),
    "roofline": Entry("roofline", "roofline", "Tell the shortest time possible for an operator on a GPU."),
    "expect": Entry("expect", "expect", "Announce a change: its effects are no alarms."),
    "regressions": Entry("regressions", "app", "Regressions that were found."),
    "incidents": Entry("incidents", "app", "What became slower together, and what is done about it."),
    "silences": Entry("silences", "app", "No messages about some incidents, for a time."),
    "expectations": Entry("expect", "app", "Announced changes, whose effects are no alarms."),
    "profiles": Entry("profiles", "app", "Kernel profiles that were taken, and whether more are."),
    "model": Entry("model", "app", "The workload model: what a cycle is expected to take."),
    "sink": Entry("sink", "app", "Where alerts go: list it, try it."),
    "outbox": Entry("outbox", "app", "Messages that wait for their sinks, or were given up."),
    "db": Entry("db", "app", "Look after the database: upgrade, check, copy and thin it."),
    "config": Entry("configuration", "app", "The configuration: check it, show it, print every key."),
}


class _Listed(TyperCommand):
    """A command as the list of commands knows it; called, it gives way to the real one.

    To load the modules of all of them takes many times as long as to list them.
    """

    def make_context(self, info_name: str | None, *arguments: Any, **extra: Any) -> Any:  # noqa: ANN401 (Click has them)
        name = info_name or ""
        entry = COMMANDS[name]
        found = getattr(import_module(f"cyclewatch.daemon.cli.{entry.module}"), entry.attribute)
        one = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            one.add_typer(found, name=name)
        else:
            one.command(name, context_settings=entry.context_settings)(found)
        return typer.main.get_group(one).commands[name].make_context(name, *arguments, **extra)


app = typer.Typer(
    name="cyclewatch",
    help="Did serving get slower, and what made it slower? Watches SGLang servers on this node.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, _entry in COMMANDS.items():
    app.command(_name, cls=_Listed, help=_entry.summary)(lambda: None)
