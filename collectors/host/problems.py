"""What to say of a file that cannot be read."""

from pathlib import Path

from cyclewatch.collectors.procfs import FormatError
from cyclewatch.collectors.records import Failure


def unreadable(path: Path, error: OSError | FormatError) -> Failure:
    """One sentence about a file that cannot be read, with the mend."""
    if isinstance(error, FormatError):
        reason = f"{error}: is the kernel's own file mounted there?"
    elif isinstance(error, PermissionError):
        reason = "permission denied: run cyclewatch as the server's user, or mount /proc without hidepid"
    elif isinstance(error, FileNotFoundError):
        reason = "no such file: is the host's file system mounted there, and do host.proc and host.sys name it?"
    else:
        reason = error.strerror or type(error).__name__
    return Failure(str(path), f"{path}: {reason}")
