"""Files that vanish, lie or cannot be read, counters and clocks that go astray: one source is silent, no other."""

import math
import re
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.host.other_processes import OtherProcesses
from cyclewatch.collectors.host.pressure import NodePressure
from cyclewatch.collectors.records import Failure, NoData, Reading, Sample
from fake_proc import unlinked_files_fail
from host_trees import NAMES, Node, files

NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.sampled_from(
    ["", "0", "+1", "1_0", "1e9", "nan", "0x10", "9" * 400]
)
CONTENT = st.lists(NUMBERS | st.text(max_size=12), max_size=30).map(" ".join) | st.text(max_size=200)
SHARED = re.compile(r"proc/\d+/(stat|status|cgroup)|proc/\d+/task/.*|proc/self/mountinfo|sys/block/.*|.*/cgroup\.procs")
"""Files from which more than one source reads, or by which processes and control groups are found."""

Series = tuple[str, str, tuple[tuple[str, str], ...]]


@contextmanager
def placed(name: str) -> Iterator[Node]:
    """A tree whose unlinked files fail as the kernel's do."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as monkeypatch:
        unlinked_files_fail(monkeypatch)
        node = Node(name, Path(root))
        try:
            yield node
        finally:
            node.collector.close()


def readings(samples: list[Sample]) -> dict[Series, float]:
    """Readings by series; each is there once, is a number, and none is below zero."""
    found = [sample for sample in samples if isinstance(sample, Reading)]
    by_series = {(one.name, one.target, one.labels): one.value for one in found}
    assert len(by_series) == len(found)
    assert all(math.isfinite(value) and value >= 0 for value in by_series.values())
    return by_series


def empty(path: Path) -> None:
    path.write_text("")


def unlink(path: Path) -> None:
    path.unlink()


def shut(path: Path) -> None:
    """A directory in place of the file: not even root can read it."""
    path.unlink()
    path.mkdir()


@cache
def undisturbed(name: str) -> dict[Series, float]:
    """What a tree gives where nothing is wrong."""
    with placed(name) as node:
        node.settle()
        node.change()
        return readings(node.collect())


def sources(node: Node, names: set[str]) -> set[str]:
    """Which sources give readings of these names."""
    return {
        type(source).__name__
        for source in node.collector.sources
        if names & {quantity.name for quantity in source.quantities}
    }


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("early", [True, False], ids=["from the beginning", "before the second sample"])
def test_one_bad_file_touches_one_source(data: st.DataObject, early: bool) -> None:
    """Whatever file it is, and whatever it holds."""
    name = data.draw(st.sampled_from(NAMES))
    path = data.draw(st.sampled_from(sorted(files(name, "before"))))
    spoil: Callable[[Path], object] = data.draw(
        st.sampled_from([empty, unlink, shut])
        | CONTENT.map(lambda content: lambda file: file.write_bytes(content.encode(errors="surrogateescape")))
    )
    with placed(name) as node:
        if early:
            spoil(node.root / path)
        node.settle()
        node.change(leave=path)
        if not early:
            spoil(node.root / path)
        found, expected = readings(node.collect()), undisturbed(name)
        if not SHARED.fullmatch(path):
            both = expected.keys() | found.keys()
            changed = {series[0] for series in both if expected.get(series) != found.get(series)}
            assert len(sources(node, changed)) <= 1, changed


STEPS_S = st.sampled_from([5.0, 0.0, 1e-9, -5.0, -1e6, 0.3, 86_400.0, 1e7])
EVENTS = st.sampled_from(["before", "after", "nothing", "process ends", "thread ends", "proc goes", "sys goes"])


@settings(max_examples=25)
@given(name=st.sampled_from(NAMES), events=st.lists(st.tuples(EVENTS, STEPS_S), max_size=8))
def test_whatever_happens_and_whatever_the_clock_says(name: str, events: list[tuple[str, float]]) -> None:
    """Counters go up and back, processes and whole file systems come and go, time stands, leaps and runs backwards."""
    with placed(name) as node:
        for event, step_s in events:
            scheduler = node.root / "proc" / str(node.schedulers[0])
            if event == "before":
                node.write(files(name, "before"))
            elif event == "after":
                node.change()
            elif event == "process ends":
                shutil.rmtree(scheduler, ignore_errors=True)
            elif event == "thread ends":
                shutil.rmtree(scheduler / "task" / scheduler.name, ignore_errors=True)
            elif event != "nothing":
                shutil.rmtree(node.root / event.removesuffix(" goes"), ignore_errors=True)
            readings(node.collect(step_s))


def test_a_node_that_comes_back_is_read_as_before() -> None:
    """After its /proc and /sys had gone, for example with the mount of a container."""
    with placed("intel-bare-metal") as node:
        node.settle()
        shutil.rmtree(node.root / "proc")
        shutil.rmtree(node.root / "sys")
        samples = node.collect()
        assert readings(samples) == {}
        assert any("/proc/stat: no such file" in one.reason for one in samples if isinstance(one, Failure))
        node.write(files(node.name, "before"))
        node.settle()
        node.change()
        assert len(readings(node.collect())) > 80


def test_input_and_output_of_another_user_are_no_failure_but_said() -> None:
    """The control group shows them all the same."""
    with placed("intel-bare-metal") as node:
        for pid in (2000, 2100):
            shut(node.root / f"proc/{pid}/io")
        node.settle()
        samples = node.collect()
        names = {name for name, _, _ in readings(samples)}
        assert {"host.cgroup_io_read_bytes_per_s", "host.io_read_bytes_per_s"} <= names
        assert not [one for one in samples if isinstance(one, Failure)]
        (said,) = [one.reason for one in samples if isinstance(one, NoData)]
        assert said.startswith("2 serving processes do not show their input and output: run cyclewatch as the")


def test_what_cannot_be_read_is_said_until_it_can() -> None:
    with placed("intel-bare-metal") as node:
        node.settle()
        stat = node.root / "proc/stat"
        good = stat.read_text()
        stat.write_text("cpu lies\n")
        for _ in range(2):
            node.collect()
            (said,) = [one.reason for one in node.collect() if isinstance(one, Failure)]
            assert "/proc/stat: stat does not begin with the times of all CPUs: is the kernel's own file" in said
        stat.write_text(good)
        node.collect()
        assert not [one for one in node.collect() if isinstance(one, Failure)]


def test_an_error_nobody_foresaw_stops_no_other_source_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[Sample]:
        raise ZeroDivisionError("a mistake")

    with placed("intel-bare-metal") as node:
        node.settle()
        node.change()
        expected = undisturbed(node.name)
        monkeypatch.setattr(NodePressure, "advance", fail)
        monkeypatch.setattr(OtherProcesses, "look", fail)
        samples: list[Sample] = []
        with pytest.raises(ExceptionGroup) as raised:
            samples.extend(node.collector.collect(Now(node.now_ns + 5_000_000_000, 0)))
        assert [type(one) for one in raised.value.exceptions] == [ZeroDivisionError] * 2
        # A generator that raises has given what came before.
        missing = {name for name, _, _ in expected.keys() - readings(samples).keys()}
        assert missing == {one.name for one in (*NodePressure.quantities, *OtherProcesses.quantities)}


def test_a_kernel_without_schedstat_is_said() -> None:
    with placed("cgroup-v1") as node:
        for path in node.root.glob("proc/*/task/*/schedstat"):
            path.unlink()
        said = [one.reason for one in node.collect() if isinstance(one, NoData)]
        assert any("built without CONFIG_SCHED_INFO" in reason for reason in said)


def test_too_many_open_files_are_said_and_the_rest_goes_on() -> None:
    with placed("amd-epyc") as node:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 4, limits[1]))
        try:
            said = [one.reason for one in node.collect() if isinstance(one, Failure)]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert any("Too many open files" in reason for reason in said)
        node.collect(60)
        node.change()
        assert readings(node.collect(5))
