import copy as copying
import json
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.profiles import activities, kineto
from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import FlawKind, KernelKind, Profile, ProfileError
from profile_files import BASE_NS, PID, Json, copy, kernel, launch, mark, old, operator, trace, write

TWO_STEPS = (
    operator("aten::mm", 90, 12),
    launch(1, 100, 5),
    launch(2, 106, 4),
    launch(3, 206, 5),
    kernel("gemm", 120, 30, 1),
    kernel("norm", 140, 20, 2),  # overlaps the one before
    kernel("gemm", 220, 40, 3),
    mark("step[EXTEND bs=2 toks=9]", 95, 20),
    mark("step[DECODE bs=32]", 200, 20),
    mark("step[EXTEND bs=2 toks=9]", 118, 50, on_device=True),
    mark("step[DECODE bs=32]", 219, 60, on_device=True),
)


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Any:
    def read(*events: Json, **head: Any) -> Profile:
        return read_profile(write(tmp_path / "trace", trace(*events, **head)))

    return read


def uses(profile: Profile) -> dict[tuple[str, str], tuple[int, int]]:
    """Calls and total by name and phase."""
    return {(use.name, use.phase): (use.calls, use.total_ns) for use in profile.kernels}


def test_kernels_are_counted_by_name_and_phase(read: Any) -> None:
    assert uses(read(*TWO_STEPS)) == {
        ("gemm", "extend"): (1, 30_000),
        ("norm", "extend"): (1, 20_000),
        ("gemm", "decode"): (1, 40_000),
    }


def test_busy_time_is_a_union_and_idle_time_is_split(read: Any) -> None:
    totals = read(*TWO_STEPS).totals
    assert (totals.kernel_ns, totals.calls, totals.distinct) == (90_000, 3, 2)
    assert (totals.busy_ns, totals.span_ns, totals.idle_ns) == (80_000, 140_000, 60_000)
    assert totals.waiting_for_host_ns == 51_000  # from 160 to the end of the launch at 211
    assert totals.between_kernels_ns == 9_000
    assert totals.copying_ns == 0


def test_a_copy_fills_a_part_of_the_idle_time(read: Any) -> None:
    totals = read(*TWO_STEPS, copy(150, 30)).totals
    assert (totals.busy_ns, totals.idle_ns, totals.copying_ns) == (80_000, 60_000, 20_000)
    assert totals.waiting_for_host_ns == 31_000
    assert totals.calls == 3


def test_steps_are_cut_by_the_marks_of_the_device(read: Any) -> None:
    first, second = read(*TWO_STEPS).steps
    assert (first.name, first.phase, first.batch_size) == ("step[EXTEND bs=2 toks=9]", "extend", 2)
    assert (first.kernel_ns, first.busy_ns) == (50_000, 40_000)
    assert (first.start_ns, first.end_ns) == (28_000, 78_000)  # relative to the operator at 90
    assert (second.phase, second.batch_size, second.kernel_ns) == ("decode", 32, 40_000)


def test_without_marks_of_the_device_a_step_holds_what_was_launched_in_it(read: Any) -> None:
    profile = read(*(event for event in TWO_STEPS if event["cat"] != "gpu_user_annotation"))
    assert [(step.phase, step.kernel_ns, step.start_ns, step.end_ns) for step in profile.steps] == [
        ("extend", 50_000, 30_000, 70_000),
        ("decode", 40_000, 130_000, 170_000),
    ]
    assert any("no marks of steps" in warning for warning in profile.warnings)


def test_without_launches_a_step_holds_what_ran_in_it(read: Any) -> None:
    events = (kernel("a", 10, 5), kernel("b", 30, 5), mark("step[DECODE bs=1]", 9, 10))
    assert uses(read(*events)) == {("a", "decode"): (1, 5_000), ("b", ""): (1, 5_000)}


def test_marks_of_one_step_on_several_streams_are_one_step(read: Any) -> None:
    profile = read(
        kernel("a", 10, 10, 1),
        kernel("b", 15, 20, 2),
        mark("step[DECODE bs=8]", 10, 10, on_device=True, number=5),
        mark("step[DECODE bs=8]", 15, 20, on_device=True, number=5, stream=13),
        mark("step[DECODE bs=8]", 35, 5, on_device=True, number=6),
    )
    assert [(step.start_ns, step.end_ns) for step in profile.steps] == [(0, 25_000), (25_000, 30_000)]


def test_kernels_before_the_window_count_in_the_totals_and_in_no_phase(read: Any) -> None:
    profile = read(kernel("early", 1, 5), *TWO_STEPS)
    assert profile.totals.calls == 4
    assert uses(profile)["early", ""] == (1, 5_000)
    assert sum(step.kernel_ns for step in profile.steps) == 90_000
    assert any(warning.startswith("1 of 4 kernels lie outside") for warning in profile.warnings)


def test_a_graph_is_known_by_the_order_of_its_kernels(read: Any) -> None:
    replays = [
        (
            launch(at, 100 * at, 5, "cudaGraphLaunch"),
            *(kernel(name, 100 * at + 10 * place, 1 + at, at) for place, name in enumerate("aba", 1)),
        )
        for at in (1, 2)
    ]
    profile = read(*(event for replay in replays for event in replay), launch(3, 400, 1), kernel("c", 410, 1, 3))
    (graph,) = profile.graphs
    assert graph.replays == 2
    assert [(one.name, one.total_ns) for one in graph.kernels] == [("a", 5_000), ("b", 5_000), ("a", 5_000)]


def test_old_traces_read_like_new_ones(read: Any) -> None:
    """Categories, threads, identifiers and whole microseconds differ."""
    events = [event for event in TWO_STEPS if event["cat"] != "gpu_user_annotation"]
    assert read(*map(old, copying.deepcopy(events))).kernels == read(*events).kernels


def test_the_order_of_events_does_not_matter(read: Any) -> None:
    assert read(*reversed(TWO_STEPS)) == read(*TWO_STEPS)


def test_a_bare_array_of_events_is_a_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", json.dumps(TWO_STEPS))
    assert read_profile(path).totals.calls == 3


@pytest.mark.parametrize("head", [{"baseTimeNanoseconds": BASE_NS}, {}, {"displayTimeUnit": "ns"}])
def test_times_are_microseconds_from_the_base(read: Any, head: dict[str, Any]) -> None:
    events = (kernel("a", 1_428_625_731_622.251, 18.112), kernel("b", 1_428_625_731_640.364, 1))
    profile = read(*events, **head)
    assert profile.totals.span_ns == 19_113
    assert profile.started_at_ns == 1_428_625_731_622_251 + head.get("baseTimeNanoseconds", 0)


def test_times_since_the_epoch_are_exact(tmp_path: Path) -> None:
    """A float of 64 bits has a quarter of a microsecond there."""
    text = json.dumps(trace(kernel("a", 1, 2.5), kernel("b", 2, 3)))
    text = text.replace('"ts": 1,', '"ts": 1661203463029566.123,').replace('"ts": 2,', '"ts": 1661203463029568.624,')
    profile = read_profile(write(tmp_path / "trace", text))
    assert profile.started_at_ns == 1_661_203_463_029_566_123
    assert (profile.totals.busy_ns, profile.totals.idle_ns) == (5_500, 1)


def test_it_tells_what_the_file_says_of_itself(read: Any) -> None:
    profile = read(
        *TWO_STEPS,
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "other"}],
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
        metadata={"token": "secret"},
    )
    assert (profile.device, profile.rank, profile.world_size) == ("NVIDIA H200", "3", 8)
    assert profile.pids == (PID,)
    assert "secret" not in repr(profile)


@pytest.mark.parametrize("pid", ["1" * 5000, "[TP00] " + "1" * 5000, "١٢", -1, 10**30])
def test_what_is_no_number_of_a_process_is_passed_over(read: Any, pid: str | int) -> None:
    assert read(*TWO_STEPS, {**operator("aten::mm", 1, 1), "pid": pid}).pids == (PID,)


@pytest.mark.parametrize("base_ns", [-1, 10**30, 10**4299, "1"])
def test_an_impossible_base_of_the_times_is_none(read: Any, base_ns: int | str) -> None:
    assert read(*TWO_STEPS, baseTimeNanoseconds=base_ns).started_at_ns == read(*TWO_STEPS).started_at_ns


def test_devices_are_apart(read: Any) -> None:
    profile = read(kernel("a", 0, 10, 1), kernel("a", 5, 10, 2, device=1), kernel("b", 20, 5, 3, device=1))
    assert {(use.name, use.device) for use in profile.kernels} == {("a", "0"), ("a", "1"), ("b", "1")}
    assert (profile.totals.busy_ns, profile.totals.span_ns) == (25_000, 30_000)


def test_merged_ranks_are_apart(read: Any) -> None:
    """SGLang writes the rank before every process, and the correlations of ranks collide."""
    ranks = [
        {**event, "pid": f"[TP0{rank}] {event['pid']}", "ts": event["ts"] + 1000 * rank}
        for rank in (0, 1)
        for event in TWO_STEPS
    ]
    profile = read(*ranks)
    assert {use.device for use in profile.kernels} == {"[TP00] 0", "[TP01] 0"}
    assert [step.kernel_ns for step in profile.steps] == [50_000, 40_000] * 2
    assert profile.totals.waiting_for_host_ns == 2 * 51_000
    assert profile.pids == (PID,)


def test_without_a_gpu_it_lists_operators_by_self_time(read: Any) -> None:
    profile = read(
        operator("aten::linear", 0, 100),
        operator("aten::addmm", 10, 60),
        operator("aten::copy_", 20, 10),
        operator("aten::addmm", 20, 30, thread=7),
        mark("step[DECODE bs=2]", 0, 200),
    )
    assert uses(profile) == {
        ("aten::linear", "decode"): (1, 40_000),
        ("aten::addmm", "decode"): (2, 80_000),
        ("aten::copy_", "decode"): (1, 10_000),
    }
    assert {use.kind for use in profile.kernels} == {KernelKind.CPU_OP}
    assert (profile.totals.calls, profile.totals.kernel_ns, profile.totals.busy_ns) == (0, 0, 0)
    assert [flaw.kind for flaw in profile.flaws] == [FlawKind.NO_KERNELS]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dur": -1}, "negative duration"),
        ({"dur": None}, "without a time"),
        ({"ts": None}, "without a time"),
        ({"ts": float("nan")}, "without a time"),
        ({"dur": float("inf")}, "without a time"),
        ({"ts": 1e300}, "impossible time"),
        ({"ts": 10**30}, "impossible time"),
        ({"dur": 1e13}, "impossible time"),
        ({"ts": "12"}, "not as Kineto writes it"),
        ({"name": "x" * 70_000}, "a name of 70000 characters"),
    ],
)
def test_impossible_events_are_refused(read: Any, change: Json, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason) as raised:
        read(*TWO_STEPS, {**kernel("k", 1, 1), **change})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_numbers_that_are_none_do_no_harm_where_they_are_not_read(read: Any) -> None:
    """Some versions write the bandwidth of a copy without length so."""
    event = copy(170, 0)
    event["args"]["memory bandwidth (GB/s)"] = float("inf")
    assert read(*TWO_STEPS, event).totals.calls == 3


def test_events_of_odd_form_are_passed_over(read: Any) -> None:
    """Flows, instants, metadata, spans of the profiler; X events without arguments."""
    odd: tuple[Json, ...] = (
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": PID, "tid": 1, "ts": 1},
        {"ph": "i", "name": "Iteration Start", "pid": "Traces", "tid": "Trace", "ts": 1, "s": "g"},
        {"ph": "M", "name": "process_labels", "pid": PID + 1, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 1, "dur": 9e9},
        {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "bare", "pid": 0, "tid": 7, "ts": 300, "dur": 1},
        {},
    )
    profile = read(*TWO_STEPS, *odd)
    assert profile.totals.calls == 4
    assert profile.pids == (PID, PID + 1)


@pytest.mark.parametrize("events", [(), ({"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 1},)])
def test_a_trace_of_nothing_is_refused(read: Any, events: tuple[Json, ...]) -> None:
    with pytest.raises(ProfileError, match="was anything profiled"):
        read(*events)


def test_an_unknown_launch_belongs_to_no_step(read: Any) -> None:
    """Also where a mark begins before everything else."""
    events = (kernel("late", 50, 5, 1), kernel("lost", 60, 5), launch(1, 40, 2), mark("step[DECODE bs=1]", 0, 45))
    assert uses(read(*events)) == {("late", "decode"): (1, 5_000), ("lost", ""): (1, 5_000)}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([kernel("k", at, 1, device=at) for at in range(129)], "more than 128 devices"),
        ([{**launch(1, at, 1), "pid": f"[TP{at}] 1"} for at in range(130)], "more than 128 processes"),
        ([kernel(f"k{at}", at, 1) for at in range(201)], "more than 200 names"),
        ([kernel(f"{at}" + "k" * 60_000, at, 1) for at in range(20)], "or 1 MB of them"),
        ([mark("step[D]", at, 1) for at in range(51)], "more than 50 marks of steps"),
    ],
)
def test_what_no_profile_has_is_refused(
    read: Any, monkeypatch: pytest.MonkeyPatch, events: list[Json], reason: str
) -> None:
    """Each has its cost: a hostile trace would have millions."""
    monkeypatch.setattr(activities, "_MAX_NAMES", 200)
    monkeypatch.setattr(activities, "_MAX_NAMES_CHARS", 1 << 20)
    monkeypatch.setattr(kineto, "MAX_MARKS", 50)
    with pytest.raises(ProfileError, match=reason):
        read(*events)
