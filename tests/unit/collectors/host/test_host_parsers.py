"""What the files of the node's sources say, and that nothing but `FormatError` comes of what they never say."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.host.counters import parse_single
from cyclewatch.collectors.host.cpu import parse_cpu_modes, parse_load
from cyclewatch.collectors.host.disks import parse_disk
from cyclewatch.collectors.host.facts import count_cpus, parse_choice, parse_cpu_facts
from cyclewatch.collectors.host.frequency import parse_cpuinfo_hertz
from cyclewatch.collectors.host.infiniband import parse_port_counter
from cyclewatch.collectors.host.memory import parse_meminfo, parse_numastat
from cyclewatch.collectors.host.network import parse_interfaces
from cyclewatch.collectors.host.pressure import parse_pressure
from cyclewatch.collectors.host.process_activity import parse_activity, parse_switches
from cyclewatch.collectors.host.process_memory import parse_io, parse_memory
from cyclewatch.collectors.procfs import COUNTER_MAX, FormatError

COUNTERS = st.integers(0, COUNTER_MAX)
PARSERS: tuple[Callable[[bytes], object], ...] = (
    parse_single,
    parse_cpu_modes,
    parse_load,
    parse_disk,
    parse_cpuinfo_hertz,
    parse_port_counter,
    parse_meminfo,
    parse_numastat,
    parse_interfaces,
    parse_pressure,
    parse_io,
    parse_memory,
    parse_activity,
    parse_switches,
)
WORDS = st.sampled_from(b"cpu some full total= total=7 eth0: processor cpu\tMHz : (a) VmRSS: 1.5".split(b" "))
LINES = st.lists(WORDS | st.integers(-9, 2**65).map(lambda number: b"%d" % number) | st.binary(max_size=4), max_size=60)


@pytest.mark.parametrize("parse", PARSERS)
@given(content=st.binary() | LINES.map(b" ".join) | st.lists(LINES.map(b" ".join), max_size=5).map(b"\n".join))
def test_garbage_raises_nothing_but_the_documented_error(parse: Callable[[bytes], object], content: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse(content)


@given(st.text())
def test_facts_of_garbage_raise_nothing(content: str) -> None:
    for parse in (parse_cpu_facts, parse_choice, count_cpus):
        parse(content)


@given(COUNTERS, COUNTERS)
def test_pressure_is_read_back(some: int, full: int) -> None:
    lines = (
        f"some avg10=1.53 avg60=0.00 avg300=0.11 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
    )
    assert parse_pressure(lines.encode()) == {"some": some, "full": full}


@given(st.tuples(*[st.integers(0, 2**60)] * 10))
def test_guests_and_nice_are_not_counted_twice(columns: tuple[int, ...]) -> None:
    user, nice, system, idle, iowait, irq, softirq, steal, _, _ = columns
    found = parse_cpu_modes(f"cpu  {' '.join(map(str, columns))}\ncpu0 1 2 3\n".encode())
    assert found == {
        "user": user + nice,
        "system": system,
        "idle": idle,
        "iowait": iowait,
        "irq": irq + softirq,
        "steal": steal,
    }


@given(st.integers(0, 10**9))
def test_load_is_read_back(hundredths: int) -> None:
    load = f"{hundredths // 100}.{hundredths % 100:02} 1.06 1.01 2/97 16598\n"
    assert parse_load(load.encode()) == {"load": hundredths}


@pytest.mark.parametrize("tail", ["", " 0 0 0 0", " 0 0 0 0 5 6"], ids=["Linux 4.17", "4.18", "5.5"])
def test_disks_of_every_version_are_read(tail: str) -> None:
    assert parse_disk(f"       1        2  3 4 5 6 7 8 9 10 11{tail}\n".encode()) == {
        "host.disk_read_bytes_per_s": 3,
        "host.disk_read_ratio": 4,
        "host.disk_write_bytes_per_s": 7,
        "host.disk_write_ratio": 8,
        "host.disk_usage_ratio": 10,
    }


@pytest.mark.parametrize("name", ["eth0", "eth0:1", "enp1s0f0np0"])
def test_interfaces_are_read_whatever_the_name(name: str) -> None:
    """An alias has a colon of its own, and a long counter touches the name."""
    table = f"Inter-| Receive\n face |bytes\n  {name}:{2**63} 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    found = parse_interfaces(table.encode())
    assert found == {(name, "received"): 2**63, (name, "transmitted"): 9, (name, "troubled"): 3 + 4 + 11 + 12}


def test_frequency_by_cpu() -> None:
    cpuinfo = b"processor\t: 0\ncpu MHz\t\t: 2596.142\n\nprocessor\t: 7\nmodel name\t: a: b\ncpu MHz\t\t: 800\n"
    assert parse_cpuinfo_hertz(cpuinfo) == pytest.approx({0: 2_596_142_000, 7: 800_000_000})


def test_counter_that_an_adapter_does_not_keep() -> None:
    assert parse_port_counter(b"N/A (no PMA)\n") == {}


@pytest.mark.parametrize(
    ("online", "count"), [("0", 1), ("0-3", 4), ("0-15,32-47\n".strip(), 32), ("", 0), ("a-b", 0), ("3-1", 0)]
)
def test_cpus_in_a_list(online: str, count: int) -> None:
    assert count_cpus(online) == count


def test_chosen_word_is_the_one_in_brackets() -> None:
    assert parse_choice("always [madvise] never") == "madvise"
    assert parse_choice("none") == ""
