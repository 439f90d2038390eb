"""Doing what was planned, and asking systemd what a plan has to know."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from cyclewatch.daemon.installation.node_files import InstallError
from cyclewatch.daemon.installation.plan import DATA, Act, Change, Command, Step, place

_TIMEOUT_S = 1000.0
"""Longer than the service may take to start."""

Run = Callable[[Sequence[str]], str]


def run(words: Sequence[str]) -> str:
    """Standard output of one of systemd's programs.

    Raises:
        InstallError: it is not there, or did not work.
    """
    said = " ".join(words)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)  # noqa: S603 (systemd's own)
    except FileNotFoundError:
        raise InstallError(f"{words[0]}: not found: this needs systemd 247 or later") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"{said}: has not ended in {_TIMEOUT_S:.0f} s: see journalctl -u cyclewatch") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"ended with {done.returncode}"
        raise InstallError(f"{said}: {reason}: see journalctl -u cyclewatch")
    return done.stdout


def systemd_runs() -> bool:
    """Whether this machine was booted with systemd, as sd_booted(3) tells it."""
    return Path("/run/systemd/system").is_dir()


def systemd_version(ask: Run = run) -> int:
    """Version of systemd, as its own programs say."""
    said = ask(("systemctl", "--version"))
    number = re.match(r"systemd (\d+)", said)
    if number is None:
        raise InstallError(f"systemctl --version: not understood: {said[:80]!r}")
    return int(number.group(1))


def user_of(service: str, ask: Run = run) -> str:
    """The user that a service of this node runs as; empty for root, and for a template, which cannot be asked.

    Raises:
        InstallError: there is no such service.
    """
    if "@." in service:
        return ""
    said = dict(
        line.split("=", 1) for line in ask(("systemctl", "show", "--property=LoadState,User", service)).splitlines()
    )
    if said.get("LoadState") != "loaded":
        raise InstallError(f"{service}: no such service on this node: see systemctl list-units --type=service")
    return said.get("User", "")


def carry_out(root: Path, steps: Sequence[Step], tell: Callable[[str], None], ask: Run = run) -> None:
    """Do every step, in order; the first that fails ends it, and what was done stays.

    Raises:
        InstallError: a file cannot be written or removed, or a program failed.
    """
    for step in steps:
        if isinstance(step, Command):
            tell(f"run      {' '.join(step.words)}")
            ask(step.words)
        elif step.act not in {Act.SAME, Act.YOURS, Act.EDITED}:
            tell(f"{step.act:8} {step.path}")
            try:
                _change(place(root, step.path), step)
            except PermissionError as error:
                raise InstallError(f"{step.path}: {error.strerror}: run this as root") from None
            except OSError as error:
                raise InstallError(f"{step.path}: {error.strerror}: see what lies there") from None


def _change(here: Path, change: Change) -> None:
    if change.path in DATA:
        shutil.rmtree(here)
        return
    if change.act is Act.REMOVE:
        here.unlink()
        if here.parent.name.endswith(".service.d") and not any(here.parent.iterdir()):
            here.parent.rmdir()
        return
    here.parent.mkdir(parents=True, exist_ok=True)
    if change.act is Act.REPLACE:
        here.replace(here.with_name(f"{here.name}.saved"))
    whole = here.with_name(f".{here.name}.new")
    whole.write_text(change.after)
    whole.chmod(0o644)
    whole.replace(here)
