import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.procfs import (
    COUNTER_MAX,
    FormatError,
    ProcessStat,
    SchedStat,
    named_counters,
    parse_children,
    parse_schedstat,
    parse_stat,
)

COUNTERS = st.integers(0, COUNTER_MAX)
PARSERS = (parse_schedstat, parse_stat, parse_children)


@given(COUNTERS, COUNTERS, COUNTERS)
def test_schedstat_is_read_back(on_cpu: int, wait: int, slices: int) -> None:
    assert parse_schedstat(b"%d %d %d\n" % (on_cpu, wait, slices)) == SchedStat(on_cpu, wait)


# Names come from prctl: anything but NUL, and the kernel escapes newlines.
@given(
    st.text(st.characters(exclude_characters="\0\n", codec="utf-8"), max_size=15),
    st.sampled_from("RSDTtIZX"),
    *[COUNTERS] * 4,
)
def test_stat_is_read_back_whatever_the_name(
    name: str, state: str, parent: int, start: int, user: int, system: int
) -> None:
    text = f"7 ({name}) {state} {parent} {'0 ' * 9}{user} {system} {'0 ' * 6}{start} {'0 ' * 30}\n"
    assert parse_stat(text.encode()) == ProcessStat(name, parent, start, user + system, state in "ZX")


@given(st.lists(COUNTERS))
def test_children_are_read_back(pids: list[int]) -> None:
    assert parse_children("".join(f"{pid} " for pid in pids).encode()) == tuple(pids)


def test_named_counters_are_those_asked_for() -> None:
    status = b"Name:\tVmRSS 5\nVmRSS:\t    1776 kB\nThreads:\t1\nvoluntary_ctxt_switches:\t17\n"
    names = {b"VmRSS": "rss", b"VmSwap": "swap", b"voluntary_ctxt_switches": "switches"}
    assert named_counters(names)(status) == {"rss": 1776, "switches": 17}


@given(st.binary() | st.text("0123456789 ()-_+.\n", max_size=80).map(str.encode))
def test_garbage_raises_nothing_but_the_documented_error(content: bytes) -> None:
    for parse in PARSERS:
        with contextlib.suppress(FormatError):
            parse(content)


@pytest.mark.parametrize(
    "content", [b"", b"1 2", b"1 2 3 4", b"1 -2 3", b"1_0 2 3", b"+1 2 3", b"1e3 2 3", b"1 %d 3" % (COUNTER_MAX + 1)]
)
def test_what_the_kernel_never_prints_is_no_schedstat(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_schedstat(content)


@pytest.mark.parametrize("content", [b"", b"1 (a", b"1 a) S", b"1 (a) S 2 3", b"1 (a) S x " + b"0 " * 20])
def test_what_the_kernel_never_prints_is_no_stat(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_stat(content)
