"""`cyclewatch incidents`: what people are told of, and what they do about it."""

import time
from typing import Annotated

import typer

from cyclewatch.daemon.cli.common import (
    EXIT_FOUND,
    LIMIT,
    ConfigOption,
    JsonOption,
    LimitOption,
    console,
    listed,
    settings_or_exit,
    utc,
)
from cyclewatch.daemon.cli.triage import WhoOption, acting, name_of
from cyclewatch.daemon.incidents.acting import NotThereError
from cyclewatch.daemon.incidents.incident import Act, Incident
from cyclewatch.daemon.reports.incident import incident_markdown
from cyclewatch.daemon.triage.documents import IncidentDocument, incident_detail, json_of
from cyclewatch.daemon.triage.requests import ActRequest

app = typer.Typer(help="Incidents: what became slower together, and what is done about it.", no_args_is_help=True)

NumberArgument = Annotated[int, typer.Argument(help="Its number in the list.")]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why; kept in the book of the incident.")]


@app.command("list")
def list_all(
    ended: Annotated[bool, typer.Option("--ended", help="Those too that are over.")] = False,
    fail_if_open: Annotated[bool, typer.Option("--fail", help="Exit with code 3 if one is not over.")] = False,
    limit: LimitOption = LIMIT,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List incidents, newest first."""
    with acting(config) as store:
        found = listed(store.incidents(ended=ended, limit=limit + 1), limit)
        one_stands = bool(store.incidents(limit=1))
    if as_json:
        typer.echo(json_of([IncidentDocument.model_validate(one) for one in found], indent=2))
    elif not found:
        typer.echo("no incident" if ended else "no incident; --ended lists those that are over")
    else:
        _print_table(found)
    if fail_if_open and one_stands:
        raise typer.Exit(EXIT_FOUND)


@app.command("show")
def show(number: NumberArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one incident: what became slower and why, its regressions, its book, and what to do next."""
    now_ns = time.time_ns()
    with acting(config) as store:
        view = store.view(number, now_ns)
        if view is None:
            raise NotThereError(f"there is no incident {number}: `cyclewatch incidents list --ended` shows all")
    if as_json:
        typer.echo(json_of(incident_detail(view), indent=2))
    else:
        typer.echo(incident_markdown(view, settings_or_exit(config).incidents, now_ns), nl=False)


def _add(name: str, act: Act, what: str) -> None:
    """Add the command that does `act`."""

    @app.command(name, help=what)
    def do(
        number: NumberArgument,
        why: WhyOption = "",
        who: WhoOption = "",
        config: ConfigOption = None,
        as_json: JsonOption = False,
    ) -> None:
        with acting(config) as store:
            asked = ActRequest(who=name_of(who), why=why)
            after = store.act(number, act, asked.who, asked.why, time.time_ns())
        if as_json:
            typer.echo(json_of(IncidentDocument.model_validate(after), indent=2))
        else:
            typer.echo(f"incident {after.number} is {after.state}")


_add("ack", Act.ACKNOWLEDGE, "Say that somebody looks at it: those who were paged need not.")
_add(
    "resolve",
    Act.RESOLVE,
    "Say that it is over, though it may still look slower; what grows beyond it is a new incident.",
)
_add("rebase", Act.REBASE, "Accept it as the new normal; what grows beyond it is a new incident.")
_add("reopen", Act.REOPEN, "Open one again that was resolved or rebased.")


def _print_table(incidents: list[Incident]) -> None:
    from rich.table import Table

    table = Table()
    for column in ("id", "severity", "state", "since", "effect", "where", "first cause", "after"):
        table.add_column(column)
    for one in incidents:
        others = f" and {one.targets - 1} more" if one.targets > 1 else ""
        table.add_row(
            str(one.number),
            one.severity,
            one.state,
            utc(one.started_at_ns),
            f"{one.effect:+.1%} ({one.ci[0]:+.1%} to {one.ci[1]:+.1%})",
            f"{one.phase} on {one.target}{others}",
            one.cause.subject if one.cause else "not shown",
            one.change,
        )
    console().print(table)
