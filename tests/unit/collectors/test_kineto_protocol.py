"""The messages of Kineto's daemon channel: what libkineto sends, and what it does not."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cyclewatch.collectors.kineto.protocol import (
    DATAGRAM_BYTES_MAX,
    CaptureOrder,
    ContextMessage,
    ProtocolError,
    RequestMessage,
    configuration_answer,
    count_answer,
    parse,
)
from fake_kineto import METADATA, context, keys, request

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(pids=st.lists(INT32, min_size=1, max_size=900).map(tuple), free=st.booleans(), job=INT64)
def test_what_libkineto_asks_is_understood(pids: tuple[int, ...], free: bool, job: int) -> None:
    assert parse(request(pids, free=free, job=job)) == RequestMessage(free, job, pids)


@given(gpu=INT32, pid=INT32, job=INT64)
def test_a_context_is_understood(gpu: int, pid: int, job: int) -> None:
    assert parse(context(pid, gpu, job)) == ContextMessage(gpu, pid, job)


@given(datagram=st.binary(max_size=DATAGRAM_BYTES_MAX))
@example(METADATA.pack(2**64 - 1, b"req"))
@example(METADATA.pack(16, b"req") + struct.pack("<iiq", 3, -1, 0))
@example(METADATA.pack(16, b"req") + struct.pack("<iiq", 3, 2**31 - 1, 0))
@example(METADATA.pack(16, b"req") + struct.pack("<iiq", 3, 0, 0))
@example(METADATA.pack(15, b"ctxt") + b"x" * 15)
@example(METADATA.pack(0, b"\xff" * 32))
def test_any_bytes_are_a_message_or_a_protocol_error(datagram: bytes) -> None:
    """Nothing else is raised, whatever comes."""
    with suppress(ProtocolError):
        parse(datagram)


@given(datagram=st.builds(request, st.lists(INT32, min_size=1, max_size=9).map(tuple)), cut=st.integers(1, 200))
def test_a_cut_datagram_is_refused(datagram: bytes, cut: int) -> None:
    with pytest.raises(ProtocolError):
        parse(datagram[:-cut])


def test_answers_are_metadata_and_body() -> None:
    """As libkineto reads them: the size it announces is the size that follows."""
    assert configuration_answer("") == METADATA.pack(0, b"req")
    assert configuration_answer("A=1") == METADATA.pack(3, b"req") + b"A=1"
    assert count_answer(2) == METADATA.pack(4, b"ctxt") + b"\x02\0\0\0"


def test_an_order_records_at_once_and_nothing_but_what_is_asked_for() -> None:
    order = CaptureOrder("/run/x/cyclewatch-a.json", 300, ("kernel", "gpu_memcpy"))
    assert keys(order.text) == {
        "ACTIVITIES_LOG_FILE": "/run/x/cyclewatch-a.json",
        "PROFILE_START_TIME": "0",
        "ACTIVITIES_DURATION_MSECS": "300",
        "ACTIVITY_TYPES": "kernel,gpu_memcpy",
        "ACTIVITIES_WARMUP_PERIOD_SECS": "0",
        "PROFILE_REPORT_INPUT_SHAPES": "false",
        "PROFILE_PROFILE_MEMORY": "false",
        "PROFILE_WITH_STACK": "false",
    }
    assert Path(order.file_name(77)) == Path("/run/x/cyclewatch-a_77.json")
