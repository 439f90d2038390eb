import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.profiles.activities import KINDS, NONE, Activities, Recorder, kernel_uses, totals, union_ns
from cyclewatch.collectors.profiles.cpu_ops import self_times
from cyclewatch.collectors.profiles.records import KernelKind

SPAN = st.tuples(st.integers(0, 60), st.integers(0, 12))
ROW = st.tuples(SPAN, st.sampled_from([KernelKind.KERNEL, KernelKind.MEMCPY]), st.sampled_from("ab"), st.booleans())


def recorded(rows: list[tuple[tuple[int, int], KernelKind, str, bool]]) -> Activities:
    recorder = Recorder()
    for (start, length), kind, device, _ in rows:
        recorder.add(f"name of {length}", KINDS.index(kind), device, start, length)
    return recorder.activities(0)


def ticks(start_ns: int, end_ns: int) -> set[int]:
    """Every nanosecond of an interval."""
    return set(range(start_ns, end_ns))


@given(st.lists(SPAN))
def test_a_union_counts_every_moment_once(spans: list[tuple[int, int]]) -> None:
    spans.sort()
    start_ns = np.array([start for start, _ in spans], np.int64)
    end_ns = np.array([start + length for start, length in spans], np.int64)
    assert union_ns(start_ns, end_ns) == len(set().union(*(ticks(one, one + length) for one, length in spans)))


@given(st.lists(ROW, min_size=1, max_size=12), st.lists(st.integers(-1, 70), min_size=12, max_size=12))
def test_idle_time_is_what_a_slow_count_finds(
    rows: list[tuple[tuple[int, int], KernelKind, str, bool]], launches: list[int]
) -> None:
    """Moment by moment: a kernel runs, or a copy, or what comes next is not launched yet, or it is."""
    activities = recorded(rows)
    launched = np.array(launches[: len(activities)])
    found = totals(activities, launched)
    expected = dict.fromkeys(("busy", "copying", "waiting", "between", "span"), 0)
    for device in np.unique(activities.device[activities.is_kernel]):
        spans = [
            (int(start), int(end), bool(kernel), int(launch))
            for start, end, kernel, launch, where in zip(
                activities.start_ns, activities.end_ns, activities.is_kernel, launched, activities.device, strict=True
            )
            if where == device
        ]
        begin = min(start for start, _, kernel, _ in spans if kernel)
        finish = max(end for _, end, kernel, _ in spans if kernel)
        expected["span"] += finish - begin
        for moment in range(begin, finish):
            running = [kernel for start, end, kernel, _ in spans if start <= moment < end]
            following = [launch for start, _, _, launch in spans if start > moment]
            if any(running):
                expected["busy"] += 1
            elif running:
                expected["copying"] += 1
            elif following[0] != NONE:
                expected["waiting" if moment < following[0] else "between"] += 1
    assert (found.busy_ns or 0, found.copying_ns or 0) == (expected["busy"], expected["copying"])
    assert (found.span_ns or 0) == expected["span"]
    if found.waiting_for_host_ns is not None:
        assert (found.waiting_for_host_ns, found.between_kernels_ns) == (expected["waiting"], expected["between"])


@given(st.lists(ROW, max_size=40))
def test_uses_are_what_a_slow_count_finds(rows: list[tuple[tuple[int, int], KernelKind, str, bool]]) -> None:
    activities = recorded(rows)
    phase = np.arange(len(activities)) % 2
    found = kernel_uses(activities, activities.duration_ns, phase, ("", "decode"))
    assert sum(use.calls for use in found) == len(rows)
    assert [use.total_ns for use in found] == sorted((use.total_ns for use in found), reverse=True)
    for use in found:
        times = [
            int(end - start)
            for name, kind, device, start, end, at in zip(
                activities.name, activities.kind, activities.device, activities.start_ns, activities.end_ns, phase,
                strict=True,
            )
            if (activities.names[name], KINDS[kind], activities.devices[device], ("", "decode")[at])
            == (use.name, use.kind, use.device, use.phase)
        ]  # fmt: skip
        assert (use.calls, use.total_ns, use.min_ns, use.max_ns) == (len(times), sum(times), min(times), max(times))
        assert use.median_ns == int(np.median(times))


@given(st.recursive(st.integers(1, 3), lambda inner: st.lists(inner, min_size=1, max_size=4), max_leaves=20))
def test_self_times_add_up_to_the_outermost_calls(tree: object) -> None:
    """A number is a call without calls in it, a list a call with those in it and 1 ns of its own."""
    recorder = Recorder()

    def call(node: object, begin_ns: int) -> int:
        end_ns = begin_ns + (node if isinstance(node, int) else 1)
        for one in node if isinstance(node, list) else ():
            end_ns = call(one, end_ns)
        recorder.add("op", KINDS.index(KernelKind.CPU_OP), "", begin_ns, end_ns - begin_ns, 0)
        return end_ns

    end_ns = call(tree, 0)
    own_ns = self_times(recorder.activities(0))
    assert int(own_ns.sum()) == end_ns
    assert own_ns.min() >= 1
