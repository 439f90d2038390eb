"""The messages of the channel: bytes in, records out, and back. No socket, no clock.

Every message is one datagram: 40 bytes of metadata (`size_t size`, `char type[32]`), then the body. Integers are those
of the machine, and both ends are on one.
"""

import struct
from dataclasses import dataclass

DATAGRAM_BYTES_MAX = 4096
"""Longest datagram that is looked at: a process with a thousand ancestors."""

_METADATA = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")
_COUNT = struct.Struct("=i")

_CONTEXT_TYPE = b"ctxt"
_REQUEST_TYPE = b"req"
_ACTIVITIES = 2
"""In the type of a request: the process is free to record. It leaves the bit out while a profile is being taken."""

GPU_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "user_annotation")
CPU_ACTIVITIES = ("cpu_op", "user_annotation")


class ProtocolError(ValueError):
    """A datagram is none of the channel's messages; says in what."""


@dataclass(frozen=True)
class ContextMessage:
    """`ctxt`: a process has made a context on a GPU. The answer is a count."""

    gpu: int
    pid: int
    job: int


@dataclass(frozen=True)
class RequestMessage:
    """`req`: a process asks whether it shall record. `pids` are its own and its ancestors', as it sees them."""

    free: bool
    job: int
    pids: tuple[int, ...]


@dataclass(frozen=True)
class CaptureOrder:
    """What a process is asked to record.

    `log_file` ends in `.json`; libkineto puts the process's pid before the ending. Warm-up is 0: CUPTI is on from the
    configuration on, so that a warm-up would count as exposure.
    """

    log_file: str
    duration_ms: int
    activities: tuple[str, ...]

    @property
    def text(self) -> str:
        """The configuration, as libkineto reads it: one `KEY=value` a line."""
        return "\n".join(
            (
                f"ACTIVITIES_LOG_FILE={self.log_file}",
                "PROFILE_START_TIME=0",
                f"ACTIVITIES_DURATION_MSECS={self.duration_ms}",
                f"ACTIVITY_TYPES={','.join(self.activities)}",
                "ACTIVITIES_WARMUP_PERIOD_SECS=0",
                "PROFILE_REPORT_INPUT_SHAPES=false",
                "PROFILE_PROFILE_MEMORY=false",
                "PROFILE_WITH_STACK=false",
            )
        )

    def file_name(self, pid: int) -> str:
        """The name of the file that the process `pid` (as it sees itself) writes."""
        return f"{self.log_file.removesuffix('.json')}_{pid}.json"


def parse(datagram: bytes) -> ContextMessage | RequestMessage:
    """The message in a datagram.

    Raises:
        ProtocolError: shorter or longer than it says, of an unknown type, or without a process.
    """
    if len(datagram) < _METADATA.size:
        raise ProtocolError(f"{len(datagram)} bytes, fewer than the metadata has")
    size, raw_type = _METADATA.unpack_from(datagram)
    body = datagram[_METADATA.size :]
    if size != len(body):
        raise ProtocolError(f"announces {size} bytes of body, has {len(body)}")
    message_type = raw_type.partition(b"\0")[0]
    if message_type == _CONTEXT_TYPE:
        return _context(body)
    if message_type == _REQUEST_TYPE:
        return _request(body)
    raise ProtocolError(f"type {message_type!r} is unknown")


def _context(body: bytes) -> ContextMessage:
    if len(body) != _CONTEXT.size:
        raise ProtocolError(f"a context of {len(body)} bytes")
    gpu, pid, job = _CONTEXT.unpack(body)
    return ContextMessage(gpu, pid, job)


def _request(body: bytes) -> RequestMessage:
    if len(body) < _REQUEST.size:
        raise ProtocolError(f"a request of {len(body)} bytes")
    kind, count, job = _REQUEST.unpack_from(body)
    rest = len(body) - _REQUEST.size
    if count < 1 or rest != count * _COUNT.size:
        raise ProtocolError(f"a request of {count} processes in {rest} bytes")
    pids = struct.unpack_from(f"={count}i", body, _REQUEST.size)
    return RequestMessage(bool(kind & _ACTIVITIES), job, pids)


def configuration_answer(text: str) -> bytes:
    """The answer to a request: a configuration, empty for "nothing to do"."""
    return _datagram(_REQUEST_TYPE, text.encode())


def count_answer(count: int) -> bytes:
    """The answer to a context: how many processes have one on that GPU."""
    return _datagram(_CONTEXT_TYPE, _COUNT.pack(count))


def _datagram(message_type: bytes, body: bytes) -> bytes:
    return _METADATA.pack(len(body), message_type) + body
