"""SGLang's scheduler loops on a virtual clock, with a device whose every batch takes a known time.

A CPU cannot show a wrong definition of a cycle: there the batch is computed inside `run_batch`. Here the device may
work on its own, as a GPU does, and each batch says how long it occupies it. The loops have the shape of SGLang's
(`event_loop_normal`, `event_loop_overlap`, `event_loop_pp`, the loops of disaggregation and of multiplexing); what they
call, the plugin's hooks go around.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, auto
from types import SimpleNamespace
from typing import Any

import cyclewatch_sglang as plugin

MS = 1_000_000


class Mode(IntEnum):
    """SGLang's forward modes; the numbers are none of the ring's on purpose."""

    EXTEND = 11
    DECODE = auto()
    MIXED = auto()
    IDLE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND_V2 = auto()
    PREBUILT = auto()
    SPLIT_PREFILL = auto()
    DLLM_EXTEND = auto()
    A_MODE_OF_TOMORROW = auto()


class Algorithm(Enum):
    """SGLang's speculative algorithms."""

    NONE = auto()
    EAGLE = auto()
    EAGLE3 = auto()
    NGRAM = auto()
    AN_ALGORITHM_OF_TOMORROW = auto()


class Clock:
    """Monotonic nanoseconds that pass only when somebody spends them."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, ns: int) -> None:
        self.now_ns += ns


class Event:
    """A device event, for the end of one batch's copy to the host."""

    def __init__(self, clock: Clock, done_ns: int) -> None:
        self.clock = clock
        self.done_ns = done_ns

    def synchronize(self) -> None:
        self.clock.now_ns = max(self.clock.now_ns, self.done_ns)


@dataclass(eq=False)
class Result:
    """What a launch gives."""

    copy_done: Any = None
    can_run_cuda_graph: bool = False
    num_correct_drafts: int = 0


@dataclass(eq=False)
class Batch:
    """A batch, and how long the device takes for it."""

    forward_mode: Mode = Mode.DECODE
    device_ns: int = 10 * MS
    reqs: list[Any] = field(default_factory=lambda: [1, 2, 3, 4])
    extend_num_tokens: int | None = 7  # stale on decode
    seq_lens_sum: Any = 100
    spec_algorithm: Any = Algorithm.NONE
    inner: "Batch | None" = None
    parts: int = 1

    def copy(self) -> "Batch":
        return replace(self)


def decode(ms: float = 10) -> Batch:
    """A decode batch of 4 requests."""
    return Batch(Mode.DECODE, int(ms * MS))


def extend(ms: float = 80) -> Batch:
    """A prefill of one request of 512 tokens."""
    return Batch(Mode.EXTEND, int(ms * MS), [1], 512)


@dataclass
class Plan:
    """SGLang's NextBatchPlan; 0.5.4 gives the batch itself."""

    batch_to_run: Batch | None


@dataclass
class Host:
    """Host time of each function in nanoseconds."""

    input: int = 50_000
    plan: int = 300_000
    launch: int = 400_000
    result: int = 200_000
    loop: int = 20_000


class Scheduler:
    """SGLang's scheduler, as far as the hooks see it.

    Args:
        clock: spent by the functions, and by waiting.
        script: the plans, in order; the loops end with it.
        device: `cuda` works on its own; `cpu` computes inside `run_batch`.
        overlap: for `event_loop_overlap`.
        requests: control requests: the function to call when the input of that iteration is handled.
        waiting: requests in the waiting queue at that iteration; 0 where absent.
    """

    pp_size = 1
    plan_type: Callable[[Batch | None], Any] = Plan

    def __init__(
        self,
        clock: Clock,
        script: Iterable[Batch | None] = (),
        *,
        device: str = "cuda",
        overlap: bool = False,
        requests: Mapping[int, Callable[["Scheduler"], object]] | None = None,
        waiting: Mapping[int, int] | None = None,
    ) -> None:
        self.clock = clock
        self.script = deque(script)
        self.device = device
        self.enable_overlap = overlap
        self.requests = dict(requests or {})
        self.waiting = dict(waiting or {})
        self.waiting_queue: list[int] = []
        self.running_batch = Batch(reqs=[1, 2])
        self.profiler_manager = SimpleNamespace(profile_in_progress=False)
        self.host = Host()
        self.iteration = 0
        self.device_free_ns = clock()
        self.launches: list[tuple[Batch, int]] = []
        self.processed: list[Batch] = []
        self._engine_paused = False
        self.last_batch: Batch | None = None
        self.result_queue: deque[tuple[Batch, Result]] = deque()

    # What the hooks go around

    def process_input_requests(self, requests: list[Any]) -> None:
        self.clock.spend(self.host.input)
        for request in requests:
            request(self)

    def get_next_batch_to_run(self, running_batch: Any = None, last_batch: Any = None) -> Any:
        self.clock.spend(self.host.plan)
        return self.plan_type(self.script.popleft() if self.script else None)

    def run_batch(self, batch: Batch, pp_proxy_tensors: object = None) -> Result:
        self.launches.append((batch, self.clock()))
        if batch.inner is not None:  # as a prebuilt batch runs an idle one inside
            return self.run_batch(batch.inner)
        self.clock.spend(self.host.launch)
        if self.device == "cpu":
            self.clock.spend(batch.device_ns)
            return Result()
        self.device_free_ns = max(self.device_free_ns, self.clock()) + batch.device_ns
        return Result(Event(self.clock, self.device_free_ns))

    def process_batch_result(self, batch: Batch, result: Result) -> None:
        if result.copy_done is not None:
            result.copy_done.synchronize()
        self.clock.spend(self.host.result)
        self.processed.append(batch)

    def on_idle(self) -> None:
        self.clock.spend(self.host.loop)

    def pause_generation(self, request: object = None) -> None:
        self._engine_paused = True

    def continue_generation(self, request: object = None) -> None:
        self._engine_paused = False

    def update_weights_from_disk(self, request: object = None) -> str:
        self.clock.spend(5_000 * MS)
        return "updated"

    # SGLang's loops

    def _begin(self) -> bool:
        """What an iteration begins with; False where there is nothing more in it."""
        self.iteration += 1
        self.waiting_queue = [0] * self.waiting.get(self.iteration, 0)
        self.clock.spend(self.host.loop)
        request = self.requests.get(self.iteration)
        self.process_input_requests([] if request is None else [request])
        return not self._engine_paused

    def _plan(self) -> Batch | None:
        plan = self.get_next_batch_to_run(running_batch=None, last_batch=None)
        batch: Batch | None = plan.batch_to_run if isinstance(plan, Plan) else plan
        return batch

    def event_loop_normal(self) -> None:
        """Launch a batch, process its result."""
        while self.script:
            if not self._begin():
                continue
            batch = self._plan()
            if batch is None:
                self.on_idle()
                continue
            self.process_batch_result(batch, self.run_batch(batch))

    def event_loop_overlap(self) -> None:
        """Launch a batch, then process the result of the one before; of two prefills in a row, process first."""
        while self.script or self.last_batch is not None:
            if not self._begin():
                continue
            last, batch = self.last_batch, self._plan()
            alone = batch is not None and last is not None and batch.forward_mode == last.forward_mode == Mode.EXTEND
            if alone:
                self.process_batch_result(*self.result_queue.popleft())
            if batch is not None:
                self.result_queue.append((batch.copy(), self.run_batch(batch)))
            if last is not None:
                if not alone:
                    self.process_batch_result(*self.result_queue.popleft())
            elif batch is None:
                self.on_idle()
            self.last_batch = batch

    def event_loop_deep(self, depth: int) -> None:
        """As the loops of disaggregated prefill: up to `depth` batches in flight, the oldest processed first."""
        while self.script or self.result_queue:
            if not self._begin():
                continue
            batch = self._plan() if len(self.result_queue) < depth else None
            if batch is not None:
                self.result_queue.append((batch.copy(), self.run_batch(batch)))
            if self.result_queue and (batch is None or len(self.result_queue) == depth):
                self.process_batch_result(*self.result_queue.popleft())

    def event_loop_pp(self, slots: int) -> None:
        """One microbatch a slot in turn; results are new objects made from what the last stage sent."""
        self.pp_loop_size = slots
        flying: list[tuple[Batch, Event] | None] = [None] * slots
        while self.script or any(flying):
            idle = True
            for slot in range(slots):
                self._begin()
                batch = self._plan()
                flying[slot] = None
                if batch is not None:
                    idle = False
                    flying[slot] = batch, self.run_batch(batch).copy_done
                following = flying[(slot + 1) % slots]
                if following is not None:
                    following[1].synchronize()
                    self.process_batch_result(following[0], Result())
            if idle:
                self.on_idle()

    def event_loop_pdmux(self) -> None:
        """A prefill launched in parts beside decode batches, and processed when its last part is done."""
        while self.script:
            self._begin()
            batch = self.script.popleft()
            if batch is None:
                self.on_idle()
                continue
            result = self.run_batch(batch)
            for _ in range(batch.parts - 1):
                beside = decode()
                self.process_batch_result(beside, self.run_batch(beside))
                result = self.run_batch(batch)
            self.process_batch_result(batch, result)


def pause(scheduler: Scheduler) -> None:
    """The control request that pauses generation."""
    scheduler.pause_generation()


def resume(scheduler: Scheduler) -> None:
    """The control request that ends a pause."""
    scheduler.continue_generation()


def update_weights(scheduler: Scheduler) -> None:
    """The control request for new weights."""
    scheduler.update_weights_from_disk()


class MemoryRing(plugin.RingWriter):
    """A ring that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__(-1, "memory", plugin.CAPACITY_MIN)
        self.records: list[Any] = []
        self.counters: list[dict[str, int]] = []
        self.closed = False

    def put(self, sequence: int) -> None:
        fields = plugin.PAYLOAD.unpack_from(self.record, 8)
        self.records.append(SimpleNamespace(**dict(zip(plugin.PAYLOAD_FIELDS, fields, strict=True))))
        self.written = sequence

    def write_counters(self, **counters: int) -> None:
        self.counters.append(counters)

    def close(self) -> None:
        self.closed = True


class Bench:
    """A scheduler with the hooks around it, and what they wrote.

    Args:
        script: see `Scheduler`.
        cpu_clock: CPU time of the thread; by default all time is spent on the CPU.
        scheduler: arguments of `Scheduler`.
    """

    def __init__(
        self,
        script: Iterable[Batch | None] = (),
        *,
        kind: type[Scheduler] = Scheduler,
        cpu_clock: Callable[[], int] | None = None,
        **scheduler: Any,
    ) -> None:
        self.clock = Clock()
        self.ring = MemoryRing()
        self.hooks = plugin.Hooks(lambda _: self.ring, self.clock, cpu_clock or self.clock)
        hooked = hook(type(kind.__name__, (kind,), {}), self.hooks)
        self.scheduler: Scheduler = hooked(self.clock, script, **scheduler)

    def of_kind(self, *kinds: int) -> list[Any]:
        """The records of some kinds, in the order in which they were written."""
        return [record for record in self.ring.records if record.kind in kinds]

    @property
    def cycles(self) -> list[Any]:
        """Records of cycles that are none after a break."""
        return self.of_kind(plugin.CYCLE)

    @property
    def results(self) -> list[Any]:
        """One record a result."""
        return self.of_kind(plugin.CYCLE, plugin.FLAGGED)


def hook(scheduler: type[Scheduler], hooks: plugin.Hooks) -> type[Scheduler]:
    """Put the hooks around the functions of a class, as the plugin does it without SGLang's framework."""
    for name, functions in plugin.HOOK_POINTS:
        for function in functions:
            if hasattr(scheduler, function):
                setattr(scheduler, function, plugin.around(getattr(scheduler, function), getattr(hooks, name)))
                break
    return scheduler
