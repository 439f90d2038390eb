"""`cyclewatch install` and `cyclewatch uninstall`."""

import contextlib
import difflib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from cyclewatch.config.load import ConfigError, load_settings
from cyclewatch.daemon.cli.common import EXIT_ERROR, EXIT_FOUND, JsonOption
from cyclewatch.daemon.installation.carry_out import carry_out, systemd_runs, systemd_version, user_of
from cyclewatch.daemon.installation.node_files import (
    CONFIGURATION,
    InstallError,
    NodeFile,
    check_command,
    configuration_file,
    directories_file,
    service_file,
    service_name,
    sglang_file,
    users_file,
)
from cyclewatch.daemon.installation.plan import (
    Act,
    Change,
    Command,
    Step,
    differences,
    installation,
    place,
    services_watched,
    uninstallation,
)
from cyclewatch.daemon.installation.seal import unsealed

_ROOT = Path("/")
_SAYS = {
    Act.WRITE: "write    {path}",
    Act.UPDATE: "update   {path}",
    Act.REPLACE: "replace  {path}, which was edited; what it held goes to {path}.saved",
    Act.REMOVE: "remove   {path}",
    Act.SAME: "same     {path}",
    Act.EDITED: "edited   {path}: left as it is; --force takes it, too",
    Act.YOURS: "yours    {path}: left as it is",
}

RootOption = Annotated[
    Path | None, typer.Option("--root", help="Folder of an image, in place of this node; nothing is started.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Take files as well that somebody has edited.")]


def install(
    sglang: Annotated[
        list[str] | None,
        typer.Option("--sglang-service", help="A service of SGLang that is to be watched; may be given again."),
    ] = None,
    command: Annotated[
        Path | None, typer.Option("--command", help="The cyclewatch that the service starts; by default this one.")
    ] = None,
    root: RootOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what differs; exit code 3 if something does.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Only print the files.")] = False,
    force: ForceOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set cyclewatch up as a service of systemd; says what it would do, and does it with --yes or when told so."""
    with _errors_exit():
        where = _where(root)
        named = {service_name(name) for name in sglang or []}
        services = sorted({*services_watched(where), *named})
        users = set() if root else set(map(user_of, named))
        files = [
            users_file(),
            directories_file(),
            configuration_file(users),
            service_file(_command(command), systemd_version()),
            *map(sglang_file, services),
        ]
        if show:
            _print_files(files)
            return
        steps = installation(where, files, live=root is None, force=force)
        if check:
            _print_plan(differences(steps), as_json=as_json, done=False)
            raise typer.Exit(EXIT_FOUND if differences(steps) else 0)
        done = _do(where, steps, yes=yes, as_json=as_json)
        if not as_json:
            _print_next(done, services, users)


def uninstall(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the configuration, the database and the rings as well.")
    ] = False,
    root: RootOption = None,
    force: ForceOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the service and remove what was installed; says what it would do, and does it with --yes or when told so."""
    with _errors_exit():
        where = _where(root)
        steps = uninstallation(where, live=root is None, force=force, purge=purge)
        if not steps and not as_json:
            typer.echo("nothing is installed")
            return
        if _do(where, steps, yes=yes, as_json=as_json) and not as_json:
            typer.echo("SGLang keeps its variables until its own restart; the user and group cyclewatch stay.")


def _where(root: Path | None) -> Path:
    """The root directory of what is installed to.

    Raises:
        InstallError: there is no such image, or this node does not run systemd.
    """
    if root is None and not systemd_runs():
        raise InstallError("this machine was not booted with systemd: use --root FOLDER for an image")
    if root is not None and not root.is_dir():
        raise InstallError(f"{root}: no such folder: give that of an image")
    return _ROOT if root is None else root.absolute()


def _command(given: Path | None) -> PurePosixPath:
    own = Path(sys.prefix) / "bin/cyclewatch"
    if given is None and not own.is_file():
        raise InstallError(f"{own}: not there: name the command by --command")
    # A Python whose own home is hidden cannot start, wherever its command is.
    check_command(*((own, Path(sys.executable).resolve()) if given is None else (given,)))
    return PurePosixPath(given or own)


def _do(where: Path, steps: Sequence[Step], *, yes: bool, as_json: bool) -> bool:
    """Show the plan and carry it out, if that is wanted; whether it was."""
    if not as_json:
        _print_plan(steps, as_json=False, done=False)
        yes = yes or (sys.stdin.isatty() and typer.confirm("Do this?"))
    if yes:
        carry_out(where, steps, lambda line: typer.echo(line, err=True))
    elif not as_json:
        typer.echo("Nothing was done: --yes does it.")
    if as_json:
        _print_plan(steps, as_json=True, done=yes)
    return yes


def _print_plan(steps: Sequence[Step], *, as_json: bool, done: bool) -> None:
    if as_json:
        document = {
            "done": done,
            "steps": [
                {"do": "run", "command": list(step.words)}
                if isinstance(step, Command)
                else {"do": step.act.value, "path": str(step.path)}
                for step in steps
            ],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    for step in steps:
        if isinstance(step, Command):
            typer.echo(f"run      {' '.join(step.words)}")
        else:
            typer.echo(_SAYS[step.act].format(path=step.path))
            typer.echo("".join(_difference(step)), nl=False)


def _difference(change: Change) -> Iterable[str]:
    """What becomes of a file that is there, line by line."""
    if change.before is None or change.act not in {Act.UPDATE, Act.REPLACE, Act.EDITED} or not change.after:
        return []
    before, after = (unsealed(text).splitlines() for text in (change.before, change.after))
    return (f"         {line}\n" for line in list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:])


def _print_files(files: Iterable[NodeFile]) -> None:
    for file in files:
        typer.echo(f"# {file.path}\n{file.text}")


def _print_next(done: bool, services: Sequence[str], users: set[str]) -> None:
    if done and services:
        typer.echo(f"SGLang takes part from its next start: systemctl restart {' '.join(services)}")
    elif not services:
        typer.echo("No service of SGLang is named: --sglang-service NAME has it write its cycles.")
    configuration = place(_ROOT, CONFIGURATION)
    if not users - {"", "root"} or not configuration.is_file():
        return
    try:
        unknown = users - {"", "root"} - set(load_settings(configuration, {}).profiling.users)
    except ConfigError as error:
        typer.echo(f"note: {error}")
        return
    if unknown:
        typer.echo(f"note: profiling.users in {CONFIGURATION} does not name {', '.join(sorted(unknown))}: no profiles")


@contextlib.contextmanager
def _errors_exit() -> Iterator[None]:
    try:
        yield
    except InstallError as error:
        typer.echo(f"cyclewatch: {error}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
