"""Opening a trace that another process left in a shared directory: never trusted, whatever its name."""

import os
import stat
from pathlib import Path


class TraceFileError(Exception):
    """The file is not what it should be; one sentence."""


def open_trace(path: Path, user: int, max_bytes: int) -> int:
    """A descriptor of a complete trace of `user`; whoever looks at the path later may find another file.

    Raises:
        TraceFileError: not a plain file of that user, longer than `max_bytes`, or not to be read.
    """
    try:
        # Not followed, and not waited for: it could be a link to another file, or a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TraceFileError(f"{path.name}: cannot be opened: {error.strerror}: may this user read it?") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != user or status.st_nlink != 1:
        reason = f"{path.name}: is not a plain file of user {user}"
    elif status.st_size > max_bytes:
        reason = f"{path.name}: has {status.st_size} bytes, more than profiling.max_file_bytes"
    else:
        return descriptor
    os.close(descriptor)
    raise TraceFileError(reason)
