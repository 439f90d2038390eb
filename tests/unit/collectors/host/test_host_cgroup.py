import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.host.cgroup import (
    UNIFIED,
    GroupPlace,
    Mount,
    find_group,
    parse_cpu_stat,
    parse_groups,
    parse_io_stat,
    parse_memory_events,
    parse_mounts,
)
from cyclewatch.collectors.procfs import COUNTER_MAX, FormatError

ROOT = Path("/sys/fs/cgroup")
UNIFIED_MOUNT = Mount(ROOT, "/", frozenset({UNIFIED}))
SEGMENT = st.text(st.characters(exclude_characters="/\n\0", codec="utf-8"), min_size=1, max_size=12).filter(
    lambda name: name not in {".", ".."}
)
PATH = st.lists(SEGMENT, max_size=4).map(lambda parts: "/" + "/".join(parts))
CONTROLLER = st.sampled_from(["cpu", "cpuacct", "memory", "name=systemd", UNIFIED])


@given(st.dictionaries(CONTROLLER, PATH))
def test_groups_are_read_back(groups: dict[str, str]) -> None:
    text = "".join(f"{number}:{name}:{path}\n" for number, (name, path) in enumerate(groups.items()))
    assert parse_groups(text.encode()) == groups


def test_controllers_of_one_hierarchy_share_its_group() -> None:
    assert parse_groups(b"4:cpu,cpuacct:/a\n0::/b\n") == {"cpu": "/a", "cpuacct": "/a", UNIFIED: "/b"}


@given(PATH, PATH, st.booleans(), st.lists(st.sampled_from(["shared:1", "master:2", "propagate_from:3"])))
def test_mounts_are_read_back(point: str, root: str, unified: bool, optional: list[str]) -> None:
    def escape(text: str) -> str:
        return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in text)

    tags = "".join(f" {tag}" for tag in optional)
    tail = "cgroup2 none rw" if unified else "cgroup none rw,cpu,cpuacct"
    text = f"1 2 0:3 {escape(root)} {escape(point)} rw,noatime{tags} - {tail}\n9 2 0:4 / /x rw - tmpfs tmpfs rw\n"
    controllers = {UNIFIED} if unified else {"rw", "cpu", "cpuacct"}
    assert parse_mounts(text.encode()) == (Mount(Path(point), root, frozenset(controllers)),)


@given(*[st.integers(0, COUNTER_MAX)] * 3)
def test_throttled_time_of_both_versions_is_read_back(periods: int, throttled: int, time: int) -> None:
    head = f"usage_usec 5\nnr_periods {periods}\nnr_throttled {throttled}\n"
    assert parse_cpu_stat(f"{head}throttled_usec {time}\nnr_bursts 0\n".encode()) == {"throttled_ns": time * 1000}
    assert parse_cpu_stat(f"{head}throttled_time {time}\n".encode()) == {"throttled_ns": time}


def test_root_group_has_no_limit() -> None:
    assert parse_cpu_stat(b"usage_usec 7\nuser_usec 4\nsystem_usec 3\n") == {}


def test_memory_events_of_both_versions_are_read() -> None:
    version_2 = b"low 0\nhigh 7\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n"
    assert parse_memory_events(version_2) == {"high": 7, "max": 2, "oom": 1, "oom_kill": 1}
    assert parse_memory_events(b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == {"oom_kill": 3}


def test_bytes_by_disk_of_both_versions_are_read() -> None:
    version_2 = b"259:0 rbytes=4096 wbytes=512 rios=1 wios=1 dbytes=0 dios=0\n8:0 \n\n"
    assert parse_io_stat(version_2) == {("259:0", "read"): 4096, ("259:0", "write"): 512}
    version_1 = b"254:0 Read 12\n254:0 Write 34\n254:0 Sync 5\n254:0 Total 46\nTotal 46\n"
    assert parse_io_stat(version_1) == {("254:0", "read"): 12, ("254:0", "write"): 34}


@given(st.binary() | st.text("0123456789:,/ -\n", max_size=80).map(str.encode))
def test_garbage_raises_nothing_but_the_documented_error(content: bytes) -> None:
    for parse in (parse_groups, parse_mounts, parse_cpu_stat, parse_memory_events, parse_io_stat):
        with contextlib.suppress(FormatError):
            parse(content)


def place(point: str, *below: str, unknown: int = 0) -> GroupPlace:
    return GroupPlace(ROOT / point, unknown, below)


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        pytest.param({UNIFIED: "/a/b"}, [UNIFIED_MOUNT], place("", "a", "b"), id="version 2"),
        pytest.param({UNIFIED: "/"}, [UNIFIED_MOUNT], place(""), id="version 2, root group"),
        pytest.param(
            {"cpu": "/a", UNIFIED: "/u"},
            [Mount(ROOT / "cpu", "/", frozenset({"rw", "cpu"})), Mount(ROOT / "unified", "/", frozenset({UNIFIED}))],
            place("cpu", "a"),
            id="hybrid: the limits are in version 1",
        ),
        pytest.param(
            {"memory": "/m", UNIFIED: "/u"},
            [Mount(ROOT / "memory", "/", frozenset({"memory"})), Mount(ROOT / "unified", "/", frozenset({UNIFIED}))],
            place("unified", "u"),
            id="hybrid: the limits are in version 2",
        ),
        pytest.param(
            {"cpu": "/docker/me"}, [Mount(ROOT / "cpu", "/docker/me", frozenset({"cpu"}))], place("cpu"), id="own"
        ),
        pytest.param(
            {"cpu": "/docker/other"}, [Mount(ROOT / "cpu", "/docker/me", frozenset({"cpu"}))], None, id="another"
        ),
        pytest.param({UNIFIED: "/../other"}, [UNIFIED_MOUNT], None, id="outside of the namespace"),
        pytest.param(
            {UNIFIED: "/../../pods/x"},
            [Mount(ROOT, "/../..", frozenset({UNIFIED}))],
            place("", "pods", "x"),
            id="the host's groups mounted in a container with a namespace of its own",
        ),
        pytest.param(
            {UNIFIED: "/../x"},
            [Mount(ROOT, "/../..", frozenset({UNIFIED}))],
            place("", "x", unknown=1),
            id="a neighbour, under a group whose name is not told",
        ),
        pytest.param(
            {UNIFIED: "/x"},
            [Mount(ROOT, "/../..", frozenset({UNIFIED}))],
            place("", "x", unknown=2),
            id="below the own group, whose name is not told",
        ),
        pytest.param(
            {UNIFIED: "/../../../x"}, [Mount(ROOT, "/../..", frozenset({UNIFIED}))], None, id="above what is mounted"
        ),
        pytest.param({UNIFIED: "/a/../../etc"}, [UNIFIED_MOUNT], None, id="never out of the mount"),
        pytest.param({UNIFIED: "/a"}, [Mount(Path("/elsewhere"), "/", frozenset({UNIFIED}))], None, id="elsewhere"),
        pytest.param({}, [UNIFIED_MOUNT], None, id="no group"),
    ],
)
def test_where_a_group_is_seen(groups: dict[str, str], mounts: list[Mount], expected: GroupPlace | None) -> None:
    assert find_group("cpu", groups, mounts, ROOT) == expected


def test_last_mount_on_a_directory_is_the_one_that_is_seen() -> None:
    mounts = [Mount(ROOT, "/hidden", frozenset({UNIFIED})), UNIFIED_MOUNT]
    assert find_group("cpu", {UNIFIED: "/hidden/a"}, mounts, ROOT) == place("", "hidden", "a")


@given(*[st.lists(st.sampled_from(["..", "a", "b"]), max_size=5).map(lambda parts: "/" + "/".join(parts))] * 2)
def test_a_place_never_leads_out_of_its_mount(group: str, root: str) -> None:
    found = find_group("cpu", {UNIFIED: group}, [Mount(ROOT, root, frozenset({UNIFIED}))], ROOT)
    assert found is None or (found.unknown >= 0 and ".." not in found.below)
