"""Receiving SGLang's forward-pass metrics: a ZMQ subscription, and what a message says.

Loaded only when there is an address to subscribe to: it needs pyzmq, an optional dependency.

The fields are those of SGLang 0.5.23 (`srt/observability/forward_pass_metrics.py`, version 1), in their order: three
frames, of which the last is a MessagePack map, or an array without names, as Dynamo's publishers of the same fields may
send.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
import zmq

MESSAGE_BYTES_MAX = 64 * 1024
_QUEUED_MAX = 10_000
_FRAMES = 3
_RECONNECT_MS, _RECONNECT_MAX_MS = 500, 10_000

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class Scheduled(msgspec.Struct, frozen=True):
    """Requests of one forward pass. KV tokens of prefills are those of their cached prefixes."""

    num_prefill_requests: Count
    sum_prefill_tokens: Count
    var_prefill_length: float
    sum_prefill_kv_tokens: Tokens
    num_decode_requests: Count
    sum_decode_kv_tokens: Tokens
    var_decode_kv_tokens: float


class Queued(msgspec.Struct, frozen=True):
    """Requests that wait."""

    num_prefill_requests: Count
    sum_prefill_tokens: Tokens
    var_prefill_length: float
    num_decode_requests: Count
    sum_decode_kv_tokens: Tokens
    var_decode_kv_tokens: float


class Message(msgspec.Struct, frozen=True):
    """One forward pass, or a sign of life of an idle scheduler: then `wall_time`, in seconds, is 0."""

    version: Literal[1]
    worker_id: str
    dp_rank: int
    counter_id: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    wall_time: Annotated[float, msgspec.Meta(ge=0, le=3600)]
    scheduled_requests: Scheduled
    queued_requests: Queued


class _ScheduledInOrder(Scheduled, frozen=True, array_like=True):
    """The same without names."""


class _QueuedInOrder(Queued, frozen=True, array_like=True):
    """The same without names."""


class _MessageInOrder(Message, frozen=True, array_like=True):
    """The same without names."""

    scheduled_requests: _ScheduledInOrder
    queued_requests: _QueuedInOrder


_BY_NAME, _IN_ORDER = msgspec.msgpack.Decoder(Message), msgspec.msgpack.Decoder(_MessageInOrder)
_ARRAYS = {*range(0x90, 0xA0), 0xDC, 0xDD}
"""First bytes of arrays in MessagePack."""
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises over what is no message: invalid text and deep nesting are Python's own errors."""


def decoded(payload: bytes) -> Message:
    """The message of a last frame.

    Raises:
        msgspec.MsgspecError: it is none.
        UnicodeDecodeError: the same, where a text in it is none.
        RecursionError: the same, where it is nested too deeply.
    """
    return _IN_ORDER.decode(payload) if payload and payload[0] in _ARRAYS else _BY_NAME.decode(payload)


class Subscriber:
    """Messages of one publisher, from the subscription on; it may come, go and come again."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RCVHWM, _QUEUED_MAX),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS),
        ):
            self._socket.setsockopt(option, value)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, str(error), address) from None

    def messages(self) -> Iterator[Message | None]:
        """What has come in since the last call, at most as much as is queued; None for what is no such message."""
        for _ in range(_QUEUED_MAX):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield decoded(frames[-1]) if len(frames) == _FRAMES else None
            except MALFORMED:
                yield None

    def close(self) -> None:
        """End the subscription."""
        self._socket.close()
        self._context.term()
