"""What is to be done on a node, in order; nothing is done here."""

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from cyclewatch.daemon.installation.node_files import (
    CONFIGURATION,
    DIRECTORIES,
    DROP_IN,
    SERVICE,
    UNITS,
    USERS,
    InstallError,
    NodeFile,
)
from cyclewatch.daemon.installation.seal import is_untouched

DATA = (PurePosixPath("/var/lib/cyclewatch"), PurePosixPath("/etc/cyclewatch"), PurePosixPath("/run/cyclewatch"))
"""What an uninstallation leaves unless it is told otherwise."""

_MAX_BYTES = 1 << 20
_UNIT = SERVICE.name


class Act(StrEnum):
    """What is done to one path."""

    WRITE = "write"
    UPDATE = "update"
    REPLACE = "replace"
    REMOVE = "remove"
    SAME = "same"
    EDITED = "edited"
    YOURS = "yours"


@dataclass(frozen=True)
class Change:
    """One path: what is done to it, what it holds, and what it will hold. `before` is None where that is no text."""

    path: PurePosixPath
    act: Act
    before: str | None = None
    after: str = ""


@dataclass(frozen=True)
class Command:
    """A program that is run."""

    words: tuple[str, ...]


Step = Change | Command


def place(root: Path, path: PurePosixPath) -> Path:
    """Where a path of the node is, seen from here.

    Raises:
        InstallError: a link in an image leads out of it.
    """
    here = root / path.relative_to("/")
    if not here.parent.resolve().is_relative_to(root.resolve()):
        raise InstallError(f"{here.parent}: leads out of {root}: mount the image, and make its links relative")
    return here


def services_watched(root: Path) -> list[str]:
    """SGLang's services that have a drop-in already."""
    return sorted(path.parent.name.removesuffix(".d") for path in place(root, UNITS).glob(f"*.service.d/{DROP_IN}"))


def installation(root: Path, files: Sequence[NodeFile], *, live: bool, force: bool) -> list[Step]:
    """Steps that bring a node (`live`) or the image below `root` to `files`.

    The user comes before what names it: a service whose group does not exist does not start, and one is SGLang's.
    """
    steps: list[Step] = []
    for file in files:
        steps.append(_written(root, file, force=force))
        if file.path == USERS:
            steps.append(Command(("systemd-sysusers", *_root_option(root, live=live), USERS.name)))
        elif file.path == DIRECTORIES and live:
            steps.append(Command(("systemd-tmpfiles", "--create", DIRECTORIES.name)))
    if not live:
        return [*steps, Command(("systemctl", *_root_option(root, live=live), "enable", _UNIT))]
    return [
        *steps,
        *(Command(("systemctl", *words)) for words in (("daemon-reload",), ("enable", _UNIT), ("restart", _UNIT))),
    ]


def uninstallation(root: Path, *, live: bool, force: bool, purge: bool) -> list[Step]:
    """Steps that remove an installation: its service, its files, and with `purge` its data."""
    paths = [SERVICE, *(UNITS / f"{name}.d" / DROP_IN for name in services_watched(root)), DIRECTORIES, USERS]
    changes = [_removed(root, path, force=force) for path in paths if _exists(place(root, path))]
    if purge:
        changes += [Change(path, Act.REMOVE) for path in DATA if _exists(place(root, path))]
    elif _exists(place(root, CONFIGURATION)):
        changes.append(Change(CONFIGURATION, Act.YOURS))
    steps: list[Step] = list(changes)
    if any(change.path == SERVICE for change in changes):
        now = ("--now",) if live else ()
        steps.insert(0, Command(("systemctl", *_root_option(root, live=live), "disable", *now, _UNIT)))
    return [*steps, Command(("systemctl", "daemon-reload"))] if live and changes else steps


def differences(steps: Iterable[Step]) -> list[Change]:
    """Where what is installed is not what this release would install."""
    return [step for step in steps if isinstance(step, Change) and step.act not in {Act.SAME, Act.YOURS}]


def _written(root: Path, file: NodeFile, *, force: bool) -> Change:
    here = place(root, file.path)
    if not _exists(here):
        return Change(file.path, Act.WRITE, after=file.text)
    if file.of_people:
        return Change(file.path, Act.YOURS)
    before = _content(here)
    if before == file.text:
        act = Act.SAME
    elif before is not None and is_untouched(before):
        act = Act.UPDATE
    else:
        act = Act.REPLACE if force else Act.EDITED
    return Change(file.path, act, before, file.text)


def _removed(root: Path, path: PurePosixPath, *, force: bool) -> Change:
    before = _content(place(root, path))
    untouched = before is not None and is_untouched(before)
    return Change(path, Act.REMOVE if untouched or force else Act.EDITED, before)


def _content(path: Path) -> str | None:
    """The text of a plain file; None for anything else, such as the link of a masked unit."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError as error:
        raise InstallError(f"{path}: cannot be read: {error.strerror}: run this as root") from None


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _root_option(root: Path, *, live: bool) -> tuple[str, ...]:
    return () if live else (f"--root={root}",)
