"""One daemon for one state directory: two would overwrite each other's places in the rings."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


class LockError(Exception):
    """Another daemon has the directory, or it cannot be written; the message names it."""


@contextlib.contextmanager
def only_daemon(directory: Path) -> Iterator[None]:
    """Hold `directory` as long as the context lasts; the kernel gives it back if the process dies.

    Raises:
        LockError: another daemon holds it, or the lock file cannot be made.
    """
    path = directory / "daemon.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise LockError(f"{path}: cannot be made: {error.strerror}: give state_dir a directory to write in") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockError(
                f"{path}: another cyclewatch runs with this state_dir: stop it, or give each its own"
            ) from None
        yield
