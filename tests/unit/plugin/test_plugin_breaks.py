"""What is no cycle: breaks, stalls, pauses, weight updates, warm-up; and garbage collections."""

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import cyclewatch_sglang as plugin
from fake_device import MS, Batch, Bench, Scheduler, decode, pause, resume, update_weights

FLAG_NAMES = {plugin.AFTER_BREAK: "break", plugin.PAUSED: "pause"}


def told(bench: Bench) -> list[str]:
    """For each result `cycle`, or what it came after."""
    return [
        "+".join(name for flag, name in FLAG_NAMES.items() if record.flags & flag) or "cycle"
        for record in bench.results
    ]


def run_overlap(script: list[Batch | None], **scheduler: Any) -> Bench:
    bench = Bench(script, overlap=True, **scheduler)
    bench.scheduler.event_loop_overlap()
    return bench


def test_first_batch_is_after_a_break() -> None:
    """The first batch of the process has no cycle."""
    assert told(run_overlap([decode()] * 3)) == ["break", "cycle", "cycle"]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_batch_after_idleness_has_no_cycle(device: str) -> None:
    """After a plan without a batch the next one launched is flagged; the one in flight at that moment is not."""
    bench = run_overlap([decode(), decode(), None, None, decode(), decode()], device=device)
    assert told(bench) == ["break", "cycle", "break", "cycle"]


def test_flagged_record_tells_the_time_since_the_launch() -> None:
    """Idleness is in no record: what is flagged begins with its launch, and its stages do, too."""
    bench = run_overlap([decode(), None, None, None, decode()])
    host, record = bench.scheduler.host, bench.results[-1]
    assert record.kind == plugin.FLAGGED
    assert record.cycle_ns == host.launch + 10 * MS + host.result
    assert (record.schedule_ns, record.launch_ns) == (host.plan, host.launch)  # the next plan, made while it ran


def test_flagged_record_on_a_cpu() -> None:
    """On a CPU the time since the launch is the launch."""
    bench = run_overlap([decode(), None, None, decode()], device="cpu")
    record = bench.results[-1]
    assert record.kind == plugin.FLAGGED
    assert record.cycle_ns == record.launch_ns == bench.scheduler.host.launch + 10 * MS


def test_one_empty_slot_of_a_pipeline_is_no_break() -> None:
    """With fewer batches than slots the pipeline is not idle."""
    bench = Bench([batch for _ in range(20) for batch in (decode(), None)])
    bench.scheduler.pp_loop_size = 2
    bench.scheduler.event_loop_pp(2)
    assert told(bench) == ["break"] + ["cycle"] * 19


def test_all_slots_empty_is_a_break() -> None:
    """Every slot in turn without a batch is idleness."""
    bench = Bench([decode(), decode(), None, None, decode(), decode()])
    bench.scheduler.pp_loop_size = 2
    bench.scheduler.event_loop_pp(2)
    assert told(bench) == ["break", "cycle", "break", "cycle"]


def test_idle_alone_is_a_break() -> None:
    """Loops that make no plan say that they are idle."""
    bench = Bench([decode(), decode(), None, decode(), decode()])
    bench.scheduler.event_loop_pdmux()
    assert told(bench) == ["break", "cycle", "break", "cycle"]


def test_warm_up_is_flagged() -> None:
    """The first 32 results are flagged as warm-up, and are cycles all the same."""
    bench = run_overlap([decode()] * 40)
    assert [bool(record.flags & plugin.WARMUP) for record in bench.results] == [True] * 32 + [False] * 8
    assert told(bench)[1:] == ["cycle"] * 39


# Stalls


def test_no_batch_although_requests_wait_is_a_stall() -> None:
    """A stall is a record of its own, with its length; the batch after it is after a break."""
    bench = run_overlap([decode(), None, None, None, decode()], waiting=dict.fromkeys(range(2, 6), 3))
    (stall,) = bench.of_kind(plugin.STALL)
    host = bench.scheduler.host
    # From the second plan without a batch, when nothing was in flight any more, to the launch.
    iteration = host.loop + host.input + host.plan
    assert stall.cycle_ns == 2 * iteration + 2 * host.loop
    assert stall.end_ns == bench.scheduler.launches[1][1]
    assert stall.queue_length == 3
    assert told(bench) == ["break", "break"]


def test_stall_ends_when_the_queue_empties() -> None:
    """When the requests go away, the stall ends, and idleness begins."""
    bench = run_overlap([decode(), *[None] * 8, decode()], waiting={3: 1, 4: 1, 5: 1})
    (stall,) = bench.of_kind(plugin.STALL)
    host = bench.scheduler.host
    assert stall.cycle_ns == 3 * (host.loop + host.input + host.plan + host.loop)


def test_idleness_is_no_stall() -> None:
    """Without waiting requests there is nothing to stall."""
    assert run_overlap([decode(), None, None, None, decode()]).of_kind(plugin.STALL) == []


def test_a_batch_in_flight_is_no_stall() -> None:
    """While the device works, a plan without a batch only waits for it."""
    bench = run_overlap([decode(), None, decode(), None, decode()], waiting=dict.fromkeys(range(9), 1))
    assert bench.of_kind(plugin.STALL) == []


def test_a_pause_is_no_stall() -> None:
    """A paused server lets its requests wait: a stall ends with the pause, and none begins in it."""
    scheduler = (bench := Bench()).scheduler
    scheduler.process_input_requests([])
    scheduler.waiting_queue = [1]
    scheduler.on_idle()
    scheduler.pause_generation()
    (stall,) = bench.of_kind(plugin.STALL)
    assert stall.cycle_ns == scheduler.host.loop
    scheduler.on_idle()  # pipelines go on
    scheduler.continue_generation()
    assert bench.of_kind(plugin.STALL) == [stall]


def test_stall_under_way_is_in_the_counters() -> None:
    """Long before it ends, a stall is told with its beginning."""
    bench = run_overlap([decode(), *[None] * 5000, decode()], waiting=dict.fromkeys(range(2, 5003), 1))
    (stall,) = bench.of_kind(plugin.STALL)
    began = {counters["stalled_since_ns"] for counters in bench.ring.counters}
    assert began == {0, stall.end_ns - stall.cycle_ns}


# Pauses and weight updates


def test_pause_flags_what_is_in_flight_and_what_comes_next() -> None:
    """A pause falls into the batches in flight and the next one, not into those before and after."""
    bench = run_overlap(
        [decode() for _ in range(8)],
        requests={4: pause, 500: resume},
    )
    assert told(bench) == ["break", "cycle", "pause", "pause", *["cycle"] * 4]


def test_pause_that_processes_the_batch_in_flight_itself() -> None:
    """SGLang's retracting pause handles the result inside the handling of its input; both are one record."""

    class Retracting(Scheduler):
        def pause_generation(self, request: object = None) -> None:
            self._engine_paused = True
            self.process_batch_result(*self.result_queue.popleft())
            self.last_batch = None

    bench = Bench(
        [decode() for _ in range(5)],
        kind=Retracting,
        overlap=True,
        requests={4: pause, 9: resume},
    )
    bench.scheduler.event_loop_overlap()
    assert told(bench) == ["break", "cycle", "pause", "pause", "cycle"]
    host = bench.scheduler.host
    assert [record.input_ns for record in bench.results] == [host.input, host.input, 0, host.input, host.input]
    assert [record.result_ns for record in bench.results] == [host.result] * 5
    assert bench.hooks.failures == 0


def test_paused_is_in_the_counters() -> None:
    """A paused loop, which only handles input, still gives a sign of life, and says that it is paused."""
    bench = run_overlap(
        [decode() for _ in range(8)],
        requests={4: pause, 50_000: resume},
    )
    paused = [counters["heartbeat_ns"] for counters in bench.ring.counters if counters["paused"]]
    assert len(paused) >= 3
    assert max(later - earlier for earlier, later in pairwise(paused)) < 1100 * MS
    assert not bench.ring.counters[-1]["paused"] or bench.scheduler._engine_paused is False


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_weight_update_is_in_no_cycle(device: str) -> None:
    """Five seconds of new weights are in the time of no batch that counts."""
    bench = run_overlap([decode() for _ in range(8)], device=device, requests={4: update_weights})
    assert "pause" in told(bench)
    assert max(record.cycle_ns for record in bench.cycles) < 20 * MS


def test_what_was_computed_before_a_pause_counts_on_a_cpu() -> None:
    """On a CPU a batch that was launched has been computed: its cycle ended before the pause began."""
    bench = run_overlap(
        [decode() for _ in range(8)],
        device="cpu",
        requests={4: pause, 500: resume},
    )
    assert told(bench) == ["break", "cycle", "cycle", "pause", *["cycle"] * 4]


# Garbage collections


@pytest.fixture(name="collected")
def _collected() -> Callable[[Bench, int], None]:
    """A garbage collection of some length in the process of a bench, as Python tells of it."""

    def collect(bench: Bench, length_ns: int) -> None:
        for callback in gc.callbacks:
            if isinstance(callback, plugin.GarbagePauses):
                callback("start", {"generation": 2})
                bench.clock.spend(length_ns)
                callback("stop", {"generation": 2})

    return collect


def test_long_collection_is_a_record(collected: Callable[[Bench, int], None]) -> None:
    """A pause of a millisecond or more is written before the next record, with its end, length and generation."""
    bench = Bench(overlap=True)
    collections = {4: lambda _: collected(bench, 3 * MS), 6: lambda _: collected(bench, MS - 1)}
    bench.scheduler.script.extend([decode()] * 8)
    bench.scheduler.requests.update(collections)
    bench.scheduler.event_loop_overlap()
    bench.hooks.after_fork()
    (pause,) = bench.of_kind(plugin.GARBAGE_COLLECTION)
    assert (pause.cycle_ns, pause.mode, pause.batch_size) == (3 * MS, 2, 0)
    following = bench.ring.records[bench.ring.records.index(pause) + 1]
    assert following.end_ns >= pause.end_ns


def test_too_many_collections_are_counted(collected: Callable[[Bench, int], None]) -> None:
    """What comes before anybody fetches it is bounded, and what is lost is counted."""
    bench = Bench([decode()] * 3, overlap=True)

    def collect_often(scheduler: Scheduler) -> None:
        for _ in range(70):
            collected(bench, MS)

    bench.scheduler.requests[2] = collect_often
    bench.scheduler.event_loop_overlap()
    bench.clock.spend(2000 * MS)
    bench.scheduler.process_input_requests([])
    bench.hooks.after_fork()
    assert len(bench.of_kind(plugin.GARBAGE_COLLECTION)) == 64
    assert bench.ring.counters[-1]["gc_dropped"] == 6


def test_only_a_process_that_measures_watches_collections() -> None:
    """Nothing stands in `gc.callbacks` before the first call of the loop, nor after the end."""
    before = list(gc.callbacks)
    bench = Bench([decode()], overlap=True)
    assert gc.callbacks == before
    bench.scheduler.event_loop_overlap()
    assert len(gc.callbacks) == len(before) + 1
    bench.hooks.after_fork()
    assert gc.callbacks == before
