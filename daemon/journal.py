"""Log events as entries of systemd's journal, by its native protocol: `journalctl CYCLEWATCH_TARGET=...` finds them.

The protocol is systemd's Native Journal Protocol: one datagram an entry; the length of a value of several lines stands
before it.
"""

import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import structlog

SOCKET = Path("/run/systemd/journal/socket")
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Those of syslog(3)."""

_SEND_TIMEOUT_S = 0.1
_NAME_MAX = 64
_render = structlog.processors.LogfmtRenderer(bool_as_flag=False)


def leads_to_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether systemd has connected a stream to its journal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or none of the operating system's
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def entry(level: str, event: Mapping[str, object]) -> dict[str, str]:
    """Fields of an event: a message for people with all that it says, and every value by its name."""
    values = {name: value for name, value in event.items() if name not in {"event", "level", "exception"}}
    said = " ".join(str(event.get("event", "")).split("\n"))
    words = [said, str(_render(None, level, {_word(name): value for name, value in values.items()}))]
    lines = [" ".join(filter(None, words)), str(event.get("exception", ""))]
    return {
        "MESSAGE": "\n".join(filter(None, lines)),
        "PRIORITY": str(PRIORITIES.get(level, PRIORITIES["info"])),
        "SYSLOG_IDENTIFIER": "cyclewatch",
        "CYCLEWATCH_EVENT": said,
        **{f"CYCLEWATCH_{_word(name).upper()}"[:_NAME_MAX]: str(value) for name, value in values.items()},
    }


def datagram(fields: Mapping[str, str]) -> bytes:
    """An entry as the journal reads it."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="replace")
        sized = b"\n" + struct.pack("<Q", len(value)) + value if b"\n" in value else b"=" + value
        parts.append(name.encode() + sized + b"\n")
    return b"".join(parts)


class Journal:
    """Where entries go; what the journal does not take is a line on `stream`, which it reads as well."""

    def __init__(self, stream: TextIO, address: Path = SOCKET) -> None:
        self._stream = stream
        self._address = str(address)

    def write(self, fields: Mapping[str, str]) -> None:
        """Hand over one entry."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(_SEND_TIMEOUT_S)
                channel.sendto(datagram(fields), self._address)
        except OSError:  # too long for a datagram, or the journal is being restarted
            for line in fields["MESSAGE"].splitlines():
                print(f"<{fields['PRIORITY']}>{line}", file=self._stream, flush=True)


def _word(name: str) -> str:
    """A name as the journal and its readers allow it."""
    return "".join(one if one.isascii() and one.isalnum() else "_" for one in name)
