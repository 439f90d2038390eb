"""What a cycle is: measured against a device whose times are known."""

from collections import defaultdict
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cyclewatch_sglang as plugin
import fake_device
from fake_device import MS, Batch, Bench, Mode, decode, extend

DECODE, EXTEND = plugin.MODES["DECODE"], plugin.MODES["EXTEND"]
HOST_MS = sum(vars(fake_device.Host()).values()) / MS
"""Host time of one iteration."""
INTERLEAVED = ([decode()] * 19 + [extend()]) * 10
ALTERNATING = [decode(), extend()] * 50


def means_ms(records: list[object]) -> dict[int, float]:
    """Mean cycle by mode, without those of the warm-up."""
    cycles = defaultdict(list)
    for record in records[plugin.WARMUP_RESULTS :]:
        cycles[record.mode].append(record.cycle_ns / MS)  # type: ignore[attr-defined]
    return {mode: mean(values) for mode, values in cycles.items()}


def launch_to_launch_ms(bench: Bench) -> dict[int, float]:
    """The other definition: a batch's cycle lasts from its launch to the next one's."""
    launches = bench.scheduler.launches[plugin.WARMUP_RESULTS :]
    cycles = defaultdict(list)
    for (batch, start_ns), (_, end_ns) in pairwise(launches):
        cycles[plugin.MODES[batch.forward_mode.name]].append((end_ns - start_ns) / MS)
    return {mode: mean(values) for mode, values in cycles.items()}


def stage_sum(record: object) -> int:
    return sum(getattr(record, f"{name}_ns") for name in ("schedule", "input", "launch", "wait", "result", "rest"))


@pytest.mark.parametrize("script", [INTERLEAVED, ALTERNATING], ids=["one extend in twenty", "every other"])
def test_overlap_on_a_gpu_tells_decode_from_extend(script: list[Batch]) -> None:
    """A decode of 10 ms and an extend of 80 ms are measured as such, although the loop waits for the batch before."""
    bench = Bench(script, overlap=True)
    bench.scheduler.event_loop_overlap()
    measured = means_ms(bench.cycles)
    assert measured[DECODE] == pytest.approx(10, rel=0.01)
    assert measured[EXTEND] == pytest.approx(80, rel=0.01)


def test_launch_to_launch_would_be_wrong() -> None:
    """From launch to launch the same run gives a decode of 13.7 ms and an extend of 10 ms: the tests here can fail."""
    bench = Bench(INTERLEAVED, overlap=True)
    bench.scheduler.event_loop_overlap()
    naive = launch_to_launch_ms(bench)
    assert naive[DECODE] == pytest.approx(13.7, rel=0.05)
    assert naive[EXTEND] == pytest.approx(10, rel=0.05)


def test_without_overlap_on_a_gpu() -> None:
    """Without overlap a cycle is the device's time and the host's."""
    bench = Bench(INTERLEAVED)
    bench.scheduler.event_loop_normal()
    measured = means_ms(bench.cycles)
    assert measured[DECODE] == pytest.approx(10 + HOST_MS, rel=0.01)
    assert measured[EXTEND] == pytest.approx(80 + HOST_MS, rel=0.01)


@pytest.mark.parametrize("overlap", [False, True])
def test_on_a_cpu(overlap: bool) -> None:
    """On a CPU, too, where the batch is computed inside `run_batch`, a cycle is the batch's own time and the host's."""
    bench = Bench(INTERLEAVED, device="cpu", overlap=overlap)
    (bench.scheduler.event_loop_overlap if overlap else bench.scheduler.event_loop_normal)()
    measured = means_ms(bench.cycles)
    assert measured[DECODE] == pytest.approx(10 + HOST_MS, rel=0.01)
    assert measured[EXTEND] == pytest.approx(80 + HOST_MS, rel=0.01)


def test_result_to_result_would_be_wrong_on_a_cpu() -> None:
    """With overlap on a CPU the definition for a GPU gives each batch the time of the next one."""
    bench = Bench(ALTERNATING, device="cpu", overlap=True)
    bench.scheduler.process_input_requests([])  # makes the accounting
    assert bench.hooks.cycles is not None
    bench.hooks.cycles.synchronous = False
    bench.scheduler.event_loop_overlap()
    measured = means_ms(bench.cycles)
    assert measured[DECODE] == pytest.approx(80, rel=0.05)
    assert measured[EXTEND] == pytest.approx(10, rel=0.1)


def test_prefills_in_a_row_are_not_overlapped() -> None:
    """Where SGLang processes a prefill before it launches the next, the host's time is part of the cycle."""
    bench = Bench([extend()] * 60 + [decode()], overlap=True)
    bench.scheduler.event_loop_overlap()
    assert means_ms(bench.cycles)[EXTEND] == pytest.approx(80 + HOST_MS, rel=0.01)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_deeper_queues(depth: int) -> None:
    """With more batches in flight each still gets its own device time."""
    bench = Bench(INTERLEAVED, overlap=True)
    bench.scheduler.event_loop_deep(depth)
    measured = means_ms(bench.cycles)
    assert measured[DECODE] == pytest.approx(10, rel=0.01)
    assert measured[EXTEND] == pytest.approx(80, rel=0.01)
    assert not any(record.flags & plugin.MATCHED_IN_ORDER for record in bench.results)


@pytest.mark.parametrize("slots", [2, 4])
def test_pipeline(slots: int) -> None:
    """Microbatches of a pipeline are told apart although their results are other objects than the launch gave."""
    bench = Bench(([decode()] * (6 * slots - 1) + [extend()]) * 12)
    bench.scheduler.pp_loop_size = slots
    bench.scheduler.event_loop_pp(slots)
    measured = means_ms(bench.cycles)
    assert measured[DECODE] == pytest.approx(10, rel=0.02)
    assert measured[EXTEND] == pytest.approx(80, rel=0.02)
    assert all(record.flags & plugin.MATCHED_IN_ORDER for record in bench.results)


def test_launched_mode_names_the_batch_launched_in_between() -> None:
    """The decode stretched by an overlapped prefill can be told apart."""
    bench = Bench([*[decode()] * 3, extend(), *[decode()] * 3], overlap=True)
    bench.scheduler.event_loop_overlap()
    modes = [(record.mode, record.launched_mode) for record in bench.results]
    assert modes == [
        (DECODE, DECODE),
        (DECODE, DECODE),
        (DECODE, EXTEND),
        (EXTEND, DECODE),
        (DECODE, DECODE),
        (DECODE, DECODE),
        (DECODE, plugin.MODE_NONE),
    ]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("overlap", [False, True])
def test_stages_sum_to_the_cycle(device: str, overlap: bool) -> None:
    """The six stages of a record are its cycle, no more and no less, also for the first one."""
    bench = Bench(INTERLEAVED, device=device, overlap=overlap)
    (bench.scheduler.event_loop_overlap if overlap else bench.scheduler.event_loop_normal)()
    assert [stage_sum(record) for record in bench.results] == [record.cycle_ns for record in bench.results]


def test_stages_are_what_the_functions_took() -> None:
    """Each stage is the time of its function; the rest is the loop's own."""
    bench = Bench([decode()] * 40, overlap=True)
    bench.scheduler.event_loop_overlap()
    host, record = bench.scheduler.host, bench.cycles[20]
    assert (record.schedule_ns, record.input_ns, record.launch_ns) == (host.plan, host.input, host.launch)
    assert (record.result_ns, record.rest_ns) == (host.result, host.loop)
    assert record.wait_ns == 10 * MS - host.plan - host.input - host.launch - host.result - host.loop


def test_end_is_the_boundary() -> None:
    """Cycles follow each other without gap: each begins where the one before ended."""
    bench = Bench(INTERLEAVED, overlap=True)
    bench.scheduler.event_loop_overlap()
    assert all(record.end_ns - record.cycle_ns == before.end_ns for before, record in pairwise(bench.results))


def test_nested_launch_counts_once() -> None:
    """A prebuilt batch that runs an idle one inside is one launch, and the time of both is its launch's."""
    inner = Batch(Mode.IDLE, 10 * MS, [])
    script = [decode() if index % 2 else Batch(Mode.PREBUILT, 0, [1], inner=inner) for index in range(60)]
    bench = Bench(script, overlap=True)
    bench.scheduler.event_loop_overlap()
    assert len(bench.results) == 60
    assert {record.mode for record in bench.results} == {plugin.MODE_PREBUILT, DECODE}
    assert {record.launch_ns for record in bench.results[1:-1]} == {bench.scheduler.host.launch}
    assert bench.hooks.cycles is not None
    assert bench.hooks.cycles.unmatched == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.builds(decode, st.integers(2, 100)),
            st.builds(extend, st.integers(2, 100)),
        ),
        max_size=80,
    ),
    st.sampled_from(["cuda", "cpu"]),
    st.sampled_from(["normal", "overlap", "deep"]),
)
def test_any_script(script: list[Batch | None], device: str, loop: str) -> None:
    """Whatever comes in whatever order: one record a result, and its cycle is the batch's time and a little host time.

    The device is slower than the host, so that its time is the truth.
    """
    bench = Bench(script, device=device, overlap=loop != "normal")
    scheduler = bench.scheduler
    if loop == "deep":
        scheduler.event_loop_deep(3)
    else:
        (scheduler.event_loop_overlap if loop == "overlap" else scheduler.event_loop_normal)()
    assert [record.mode for record in bench.results] == [
        plugin.MODES[batch.forward_mode.name] for batch in scheduler.processed
    ]
    for record, batch in zip(bench.results, scheduler.processed, strict=True):
        assert stage_sum(record) == record.cycle_ns
        if record.kind == plugin.CYCLE:
            assert batch.device_ns <= record.cycle_ns <= batch.device_ns + 3 * HOST_MS * MS
    assert bench.hooks.failures == 0
