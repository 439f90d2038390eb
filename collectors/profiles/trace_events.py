"""The events of a Chrome trace, as Kineto writes it, a chunk at a time, and the few top-level keys that are kept.

A trace is one JSON object with an array of up to millions of events. Decoded whole it takes a multiple of its size in
memory, and a hostile one (`{},{},{},…`) forty times as much, before anybody could count. So the array is cut between
two events and decoded in chunks. Whether a cut is right needs no scanner of our own: what stands between the last cut
and a true one is a list of JSON values, and at any other place it is not.

Only the declared fields are decoded, of events as of the whole: public traces were seen with secrets in "metadata".
"""

import itertools
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TypeVar

import msgspec

from cyclewatch.collectors.profiles.records import ProfileError
from cyclewatch.collectors.profiles.unpack import CHUNK_BYTES

T = TypeVar("T")
Scalar = int | float | str | None

MAX_OUTSIDE_BYTES = 8 << 20
"""Of what stands before and after the events."""
MAX_EVENT_BYTES = 4 << 20

_EXACT_UP_TO_US = 2.0**43
"""Float64 tells nanoseconds up to here; microseconds since the epoch, which some versions write, are beyond."""
_TRIES = 4
_NEAR_BYTES = 1 << 16

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_ARRAY = re.compile(rb"\s*+\[(?=\s*+[{\]])")
_BETWEEN_EVENTS = re.compile(rb"\}(?=\s*+,\s*+\{)")
_NO_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:nan|inf(?:inity)?)(?=\s*+[,}\]])", re.IGNORECASE)
_ESCAPE = re.compile(rb'(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\')
_CONTROL_TO_SPACE = bytes.maketrans(bytes(range(0x20)), b" " * 0x20)
_SCANNER = json.JSONDecoder(strict=False)


class Args(msgspec.Struct, gc=False):
    """What is read of an event's "args"."""

    correlation: Scalar = None
    device: Scalar = None
    external_id: Scalar = msgspec.field(name="External id", default=None)
    labels: Scalar = None


class EventFields(msgspec.Struct, gc=False):
    """What is read of every event."""

    ph: Scalar = None
    cat: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    dur: int | float | None = None
    args: Args | None = None


class Event(EventFields, gc=False):
    """An event; times in microseconds."""

    ts: int | float | None = None


class ExactEvent(EventFields, gc=False):
    """An event of a trace whose times float64 cannot hold."""

    ts: Decimal | None = None


Events = list[Event] | list[ExactEvent]


class Device(msgspec.Struct):
    """A GPU, as the trace tells it."""

    id: Scalar = None
    name: Scalar = None


class Distributed(msgspec.Struct):
    """The place of the process in its job."""

    rank: Scalar = None
    world_size: Scalar = None


class Head(msgspec.Struct):
    """The top-level keys that are kept."""

    devices: list[Device] = msgspec.field(name="deviceProperties", default_factory=list)
    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)
    base_ns: Scalar = msgspec.field(name="baseTimeNanoseconds", default=None)
    logged_warnings: msgspec.Raw = msgspec.field(name="WARNING", default_factory=msgspec.Raw)
    logged_errors: msgspec.Raw = msgspec.field(name="ERROR", default_factory=msgspec.Raw)


_EVENTS = msgspec.json.Decoder(list[Event])
_EXACT_EVENTS = msgspec.json.Decoder(list[ExactEvent])
_HEAD = msgspec.json.Decoder(Head)


class TraceEvents:
    """Iterates over the events, in chunks; afterwards `head` is complete.

    Args:
        chunks: the bytes of the trace, in pieces of any size.
        max_events: more are refused.

    Raises (while iterating):
        ProfileError: it is no trace, it is cut off, or it exceeds a limit.
    """

    def __init__(self, chunks: Iterator[bytes], max_events: int) -> None:
        self.head = Head()
        self._chunks = chunks
        self._data = b""
        self._ended = False
        self._in_object = True
        self._mending = False
        self._max_events = max_events
        self._exact = False

    def __iter__(self) -> Iterator[Events]:
        self._enter()
        count = 0
        more = True
        while more:
            events, more = self._next_events()
            count += len(events)
            if count > self._max_events:
                raise ProfileError(f"more than {self._max_events} events: cut the capture shorter")
            yield events
        self._leave()

    def _enter(self) -> None:
        """Go to the first event."""
        while True:
            if match := _ARRAY.match(self._data):
                self._in_object, self._data = False, self._data[match.end() :]
                return
            for match in itertools.islice(_EVENTS_KEY.finditer(self._data), _TRIES):
                before = _head(self._data[: match.end()] + b"]}")
                if before is not None:  # the key is one of the trace itself, and not of something in it
                    self.head, self._data = before, self._data[match.end() :]
                    return
            if not self._fill(len(self._data) + 1):
                raise ProfileError('no "traceEvents": not a trace of Kineto')
            if len(self._data) > MAX_OUTSIDE_BYTES:
                raise ProfileError(f'no "traceEvents" in its first {MAX_OUTSIDE_BYTES >> 20} MB: not a trace of Kineto')

    def _next_events(self) -> tuple[Events, bool]:
        """The next events, and whether more may follow."""
        self._fill(CHUNK_BYTES)
        while (taken := self._take()) is None:
            if len(self._data) > MAX_EVENT_BYTES:
                raise ProfileError(f"not valid JSON, or an event larger than {MAX_EVENT_BYTES >> 20} MB")
            if not self._fill(2 * len(self._data)):
                raise ProfileError("not valid JSON, or cut off in the middle: is it still being written?")
        return taken

    def _take(self) -> tuple[Events, bool] | None:
        """The events that wait whole; ``None`` where there is none."""
        if self._mending:
            self._data = _mended(self._data)
        for end in _ends_of_events(self._data):
            events = self._decoded(self._data[:end])
            if events is not None:
                self._data = self._data[end:].lstrip(b", \t\r\n")
                return events, True
        end_of_array = _end_of_array(self._data)
        if end_of_array is not None:
            events = self._decoded(self._data[: end_of_array - 1])
            if events is not None:
                self._data = self._data[end_of_array:]
                return events, False
        if not self._mending:
            self._mending = True  # and so for the rest of the file: its writer will do it again
            return self._take()
        return None

    def _leave(self) -> None:
        """Read what follows the events."""
        if not self._in_object:
            return
        while self._fill(len(self._data) + 1):
            if len(self._data) > MAX_OUTSIDE_BYTES:
                raise ProfileError(f"more than {MAX_OUTSIDE_BYTES >> 20} MB follow the events: not a trace of Kineto")
        after = _head(b'{"":0' + self._data)
        if after is None:
            raise ProfileError("not valid JSON after the events, or cut off there: is it still being written?")
        for field in msgspec.structs.fields(Head):
            if value := getattr(after, field.name):
                setattr(self.head, field.name, value)

    def _decoded(self, piece: bytes) -> Events | None:
        """The events in the text of an array without its brackets; ``None`` where it is not one."""
        array = b"[" + piece + b"]"
        if not self._exact:
            events = _decoded(_EVENTS, array)
            first = next((event.ts for event in events or () if isinstance(event.ts, float)), 0.0)
            if abs(first) <= _EXACT_UP_TO_US:
                return events
            self._exact = True
        return _decoded(_EXACT_EVENTS, array)

    def _fill(self, size: int) -> bool:
        """Read on until `size` bytes wait; whether any came."""
        before = len(self._data)
        while not self._ended and len(self._data) < size:
            piece = next(self._chunks, b"")
            self._data += piece
            self._ended = not piece
        return len(self._data) > before


def _ends_of_events(data: bytes) -> Iterator[int]:
    """Where events may end that others follow, the last first."""
    for begin in (max(0, len(data) - _NEAR_BYTES), 0):
        ends = [match.end() for match in _BETWEEN_EVENTS.finditer(data, begin)]
        yield from reversed(ends[-_TRIES:])
        if ends or begin == 0:
            return


def _end_of_array(data: bytes) -> int | None:
    """Where the array ends whose inside `data` continues; ``None`` where it does not."""
    try:
        _, end = _SCANNER.raw_decode("[" + data.decode("latin-1"))  # a character a byte: only the place is wanted
    except ValueError:
        return None
    except RecursionError:
        raise ProfileError("JSON that is nested too deeply: not a trace of Kineto") from None
    return end - 1


def _head(data: bytes) -> Head | None:
    """The top-level keys of an object; ``None`` where it is none."""
    head = _decoded(_HEAD, data)
    return head if head is not None else _decoded(_HEAD, _mended(data))


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ProfileError(f"not as Kineto writes it: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except RecursionError:
        raise ProfileError("JSON that is nested too deeply: not a trace of Kineto") from None


def _mended(data: bytes) -> bytes:
    """What some versions of Kineto write, as JSON: numbers that are none, lone backslashes, names that are not UTF-8.

    What stands behind the last bracket may be cut in the middle of a character and is left as it is.
    """
    end = data.rfind(b"}") + 1
    inside = data[:end].decode("utf-8", "replace").encode().translate(_CONTROL_TO_SPACE)
    inside = _ESCAPE.sub(lambda found: found[1] or rb"\\", inside)
    return _NO_NUMBER.sub(b"null", inside) + data[end:]
