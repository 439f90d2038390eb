"""Which launch a result belongs to, and that nothing is kept alive for it."""

import gc
import weakref
from typing import Any

import cyclewatch_sglang as plugin
from fake_device import Batch, Bench, Mode, Result, Scheduler, decode, extend

DECODE, EXTEND = plugin.MODES["DECODE"], plugin.MODES["EXTEND"]


def unmatched(bench: Bench) -> int:
    assert bench.hooks.cycles is not None
    return bench.hooks.cycles.unmatched


def test_results_are_matched_by_identity_in_any_order() -> None:
    """A result that overtakes another one still describes its own batch."""
    scheduler = (bench := Bench()).scheduler
    first, second = extend(), decode()
    results = [scheduler.run_batch(first), scheduler.run_batch(second)]
    scheduler.process_batch_result(second, results[1])
    scheduler.process_batch_result(first, results[0])
    assert [record.mode for record in bench.results] == [DECODE, EXTEND]
    assert not any(record.flags & plugin.MATCHED_IN_ORDER for record in bench.results)


def test_unknown_result_takes_the_oldest_launch() -> None:
    """Where somebody replaced the result, the order decides, and the record says so."""
    scheduler = (bench := Bench()).scheduler
    kept = [scheduler.run_batch(batch) for batch in (extend(), decode())]
    for batch in (extend(), decode()):
        scheduler.process_batch_result(batch, Result())
    assert len(kept) == 2
    assert [record.mode for record in bench.results] == [EXTEND, DECODE]
    assert all(record.flags & plugin.MATCHED_IN_ORDER for record in bench.results)
    assert unmatched(bench) == 0


def test_result_without_a_launch_is_counted() -> None:
    """A result of a batch nobody saw launched makes no record, but ends the cycle."""
    scheduler = (bench := Bench()).scheduler
    scheduler.process_batch_result(decode(), scheduler.run_batch(decode()))
    scheduler.process_batch_result(decode(), Result())
    scheduler.process_batch_result(decode(), scheduler.run_batch(decode()))
    first, last = bench.results
    assert unmatched(bench) == 1
    assert last.end_ns - last.cycle_ns > first.end_ns


def test_launch_without_a_result_is_counted() -> None:
    """When SGLang is idle, nothing is in flight: what still waits is given up."""
    scheduler = (bench := Bench()).scheduler
    scheduler.run_batch(decode())
    scheduler.run_batch(decode())
    scheduler.on_idle()
    assert unmatched(bench) == 2
    scheduler.process_batch_result(decode(), scheduler.run_batch(decode()))
    assert len(bench.results) == 1


def test_launches_without_results_are_bounded() -> None:
    """Of launches whose results never come only the newest 64 are remembered."""
    scheduler = (bench := Bench()).scheduler
    results = [scheduler.run_batch(decode()) for _ in range(100)]
    assert unmatched(bench) == 36
    scheduler.process_batch_result(decode(), results[-1])
    assert len(bench.results) == 1


def test_identity_given_anew() -> None:
    """When a result died unprocessed and a new one has its `id`, the old launch is given up, and counted."""
    scheduler = (bench := Bench()).scheduler
    result = scheduler.run_batch(extend())
    assert bench.hooks.cycles is not None
    bench.hooks.cycles.launched(scheduler, decode(), result, 0, 0)
    scheduler.process_batch_result(decode(), result)
    assert [record.mode for record in bench.results] == [DECODE]
    assert unmatched(bench) == 1


def test_identity_given_anew_after_others() -> None:
    """So it is, too, if another batch was launched and processed in between."""
    scheduler = (bench := Bench()).scheduler
    died, processed = scheduler.run_batch(extend()), scheduler.run_batch(decode())
    scheduler.process_batch_result(decode(), processed)
    assert bench.hooks.cycles is not None
    bench.hooks.cycles.launched(scheduler, decode(), died, 0, 0)
    scheduler.process_batch_result(decode(), died)
    assert [record.mode for record in bench.results] == [DECODE, DECODE]
    assert unmatched(bench) == 1


def test_split_prefill_is_one_launch() -> None:
    """A prefill launched in parts beside decodes is one result, matched by its last part, timed from the first."""
    split = Batch(Mode.SPLIT_PREFILL, 5_000_000, [1], 4096, parts=4)
    bench = Bench([split, split])
    bench.scheduler.event_loop_pdmux()
    prefills = [record for record in bench.results if record.mode == plugin.MODE_SPLIT_PREFILL]
    assert len(prefills) == 2
    assert unmatched(bench) == 0
    first_launch_ns = bench.scheduler.launches[0][1]
    assert prefills[0].kind == plugin.FLAGGED  # the first batch of all
    assert prefills[0].cycle_ns == prefills[0].end_ns - first_launch_ns


def test_split_prefill_of_very_many_parts() -> None:
    """More parts than launches are remembered are still one launch."""
    split = Batch(Mode.SPLIT_PREFILL, 1_000_000, [1], 4096, parts=200)
    bench = Bench([split])
    bench.scheduler.event_loop_pdmux()
    assert unmatched(bench) == 0
    assert [record.mode for record in bench.results] == [DECODE] * 199 + [plugin.MODE_SPLIT_PREFILL]


def test_pipeline_passes_over_prebuilt_batches() -> None:
    """Pipelines launch prebuilt batches and never process them: they do not put the order out of joint."""
    bench = Bench()
    bench.scheduler.pp_loop_size = 2
    for batch in (Batch(Mode.PREBUILT, 0), extend()):
        bench.scheduler.run_batch(batch)
    bench.scheduler.process_batch_result(extend(), Result())
    assert [record.mode for record in bench.results] == [EXTEND]
    assert unmatched(bench) == 1


def test_prebuilt_batches_are_processed_elsewhere() -> None:
    """A prebuilt batch that is processed is matched like any other."""
    bench = Bench([Batch(Mode.PREBUILT, 0), decode(), decode()], overlap=True)
    bench.scheduler.event_loop_overlap()
    assert [record.mode for record in bench.results] == [plugin.MODE_PREBUILT, DECODE, DECODE]


def test_in_a_pipeline_identity_is_not_asked() -> None:
    """Identities are reused there: a result with the `id` of a later launch belongs to the oldest all the same."""
    bench = Bench()
    bench.scheduler.pp_loop_size = 2
    bench.scheduler.run_batch(extend())
    later = bench.scheduler.run_batch(decode())
    bench.scheduler.process_batch_result(extend(), later)
    assert [record.mode for record in bench.results] == [EXTEND]


def test_process_within_process_counts_once() -> None:
    """0.5.23's prefill server handles a result in a function of its own, within the general one; 0.5.4's at once."""

    class PrefillServer(Scheduler):
        def process_batch_result(self, batch: Batch, result: Result) -> None:
            self.process_batch_result_disagg_prefill(batch, result)

        def process_batch_result_disagg_prefill(self, batch: Batch, result: Result) -> None:
            Scheduler.process_batch_result(self, batch, result)

    bench = Bench([extend()] * 5, kind=PrefillServer, overlap=True)
    bench.scheduler.event_loop_overlap()
    assert len(bench.results) == 5
    scheduler: Any = bench.scheduler
    scheduler.process_batch_result_disagg_prefill(extend(), scheduler.run_batch(extend()))
    assert len(bench.results) == 6
    assert unmatched(bench) == 0


def test_batches_and_results_are_not_kept_alive() -> None:
    """Between launch and result, and after, the plugin holds neither: they hold GPU memory."""
    scheduler = (bench := Bench()).scheduler
    batch, result = decode(), scheduler.run_batch(decode())
    scheduler.launches.clear()
    result = scheduler.run_batch(batch)
    references: list[weakref.ref[Any]] = [weakref.ref(batch), weakref.ref(result), weakref.ref(result.copy_done)]
    scheduler.launches.clear()
    gc.collect()
    gc.disable()
    try:
        del batch, result
        assert [reference() for reference in references] == [None] * 3
    finally:
        gc.enable()
    assert len(bench.results) == 0


def test_timing_the_wait_leaves_no_reference_cycle() -> None:
    """After its result has been handled an event goes away at once, although nobody collects garbage."""
    scheduler = (bench := Bench()).scheduler
    batch = decode()
    result = scheduler.run_batch(batch)
    event = weakref.ref(result.copy_done)
    gc.collect()
    gc.disable()
    try:
        scheduler.process_batch_result(batch, result)
        assert "synchronize" not in vars(result.copy_done)
        del result
        assert event() is None
    finally:
        gc.enable()
    assert len(bench.results) == 1
