import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.profiles import trace_events
from cyclewatch.collectors.profiles.records import ProfileError
from cyclewatch.collectors.profiles.trace_events import TraceEvents

NASTY = st.text(alphabet='{}[],": \\a\n\u00e9\u2028', max_size=20)
VALUE = st.recursive(
    NASTY | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY, inner, max_size=3),
    max_leaves=8,
)
EVENT = st.fixed_dictionaries(
    {"name": NASTY, "ts": st.integers(0, 10**6)}, optional={"other": VALUE, "traceEvents": VALUE}
)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, size: int = 1 << 20, max_events: int = 10**6) -> tuple[list[tuple[Any, Any]], TraceEvents]:
    events = TraceEvents(pieces(data, size), max_events)
    return [(event.name, event.ts) for some in events for event in some], events


@given(
    st.lists(EVENT, max_size=30),
    st.dictionaries(NASTY, VALUE, max_size=3),
    st.dictionaries(NASTY, VALUE, max_size=3),
    st.integers(1, 200),
    st.sampled_from([None, 2, "\t"]),
    st.booleans(),
)
def test_events_are_those_of_the_whole_document(
    events: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any], size: int, indent: Any, ascii_: bool
) -> None:
    """However the file is cut into chunks, whatever stands in its strings, before it and behind it."""
    document = {**before, "traceEvents": events, "baseTimeNanoseconds": 7, **{f"_{key}": after[key] for key in after}}
    data = json.dumps(document, indent=indent, ensure_ascii=ascii_).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_events, "CHUNK_BYTES", size)
        found, reader = read(data, size)
    assert found == [(event["name"], event["ts"]) for event in events]
    assert reader.head.base_ns == 7


@given(st.lists(EVENT, min_size=1, max_size=8), st.data())
def test_a_cut_file_is_never_taken_for_a_whole_one(events: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = json.dumps({"traceEvents": events, "traceName": "x"}).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProfileError):
        read(whole[:cut])


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_give_events_or_one_error(data: bytes, size: int) -> None:
    for begin in (b"", b'{"traceEvents":[', b'{"traceEvents":[{"name":"a","ts":1},'):
        with suppress(ProfileError):
            read(begin + data, size)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"name": "C:\\q\\u12", "ts": 1}', "C:\\q\\u12"),
        ('{"name": "two\nlines", "ts": 1}', "two lines"),
        ('{"name": "k", "ts": 1, "args": {"bandwidth": inf, "other": -nan, "third": NaN}}', "k"),
        ('{"name": "\udcff", "ts": 1}', "\ufffd"),
    ],
)
def test_what_some_versions_write_wrongly_is_mended(text: str, name: str) -> None:
    good = '{"name": "good\\n\\\\", "ts": 2}'
    data = f'{{"traceEvents": [{good}, {text}, {good}]}}'.encode("utf-8", "surrogateescape")
    found, _ = read(data)
    assert found == [("good\n\\", 2), (name, 1), ("good\n\\", 2)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"traceEvents": 7}',
        b'{"a": {"traceEvents": [{"name": "inner", "ts": 1}]}}',
        b'{"traceEvents": [1, 2]}',
        b'{"traceEvents": [{"name": [], "ts": 1}]}',
        b'{"traceEvents": [{"ts": "1"}]}',
        b'{"traceEvents": [{}], "deviceProperties": 7}',
        b'{"traceEvents": [{}] "a": 1}',
        b'{"traceEvents": [{}]',
        b'{"traceEvents": [{},',
        b'{"traceEvents": [' + b"[" * 100_000,
        b'{"traceEvents": [{"args": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001 + b"]}",
        b'{"a":' * 100_000,
        b'{"traceEvents": [{"name": "' + b"}" * 300_000,
        b'{"traceEvents": [{"name": "' + b"},{" * 100_000,
        b'{"traceEvents":[' * 20_000,
    ],
)
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    with pytest.raises(ProfileError):
        read(data)


def test_there_is_a_limit_on_events() -> None:
    """Twenty million empty ones take three bytes each."""
    data = b'{"traceEvents":[' + b"{}," * 3000 + b"{}]}"
    assert len(read(data, max_events=3001)[0]) == 3001
    with pytest.raises(ProfileError, match="more than 3000 events"):
        read(data, max_events=3000)


def test_there_is_a_limit_on_one_event() -> None:
    endless = (b" " * (1 << 20) for _ in range(100))
    with pytest.raises(ProfileError, match="an event larger than 4 MB"):
        list(TraceEvents(iter([b'{"traceEvents":[{', *endless]), 10))
