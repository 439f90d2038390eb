"""What the doctor looks at for profiles: the directory of the channel, and the environment of every server."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.kineto.directory import EndpointError, check_directory, check_name
from cyclewatch.collectors.process_environment import environment
from cyclewatch.config.settings import Profiling
from cyclewatch.daemon.check import MEMORY_FILE_SYSTEMS, Check, Level, file_system
from cyclewatch.daemon.profiling.channel import user_ids

_USE, _SOCKET_DIR, _TRACE_DIR = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "KINETO_ONDEMAND_TRACE_DIR"
_TEMPORARY = "/tmp/"  # noqa: S108 (where libkineto writes by default)


_CRASHES = re.compile(r"2\.[789]\.")
"""Versions of torch that may crash at the start of a process, with the channel on: docs/profiling.md says more."""


def profiling_checks(settings: Profiling, schedulers: Mapping[int, str], proc: Path) -> Iterator[Check]:
    """Findings on the channel, then on each of the `schedulers`: process ids with the version of torch, where known."""
    if not settings.enabled:
        yield Check("kernel profiles", Level.NOTE, "profiling.enabled is false", "set it to true to have profiles")
        return
    yield from _directory(settings)
    for pid, torch in schedulers.items():
        check = _scheduler(pid, settings.socket_dir, proc)
        if check.level is Level.GOOD and _CRASHES.match(torch):
            finding = f"can be taken, but torch {torch} with {_USE} may crash when a server starts"
            mend = f"where no start may fail, unset {_USE}: docs/profiling.md, When Kineto itself fails"
            check = Check(check.subject, Level.NOTE, finding, mend)
        yield check


def _directory(settings: Profiling) -> Iterator[Check]:
    directory = settings.socket_dir
    subject = f"directory of Kineto's channel {directory}"
    try:
        user_ids(settings.users)
        check_directory(directory)
    except EndpointError as error:
        finding, _, mend = str(error).removeprefix(f"{directory}: ").partition(": ")
        # Without a directory nobody wants profiles; one that is wrong was made by somebody who does.
        level = Level.BAD if os.path.lexists(directory) else Level.NOTE
        yield Check(subject, level, finding, mend or "see docs/profiling.md")
        return
    kind = file_system(directory)
    if kind in MEMORY_FILE_SYSTEMS:
        yield Check(subject, Level.GOOD, f"is on {kind}, and closed to others")
    else:
        yield Check(subject, Level.NOTE, f"is on {kind}", "put it on tmpfs: traces of many megabytes go there")


def _scheduler(pid: int, directory: Path, proc: Path) -> Check:
    subject = f"profiles of SGLang scheduler (pid {pid})"
    given = environment(pid, {_USE, _SOCKET_DIR, _TRACE_DIR}, proc)
    mend = f"restart SGLang with {_USE}=1 {_SOCKET_DIR}={directory} {_TRACE_DIR}={directory}"
    if given is None:
        return Check(subject, Level.NOTE, "its environment cannot be read", "run the doctor as root, or as its user")
    if _USE not in given:
        return Check(subject, Level.NOTE, f"cannot be taken: {_USE} is not set", mend)
    socket_dir = given.get(_SOCKET_DIR, "")
    if not socket_dir:
        return Check(subject, Level.BAD, f"{_SOCKET_DIR} is not set: it asks in the abstract namespace", mend)
    if socket_dir != str(directory):
        return Check(subject, Level.BAD, _misspelt(socket_dir, directory), mend)
    traces = given.get(_TRACE_DIR) or _TEMPORARY
    if not f"{directory}/".startswith(f"{traces.rstrip('/')}/"):
        finding = (
            f"torch 2.14.1 and later would not write traces there: {_TRACE_DIR} is {given.get(_TRACE_DIR, 'not set')}"
        )
        return Check(subject, Level.BAD, finding, mend)
    return Check(subject, Level.GOOD, "can be taken")


def _misspelt(socket_dir: str, directory: Path) -> str:
    try:
        check_name(socket_dir)
        same = Path(socket_dir).samefile(directory)
    except EndpointError as error:
        return f"{_SOCKET_DIR} {error}"
    except OSError:
        same = False
    if same:
        return (
            f"{_SOCKET_DIR}={socket_dir} is another spelling of {directory}: an answer would end the server, "
            "so it gets none"
        )
    return f"{_SOCKET_DIR}={socket_dir} is another directory"
