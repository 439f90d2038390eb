"""The files of an installation: where they lie, and what is in them. The templates are in `deploy/systemd/`."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

from cyclewatch.daemon.installation.seal import sealed

UNITS = PurePosixPath("/etc/systemd/system")
SERVICE = UNITS / "cyclewatch.service"
USERS = PurePosixPath("/etc/sysusers.d/cyclewatch.conf")
DIRECTORIES = PurePosixPath("/etc/tmpfiles.d/cyclewatch.conf")
CONFIGURATION = PurePosixPath("/etc/cyclewatch/cyclewatch.toml")
DROP_IN = "50-cyclewatch.conf"

LOADS_DIRECTORIES = 251
"""The first systemd whose LoadCredential= takes a directory; an older one would never start the service."""

_COMMAND = "/opt/cyclewatch/bin/cyclewatch"
_SECRETS = "LoadCredential=secret:/etc/cyclewatch/credentials\n"
_HIDDEN = (*map(PurePosixPath, ("/home", "/root", "/run/user")), *map(PurePosixPath, ("/tmp", "/var/tmp")))  # noqa: S108
_SERVICE_NAME = re.compile(r"[A-Za-z0-9:_.@-]{1,200}")


class InstallError(Exception):
    """An installation cannot be done; one sentence with the mend."""


@dataclass(frozen=True)
class NodeFile:
    """A file on the node. One of people is written where there is none, and then theirs."""

    path: PurePosixPath
    text: str
    of_people: bool = False


def users_file() -> NodeFile:
    """The daemon's user and group."""
    return NodeFile(USERS, sealed(_template("cyclewatch.sysusers.conf")))


def directories_file() -> NodeFile:
    """Where SGLang and the daemon meet, and where secrets lie."""
    return NodeFile(DIRECTORIES, sealed(_template("cyclewatch.tmpfiles.conf")))


def service_file(command: PurePosixPath, systemd: int) -> NodeFile:
    """The daemon's unit, which starts `command`, for a version of systemd."""
    text = _template("cyclewatch.service").replace(_COMMAND, str(command))
    if systemd < LOADS_DIRECTORIES:
        mend = (
            f"# systemd {systemd} loads no directories: name each file in a drop-in, LoadCredential=secret_FILE:PATH\n"
        )
        text = text.replace(_SECRETS, mend)
    return NodeFile(SERVICE, sealed(text))


def sglang_file(service: str) -> NodeFile:
    """The drop-in of one of SGLang's services."""
    return NodeFile(UNITS / f"{service}.d" / DROP_IN, sealed(_template("sglang.conf")))


def configuration_file(users: Iterable[str]) -> NodeFile:
    """A configuration to begin with: what no default can know, which is the users that SGLang runs as."""
    known = sorted(set(users) - {"root", ""})
    return NodeFile(CONFIGURATION, "\n".join(_configuration(known)) + "\n", of_people=True)


def _configuration(users: list[str]) -> Iterator[str]:
    yield "# `cyclewatch config reference` prints every key. After a change: systemctl reload cyclewatch, or restart."
    if users:
        yield ""
        yield "[profiling]"
        yield f"users = {json.dumps(users)}"


def service_name(text: str) -> str:
    """The full name of one of SGLang's services.

    Raises:
        InstallError: it is none.
    """
    name = text if text.endswith(".service") else f"{text}.service"
    if not _SERVICE_NAME.fullmatch(name) or name.startswith("."):
        raise InstallError(f"{text}: not the name of a service: give one that `systemctl list-units` shows")
    return name


def check_command(*paths: Path) -> None:
    """See that the service, which is shut out of homes and temporary directories, can run what lies there.

    Raises:
        InstallError: it cannot.
    """
    for path in paths:
        if not path.is_absolute() or any(character.isspace() or character in "\"'\\%$" for character in str(path)):
            raise InstallError(f"{path}: not a plain absolute path: give one that systemd can start")
        if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            raise InstallError(
                f"{path}: the service cannot see it there: install it in /opt, with a Python that lies in no home: "
                "/usr/bin/python3 -m venv /opt/cyclewatch"
            )


def _template(name: str) -> str:
    return (resources.files("cyclewatch") / "systemd" / name).read_text()
