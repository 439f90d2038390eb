"""The directory of the channel: what it must be like, and what was left in it.

A wrong directory can end the server. libkineto copies the name of its socket into 108 bytes without looking at its
length, and an answer from an address that does not begin with its own `KINETO_IPC_SOCKET_DIR`, letter by letter,
is an exception that nobody catches (tried with torch 2.13). So the rules here are strict.
"""

import contextlib
import os
import re
import socket
import stat
from pathlib import Path

SOCKET_NAME = "dynolog"
CLIENT_PREFIX = "dynoconfigclient"
TRACE_PREFIX = "cyclewatch-"

_ADDRESS_BYTES_MAX = 107
_CLIENT_NAME_BYTES = len(CLIENT_PREFIX) + 36
DIRECTORY_BYTES_MAX = _ADDRESS_BYTES_MAX - 1 - _CLIENT_NAME_BYTES
"""Longest directory whose sockets have names that fit: a client's is `dynoconfigclient` and a UUID."""

_PLAIN = re.compile(r"(/[A-Za-z0-9._-]+)+")


class EndpointError(Exception):
    """The channel cannot be served; one sentence that names the directory and the mend."""


def check_name(directory: str) -> None:
    """See that a directory's name is one that libkineto can work with.

    Raises:
        EndpointError: not absolute, too long, or with something that configurations do not carry.
    """
    if not _PLAIN.fullmatch(directory) or ".." in directory or "/./" in f"{directory}/":
        raise EndpointError(
            f"{directory}: not a plain absolute path: use letters, digits, '.', '_' and '-', and no slash at the end"
        )
    if len(directory) > DIRECTORY_BYTES_MAX:
        raise EndpointError(
            f"{directory}: {len(directory)} characters are more than the {DIRECTORY_BYTES_MAX} that libkineto has room "
            "for: use a shorter path"
        )


def check_directory(directory: Path) -> None:
    """See that the channel may be served in a directory.

    Raises:
        EndpointError: not there, another user's, or open to everybody.
    """
    check_name(str(directory))
    mend = f"create it on tmpfs: install -d -m 2770 -g GROUP {directory} (GROUP: one that SGLang and cyclewatch share)"
    try:
        status = directory.lstat()
    except OSError as error:
        raise EndpointError(f"{directory}: {error.strerror}: {mend}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise EndpointError(f"{directory}: is not a directory: {mend}")
    if status.st_mode & stat.S_IRWXO:
        # The sockets of libkineto take datagrams from everybody who can reach them.
        raise EndpointError(f"{directory}: is open to every user of this host: chmod o-rwx {directory}")
    if status.st_uid not in {0, os.geteuid()}:
        raise EndpointError(f"{directory}: belongs to user {status.st_uid}: {mend}")
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise EndpointError(f"{directory}: this user may not write there: join the group that owns it")


def remove_left_over(directory: Path) -> None:
    """Remove what nobody serves any more: sockets of processes that have ended, traces that were never read."""
    with contextlib.suppress(OSError):
        for path in list(directory.iterdir()):
            if path.name.startswith(TRACE_PREFIX) or (path.name.startswith(CLIENT_PREFIX) and is_abandoned(path)):
                with contextlib.suppress(OSError):
                    path.unlink()


def is_abandoned(path: Path) -> bool:
    """Whether a path is a socket that no process is bound to."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
