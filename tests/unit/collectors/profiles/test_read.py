import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import ProfileError
from profile_files import (
    NSYS_COPIED,
    NSYS_CSV,
    NSYS_OLD_TEXT,
    NSYS_TEXT,
    TORCH_TABLE,
    copy,
    dispatch,
    kernel,
    launch,
    mark,
    operator,
    rocprofv3,
    trace,
    write,
)

TRACE = trace(
    operator("aten::mm", 1, 2),
    launch(1, 2, 1),
    kernel("gemm<float>(a, b)", 5.25, 3.125, 1),
    copy(9, 1, 2),
    mark("step[DECODE bs=1]", 4, 9, on_device=True),
    deviceProperties=[{"id": 0, "name": "GPU"}],
)
SAMPLES = {
    "kineto": json.dumps(TRACE, indent=1),
    "rocprofv3": json.dumps(rocprofv3(dispatch(1, 100, 200), dispatch(2, 150, 250))),
    "nsys csv": NSYS_CSV,
    "nsys text": NSYS_TEXT,
    "nsys old": NSYS_OLD_TEXT,
    "nsys copied": NSYS_COPIED,
    "torch table": TORCH_TABLE.format("g43: "),
}


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_the_format_is_found_by_content(tmp_path: Path, kind: str, packing: str) -> None:
    path = write(tmp_path / f"profile{packing}", SAMPLES[kind])
    profile = read_profile(path.rename(tmp_path / "profile.bin"))
    assert kind.startswith(profile.format.value.partition("-")[0])
    assert profile.totals.calls > 0


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    for kind in ("nsys csv", "nsys copied", "kineto"):
        if (kind, encoding) != ("kineto", "utf-16"):
            assert read_profile(write(tmp_path / "profile", SAMPLES[kind].encode(encoding))).totals.calls > 0


@pytest.mark.parametrize(
    "content", ["hello\n", "{}", "[]", "[1, 2]", '{"a": 1}', "\0\1\2", "\ud800".encode("utf-16-le", "surrogatepass")]
)
def test_what_is_no_profile_is_refused_with_its_name(tmp_path: Path, content: str | bytes) -> None:
    path = write(tmp_path / "pro\nfile", content)
    with pytest.raises(ProfileError, match="pro\\?file: "):
        read_profile(path)


def spoilt(content: bytes, seed: int) -> bytes:
    """The content with a few bytes changed, left out, doubled or cut."""
    choose = random.Random(seed)
    data = bytearray(content)
    for _ in range(choose.randint(1, 4)):
        at, length = choose.randrange(len(data)), choose.randint(1, 30)
        match choose.randrange(5):
            case 0:
                data[at] = choose.randrange(256)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length]
            case 3:
                data[at:at] = choose.choice([b"-", b"NaN", b"1e999", b"{", b"]", b'"', b"\\", b"\xff", b",", b"9" * 40])
            case _:
                del data[at + 1 :]
    return bytes(data)


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_spoilt_file_gives_a_profile_or_one_sentence(tmp_path: Path, kind: str, packing: str) -> None:
    path = write(tmp_path / f"profile{packing}", SAMPLES[kind])
    content = path.read_bytes()
    for seed in range(150):
        path.write_bytes(spoilt(content, seed))
        outcome: Any
        try:
            outcome = read_profile(path)
        except ProfileError as error:
            outcome = str(error)
        if isinstance(outcome, str):
            assert outcome.isprintable(), seed
            assert len(outcome) < 500, seed
        else:
            assert outcome.totals.kernel_ns >= 0, seed
            assert all(use.total_ns >= 0 and use.calls >= 0 for use in outcome.kernels), seed


@given(data=st.data())
def test_any_times_give_sums_that_hold_or_one_sentence(data: st.DataObject, tmp_path_factory: Any) -> None:
    """Also at the edge of what can be counted."""
    number = st.floats() | st.integers(-(2**70), 2**70) | st.integers(0, 10**6)
    events = [kernel("k", data.draw(number), data.draw(number), at) for at in range(data.draw(st.integers(1, 4)))]
    path = write(tmp_path_factory.mktemp("times") / "trace", trace(*events))
    try:
        totals = read_profile(path).totals
    except ProfileError:
        return
    assert totals.busy_ns is not None
    assert totals.span_ns is not None
    assert 0 <= totals.busy_ns <= min(totals.kernel_ns, totals.span_ns)
    assert totals.kernel_ns == sum(round(event["dur"] * 1000) for event in events)


READ_AND_MEASURE = """
import resource, sys
from pathlib import Path
from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import ProfileError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

before = peak()
try:
    read_profile(Path(sys.argv[1]))
except ProfileError as error:
    print(peak() - before, error)
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty events.gz", b'{"traceEvents":[' + b"{}," * (20 << 20)),
        ("empty events.zst", b'{"traceEvents":[' + b"{}," * (20 << 20)),
        ("spaces.gz", b'{"traceEvents":[' + b" " * (60 << 20)),
        ("text.gz", b"a b c\n" * (10 << 20)),
        ("deep", b'{"traceEvents":[' + b'{"args":' * (4 << 20)),
        ("deep before", b'{"a":' * (4 << 20)),
        ("long name", b'{"traceEvents":[{"ph":"X","cat":"kernel","name":"' + b"x" * (30 << 20)),
        ("random", random.Random(7).randbytes(30 << 20)),
    ],
)
def test_a_hostile_file_costs_little_memory(tmp_path: Path, name: str, content: bytes) -> None:
    """Of a process that does nothing else; each file unpacks to tens of megabytes or more."""
    command = [sys.executable, "-c", READ_AND_MEASURE, str(write(tmp_path / name, content))]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    peak_mb, _, reason = answer.stdout.partition(" ")
    assert reason.startswith(str(tmp_path))
    assert int(peak_mb) < 150
