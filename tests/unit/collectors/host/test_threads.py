"""Times of many threads, added up together, against adding them up one by one."""

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.host.threads import Thread, ThreadTimes
from fake_proc import FakeProc

TIMES = st.integers(0, 2**40)
MAX = 2**63 - 1


def thread(tid: int) -> Thread:
    return Thread(1, 0, tid)


@given(st.lists(st.tuples(st.sampled_from("abc"), TIMES, TIMES, TIMES, TIMES), max_size=12))
def test_shares_are_sums_over_a_group_in_whatever_order_threads_come(
    rows: list[tuple[str, int, int, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        fake = FakeProc(Path(root))
        times: ThreadTimes[str] = ThreadTimes(fake.proc)
        times.advance(0)
        for tid, (_, on_cpu, wait, _, _) in enumerate(rows):
            fake.thread(1, tid, on_cpu, wait)
        times.refresh({thread(tid): group for tid, (group, *_) in enumerate(rows)})
        for tid, (_, _, _, on_cpu, wait) in enumerate(rows):
            fake.thread(1, tid, on_cpu, wait)
        found = times.advance(1000)
        times.close()
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    backwards = set()
    for group, on_cpu, wait, on_cpu_now, wait_now in rows:
        sums[group][0] += on_cpu_now - on_cpu
        sums[group][1] += wait_now - wait
        if on_cpu_now < on_cpu or wait_now < wait:
            backwards.add(group)
    expected = {group: [part / 1000 for part in parts] for group, parts in sums.items() if group not in backwards}
    assert {group: list(shares) for group, shares in found.items()} == {
        group: pytest.approx(shares) for group, shares in expected.items()
    }


def test_sums_beyond_64_bits(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    times: ThreadTimes[str] = ThreadTimes(fake.proc)
    times.advance(0)
    for tid in range(3):
        fake.thread(1, tid, 0, 0)
    times.refresh({thread(tid): "all" for tid in range(3)})
    for tid in range(3):
        fake.thread(1, tid, MAX, MAX)
    assert times.advance(1)["all"] == pytest.approx((3 * MAX, 3 * MAX))
    times.close()


def test_a_thread_that_has_ended_leaves_the_others_of_its_group(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    times: ThreadTimes[str] = ThreadTimes(fake.proc)
    times.advance(0)
    for tid in range(5):
        fake.thread(1, tid, 0, 0)
    times.refresh({thread(tid): "ab"[tid % 2] for tid in range(5)})
    for tid in range(5):
        fake.thread(1, tid, 10, 20)
    fake.garbage(1, 1, "")
    assert times.advance(10) == {"a": (3, 6), "b": (1, 2)}
    assert times.vanished
    fake.garbage(1, 3, "")
    assert times.advance(20) == {"a": (0, 0)}
    times.close()
