"""What a record says of its batch, beside its times."""

from dataclasses import dataclass
from typing import Any

import pytest

import cyclewatch_sglang as plugin
from fake_device import MS, Algorithm, Batch, Bench, Event, Mode, Result, Scheduler, decode, extend

NAMES = {
    Mode.EXTEND: 1,
    Mode.DECODE: 2,
    Mode.MIXED: 3,
    Mode.IDLE: 4,
    Mode.PREBUILT: 5,
    Mode.SPLIT_PREFILL: 6,
    Mode.TARGET_VERIFY: 7,
    Mode.DRAFT_EXTEND_V2: 8,
    Mode.DLLM_EXTEND: 9,
    Mode.A_MODE_OF_TOMORROW: 255,
}


def only_record(batch: Batch, result: Result | None = None, **scheduler: Any) -> Any:
    """The record of one batch that is launched and processed at once."""
    bench = Bench(**scheduler)
    launched = bench.scheduler.run_batch(batch)
    if result is not None:
        launched.num_correct_drafts, launched.can_run_cuda_graph = result.num_correct_drafts, result.can_run_cuda_graph
    bench.scheduler.process_batch_result(batch, launched)
    (record,) = bench.results
    return record


@pytest.mark.parametrize(("mode", "number"), NAMES.items())
def test_modes_by_name(mode: Mode, number: int) -> None:
    """Modes go by their names, whatever their numbers are in this version of SGLang."""
    assert only_record(Batch(mode)).mode == number


@pytest.mark.parametrize(
    ("algorithm", "number"),
    [
        (None, 0),
        (Algorithm.NONE, 0),
        (Algorithm.EAGLE, 1),
        (Algorithm.EAGLE3, 2),
        (Algorithm.NGRAM, 4),
        (Algorithm.AN_ALGORITHM_OF_TOMORROW, 255),
        (object(), 255),
    ],
)
def test_speculative_algorithms_by_name(algorithm: object, number: int) -> None:
    """Speculative algorithms, too, go by name; those of other plugins are other."""
    assert only_record(Batch(spec_algorithm=algorithm)).speculative == number


def test_accepted_tokens() -> None:
    """Under speculation the result says how many drafts were right; without, nothing is asked."""
    result = Result(num_correct_drafts=9)
    assert only_record(Batch(spec_algorithm=Algorithm.EAGLE), result).accepted_tokens == 9
    assert only_record(Batch(), result).accepted_tokens == 0


def test_accepted_tokens_of_0_5_4() -> None:
    """0.5.4 knows them by another name, and leaves them open at first."""

    class OldResult:
        copy_done = None
        num_accepted_tokens: int | None = None

    bench = Bench()
    batch, results = Batch(spec_algorithm=Algorithm.EAGLE), [OldResult(), OldResult()]
    results[1].num_accepted_tokens = 5
    assert bench.hooks.cycles is None
    bench.scheduler.process_input_requests([])
    cycles: Any = bench.hooks.cycles
    for result in results:
        cycles.launched(bench.scheduler, batch, result, 0, 1)
        cycles.processed(batch, result, 0, bench.clock())
    assert [record.accepted_tokens for record in bench.results] == [0, 5]


def test_new_tokens_are_those_of_a_prefill() -> None:
    """On decode SGLang's number is stale and not told."""
    assert only_record(extend()).new_tokens == 512
    assert only_record(decode()).new_tokens == 0
    assert only_record(Batch(Mode.MIXED, extend_num_tokens=260)).new_tokens == 260
    assert only_record(Batch(Mode.EXTEND, extend_num_tokens=None)).new_tokens == 0


@pytest.mark.parametrize(("seq_lens_sum", "kv_tokens"), [(4711, 4711), (None, 0), (object(), 0)])
def test_kv_tokens_only_if_they_are_a_number(seq_lens_sum: object, kv_tokens: int) -> None:
    """`seq_lens_sum` is taken where it is a plain number; a tensor is not touched."""
    assert only_record(Batch(seq_lens_sum=seq_lens_sum)).kv_tokens == kv_tokens


@dataclass
class Cache:
    """What a request of 0.5.23 knows of its cached tokens."""

    kv_committed_len: int


@dataclass
class Request:
    """A request of 0.5.23."""

    kv: Cache


def test_kv_tokens_that_are_on_the_gpu_alone_are_those_of_the_requests() -> None:
    """Each is asked at every 16th launch, and what they said holds for as many as there are until then."""
    bench = Bench()
    requests = [Request(Cache(tokens)) for tokens in (1000, 3000)]
    for launch in range(32):
        reqs = [*requests, Request(Cache(2000))] if launch == 1 else requests
        batch: Any = Batch(seq_lens_sum=None, spec_algorithm=Algorithm.EAGLE, reqs=reqs)
        bench.scheduler.process_batch_result(batch, bench.scheduler.run_batch(batch))
        requests[0].kv.kv_committed_len += 4
    told = [record.kv_tokens for record in bench.results]
    assert told == [4000, 6000] + [4000] * 14 + [4064] * 16


def test_facts_are_those_of_the_launch() -> None:
    """SGLang changes a batch after its launch; the record tells what was launched."""
    bench = Bench()
    batch = Batch(Mode.EXTEND, extend_num_tokens=33, reqs=[1, 2, 3])
    bench.scheduler.waiting_queue = [1] * 5
    result = bench.scheduler.run_batch(batch)
    batch.forward_mode, batch.reqs, batch.seq_lens_sum = Mode.DECODE, [], 0
    bench.scheduler.waiting_queue = []
    bench.scheduler.running_batch.reqs = []
    bench.scheduler.process_batch_result(batch, result)
    (record,) = bench.results
    facts = (record.mode, record.batch_size, record.new_tokens, record.kv_tokens, record.queue_length, record.running)
    assert facts == (1, 3, 33, 100, 5, 2)


def test_kv_tokens_are_read_after_the_launch() -> None:
    """Under overlap SGLang computes `seq_lens_sum` inside `run_batch` only."""

    class Late(Scheduler):
        def run_batch(self, batch: Batch, pp_proxy_tensors: object = None) -> Result:
            batch.seq_lens_sum = 999
            return super().run_batch(batch)

    bench = Bench(kind=Late)
    batch = Batch(seq_lens_sum=None)
    bench.scheduler.process_batch_result(batch, bench.scheduler.run_batch(batch))
    assert bench.results[0].kv_tokens == 999


def test_flags_of_the_circumstances() -> None:
    """CUDA graph, overlap and SGLang's profiler are flags of their own."""
    usual = plugin.WARMUP | plugin.AFTER_BREAK
    assert only_record(decode()).flags == usual
    assert only_record(decode(), Result(can_run_cuda_graph=True)).flags == usual | plugin.CUDA_GRAPH
    assert only_record(decode(), overlap=True).flags == usual | plugin.OVERLAP


@pytest.mark.parametrize("managed", [True, False], ids=["0.5.23", "0.5.4"])
def test_profiled(managed: bool) -> None:
    """Whether SGLang's profiler runs is seen where this version keeps it."""
    bench = Bench()
    scheduler: Any = bench.scheduler
    if not managed:
        del scheduler.profiler_manager
        scheduler.profile_in_progress = False
    for profiled in (False, True, False):
        (scheduler.profiler_manager if managed else scheduler).profile_in_progress = profiled
        scheduler.process_batch_result(decode(), scheduler.run_batch(decode()))
    assert [bool(record.flags & plugin.PROFILED) for record in bench.results] == [False, True, False]


def test_no_profiler_at_all() -> None:
    """A version that keeps its profiler elsewhere is measured without that flag."""
    bench = Bench()
    scheduler: Any = bench.scheduler
    del scheduler.profiler_manager
    scheduler.process_batch_result(decode(), scheduler.run_batch(decode()))
    assert len(bench.results) == 1


def test_thread_time_is_sampled() -> None:
    """Of every eight cycles one has the CPU time of the thread, from its one boundary to the other."""
    bench = Bench([decode()] * 40, overlap=True, cpu_clock=(reads := Reads()))
    reads.clock = bench.clock
    bench.scheduler.event_loop_overlap()
    sampled = [record for record in bench.results if record.on_cpu_ns >= 0]
    assert len(sampled) == 40 // 8
    assert [record.on_cpu_ns for record in sampled] == [record.cycle_ns // 2 for record in sampled]
    assert reads.count == 2 * len(sampled)


def test_thread_time_of_a_flagged_record_is_unknown() -> None:
    """A sample over a break is no cycle's."""
    bench = Bench([batch for _ in range(40) for batch in (decode(), None, None)], overlap=True)
    bench.scheduler.event_loop_overlap()
    assert {record.on_cpu_ns for record in bench.results} == {-1}


class Reads:
    """A thread's CPU clock that runs at half the pace of the clock, and counts its reads."""

    def __init__(self) -> None:
        self.clock: Any = None
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return int(self.clock()) // 2


# The wait for the device


def test_wait_is_told_apart() -> None:
    """The wait for the copy to the host is not part of the handling of the result."""
    record = only_record(decode(10))
    assert record.wait_ns == 10 * MS
    assert record.result_ns == Scheduler(Bench().clock).host.result
    assert not record.flags & plugin.WAIT_UNKNOWN


def test_no_wait_on_a_cpu() -> None:
    """Where nothing is waited for, that is known."""
    record = only_record(decode(10), device="cpu")
    assert (record.wait_ns, record.flags & plugin.WAIT_UNKNOWN) == (0, 0)


class Rigid:
    """An event that takes no attributes."""

    __slots__ = ("waited",)

    def __init__(self) -> None:
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1


class Elsewhere(Event):
    """An event whose `synchronize` somebody has shadowed already."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.clock, 0)
        self.waited = 0
        self.synchronize = self._theirs  # type: ignore[method-assign]

    def _theirs(self) -> None:
        self.waited += 1


@pytest.mark.parametrize("event", [None, Rigid(), Elsewhere(Bench())], ids=["none", "rigid", "shadowed"])
def test_wait_that_cannot_be_told_apart_is_flagged(event: Any) -> None:
    """Without an event that may be touched, the wait is inside the handling; the event is used as ever."""
    bench = Bench()
    batch = decode()
    result = bench.scheduler.run_batch(batch)
    result.copy_done = event
    bench.scheduler.process_batch_result(batch, result)
    (record,) = bench.results
    assert record.flags & plugin.WAIT_UNKNOWN
    assert record.wait_ns == 0
    assert event is None or event.waited == 1
    if isinstance(event, Elsewhere):
        assert event.synchronize == event._theirs


def test_wait_that_begins_after_the_handling() -> None:
    """Who keeps an event's `synchronize` may call it when the result has long been handled."""

    class Keeping(Scheduler):
        kept: Any = None

        def process_batch_result(self, batch: Batch, result: Result) -> None:
            self.kept = result.copy_done.synchronize

    bench = Bench([decode()] * 3, kind=Keeping)
    bench.scheduler.event_loop_normal()
    scheduler: Any = bench.scheduler
    scheduler.kept()
    assert bench.clock() == scheduler.device_free_ns
    assert [record.wait_ns for record in bench.results] == [0, 0, 0]
    assert bench.hooks.failures == 0


def test_wait_is_what_synchronize_gives() -> None:
    """Result, arguments and exceptions of `synchronize` pass."""

    class Particular:
        def synchronize(self, *args: object, **kwargs: object) -> object:
            return args, kwargs

    class Curious(Scheduler):
        given: object = None

        def process_batch_result(self, batch: Batch, result: Result) -> None:
            self.given = result.copy_done.synchronize(1, two=2)

    bench = Bench(kind=Curious)
    batch = decode()
    result = bench.scheduler.run_batch(batch)
    result.copy_done = Particular()
    bench.scheduler.process_batch_result(batch, result)
    scheduler: Any = bench.scheduler
    assert scheduler.given == ((1,), {"two": 2})
    assert "synchronize" not in vars(result.copy_done)
