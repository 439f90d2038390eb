"""The hooks as SGLang meets them: they give what SGLang's functions give, and their own failures stay with them."""

import errno
import gc
import logging
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest

import cyclewatch_sglang as plugin
from fake_device import Batch, Bench, Clock, MemoryRing, Plan, Result, Scheduler, decode, hook, resume

LOOP = ("process_input_requests", "get_next_batch_to_run", "run_batch", "process_batch_result")


@pytest.fixture(autouse=True)
def _no_watch_left() -> Iterator[None]:
    """Leave no callback of a test in `gc.callbacks`."""
    yield
    gc.callbacks[:] = [callback for callback in gc.callbacks if not isinstance(callback, plugin.GarbagePauses)]


class Counting(Scheduler):
    """Counts the calls of its functions, and can be made to raise."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.error: BaseException | None = None

    def _called(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.calls.append((name, args, kwargs))
        if self.error is not None:
            raise self.error

    def process_input_requests(self, *args: Any, **kwargs: Any) -> str:  # type: ignore[override]
        self._called("process_input_requests", *args, **kwargs)
        return "handled"

    def get_next_batch_to_run(self, *args: Any, **kwargs: Any) -> Plan:
        self._called("get_next_batch_to_run", *args, **kwargs)
        return PLAN

    def run_batch(self, *args: Any, **kwargs: Any) -> Result:
        self._called("run_batch", *args, **kwargs)
        return RESULT

    def process_batch_result(self, *args: Any, **kwargs: Any) -> str:  # type: ignore[override]
        self._called("process_batch_result", *args, **kwargs)
        return "processed"

    def on_idle(self, *args: Any, **kwargs: Any) -> str:  # type: ignore[override]
        self._called("on_idle", *args, **kwargs)
        return "idle"

    def pause_generation(self, *args: Any, **kwargs: Any) -> str:  # type: ignore[override]
        self._called("pause_generation", *args, **kwargs)
        return "paused"

    def update_weights_from_disk(self, *args: Any, **kwargs: Any) -> str:
        self._called("update_weights_from_disk", *args, **kwargs)
        return "updated"


PLAN, RESULT, BATCH = Plan(decode()), Result(), decode()
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], object]] = {
    "process_input_requests": (([],), {}, "handled"),
    "get_next_batch_to_run": ((), {"running_batch": 1, "last_batch": 2}, PLAN),
    "run_batch": ((BATCH, "proxy"), {}, RESULT),
    "process_batch_result": ((BATCH, RESULT), {}, "processed"),
    "on_idle": ((), {}, "idle"),
    "pause_generation": (("request",), {}, "paused"),
    "update_weights_from_disk": (("request",), {}, "updated"),
}


def counting() -> tuple[Bench, Any]:
    bench = Bench(kind=Counting)
    return bench, bench.scheduler


def broken_batch(error: BaseException) -> Any:
    """A batch that the plugin, but not SGLang, stumbles over."""

    class Broken(Batch):
        @property
        def spec_algorithm(self) -> object:
            raise error

        @spec_algorithm.setter
        def spec_algorithm(self, value: object) -> None:
            pass

    return Broken()


# What SGLang sees


@pytest.mark.parametrize("name", CALLS)
def test_called_once_with_its_arguments_and_result(name: str) -> None:
    """Each of SGLang's functions is called exactly once, as it was called, and its result comes back."""
    bench, scheduler = counting()
    args, kwargs, expected = CALLS[name]
    if name == "process_batch_result":
        scheduler.run_batch(BATCH)
        scheduler.calls.clear()
    assert getattr(scheduler, name)(*args, **kwargs) is expected
    assert scheduler.calls == [(name, args, kwargs)]
    assert bench.hooks.failures == 0


OTHER_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("process_input_requests", (), {}),
    ("process_input_requests", (), {"recv_reqs": []}),
    ("process_input_requests", ([], "new"), {}),
    ("get_next_batch_to_run", (), {}),
    ("get_next_batch_to_run", (1, 2), {}),
    ("get_next_batch_to_run", (1,), {"last_batch": 2}),
    ("get_next_batch_to_run", (), {"running_batch": 1}),
    ("get_next_batch_to_run", (), {"running_batch": None, "last_batch": None, "new": 3}),
    ("run_batch", (BATCH,), {}),
    ("run_batch", (BATCH,), {"pp_proxy_tensors": None}),
    ("run_batch", (), {"batch": BATCH}),
    ("process_batch_result", (BATCH,), {"result": RESULT}),
    ("process_batch_result", (), {"batch": BATCH, "result": RESULT}),
    ("process_batch_result", (BATCH, RESULT, "new"), {"newer": 1}),
]
"""As SGLang's other versions call these functions, or might."""


@pytest.mark.parametrize("disabled", [False, True], ids=["measuring", "switched off"])
@pytest.mark.parametrize(("name", "args", "kwargs"), OTHER_CALLS)
def test_called_as_it_was_called(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], disabled: bool) -> None:
    """However SGLang calls its functions, they are called so: what is absent, by position or by name stays that."""
    bench, scheduler = counting()
    if disabled:
        bench.hooks.disabled = plugin.DISABLED_BY_FAILURES
    if name == "process_batch_result":
        scheduler.run_batch(BATCH)
        scheduler.calls.clear()
    assert getattr(scheduler, name)(*args, **kwargs) is CALLS[name][2]
    assert scheduler.calls == [(name, args, kwargs)]
    assert bench.hooks.failures == 0
    assert len(bench.results) == (name == "process_batch_result" and not disabled)


def test_keyword_arguments() -> None:
    """Batch and result are found by name, too."""
    bench, scheduler = counting()
    scheduler.process_batch_result(batch=BATCH, result=scheduler.run_batch(batch=BATCH, pp_proxy_tensors=None))
    assert len(bench.results) == 1
    assert bench.hooks.failures == 0


@pytest.mark.parametrize("error", [RuntimeError("theirs"), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_exceptions_of_sglang_pass(name: str, error: BaseException) -> None:
    """SGLang's own exceptions come through as they are, and the function is not called again."""
    bench, scheduler = counting()
    args, kwargs, _ = CALLS[name]
    scheduler.process_input_requests([])
    scheduler.calls.clear()
    scheduler.error = error
    with pytest.raises(type(error)) as raised:
        getattr(scheduler, name)(*args, **kwargs)
    assert raised.value is error
    assert len(scheduler.calls) == 1
    assert bench.hooks.failures == 0


@pytest.mark.parametrize("name", LOOP)
def test_measuring_goes_on_after_an_exception_of_sglang(name: str) -> None:
    """After an exception the next batches are measured as if nothing had been; the failed launch is none."""
    bench, scheduler = counting()
    scheduler.error = RuntimeError("theirs")
    args, kwargs, _ = CALLS[name]
    with pytest.raises(RuntimeError, match="theirs"):
        getattr(scheduler, name)(*args, **kwargs)
    scheduler.error = None
    for _ in range(3):
        scheduler.process_batch_result(BATCH, scheduler.run_batch(BATCH))
    assert [record.kind for record in bench.results] == [plugin.FLAGGED, plugin.CYCLE, plugin.CYCLE]
    assert bench.hooks.failures == 0


def test_wait_of_a_failed_call_is_in_no_later_record() -> None:
    """What was waited in a call that SGLang's exception ended is forgotten with it."""

    class FailsOnce(Scheduler):
        failed = False

        def process_batch_result(self, batch: Batch, result: Result) -> None:
            super().process_batch_result(batch, result)
            if not self.failed:
                self.failed = True
                raise RuntimeError("theirs")

    bench = Bench(kind=FailsOnce)
    batch = decode()
    with pytest.raises(RuntimeError, match="theirs"):
        bench.scheduler.process_batch_result(batch, bench.scheduler.run_batch(batch))
    bench.scheduler.on_idle()
    bench.scheduler.process_batch_result(batch, bench.scheduler.run_batch(batch))
    (record,) = bench.results
    assert record.wait_ns == batch.device_ns
    assert record.result_ns == bench.scheduler.host.result


def test_event_whose_attributes_cannot_be_written() -> None:
    """An event that gives its attributes to read only is waited for as ever; that is a failure of the plugin's own."""

    class Sealed:
        waited = 0

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            return MappingProxyType({})

        def synchronize(self) -> None:
            Sealed.waited += 1

    bench = Bench()
    batch = decode()
    result = bench.scheduler.run_batch(batch)
    result.copy_done = Sealed()
    bench.scheduler.process_batch_result(batch, result)
    assert Sealed.waited == 1
    assert bench.hooks.failures == 1


def test_exception_while_waiting_leaves_the_event_alone() -> None:
    """When the device reports an error, the event is as it was."""

    class Failing:
        def synchronize(self) -> None:
            raise RuntimeError("CUDA error")

    bench = Bench()
    batch = decode()
    result = bench.scheduler.run_batch(batch)
    result.copy_done = Failing()
    with pytest.raises(RuntimeError, match="CUDA error"):
        bench.scheduler.process_batch_result(batch, result)
    assert "synchronize" not in vars(result.copy_done)


# Failures of the plugin's own


@pytest.mark.parametrize("error", [RuntimeError("ours"), SystemExit("ours"), GeneratorExit()], ids=repr)
def test_own_failures_are_swallowed(error: BaseException) -> None:
    """Whatever goes wrong in the plugin, also a `sys.exit`, SGLang gets its result."""
    bench = Bench()
    batch = broken_batch(error)
    result = bench.scheduler.run_batch(batch)
    assert isinstance(result, Result)
    assert bench.hooks.failures == 1
    assert len(bench.scheduler.launches) == 1


def test_ctrl_c_passes() -> None:
    """Ctrl-C that strikes inside the plugin is the user's."""
    with pytest.raises(KeyboardInterrupt):
        Bench().scheduler.run_batch(broken_batch(KeyboardInterrupt()))


@pytest.mark.parametrize("method", ["launched", "processed", "planned_nothing", "idle", "interrupted"])
def test_every_step_is_guarded(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure in any step of the accounting reaches nobody."""
    original = getattr(plugin.Cycles, method)
    armed = False

    def fail(*args: Any, **kwargs: Any) -> Any:
        if armed:
            raise RuntimeError("ours")
        return original(*args, **kwargs)

    monkeypatch.setattr(plugin.Cycles, method, fail)
    bench = Bench([decode()] * 3, overlap=True, requests={2: resume})
    bench.scheduler.process_input_requests([])
    armed = True
    bench.scheduler.event_loop_overlap()
    bench.scheduler.on_idle()
    assert len(bench.scheduler.processed) == 3
    assert bench.hooks.failures > 0


def test_after_a_failure_the_next_batch_is_after_a_break() -> None:
    """What a failure may have spoilt is not measured."""
    bench = Bench()
    for batch in (decode(), decode(), broken_batch(ValueError()), decode(), decode()):
        bench.scheduler.process_batch_result(batch, bench.scheduler.run_batch(batch))
    assert [record.kind for record in bench.results] == [
        plugin.FLAGGED,
        plugin.CYCLE,
        plugin.FLAGGED,
        plugin.CYCLE,
    ]


def test_switched_off_after_sixteen_failures_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    """After 16 failures in a row the hooks only call through; the ring says so, and the log, in two lines."""
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            bench.scheduler.run_batch(broken_batch(ValueError("ours")))
    assert bench.hooks.failures == plugin.FAILURES_MAX
    assert bench.hooks.cycles is None
    assert bench.ring.counters[-1]["disabled"] == plugin.DISABLED_BY_FAILURES
    assert bench.ring.counters[-1]["failures"] == plugin.FAILURES_MAX
    assert bench.ring.closed
    assert len(caplog.records) == 2
    assert not any(isinstance(callback, plugin.GarbagePauses) for callback in gc.callbacks)


def test_switched_off_in_the_middle_of_a_call(caplog: pytest.LogCaptureFixture) -> None:
    """A call that began before the end finds the ring closed, and SGLang does not notice."""

    class Reentrant(Scheduler):
        def process_input_requests(self, requests: list[Any]) -> None:
            for _ in range(40):
                self.run_batch(broken_batch(ValueError("ours")))

    bench = Bench([decode()] * 3, kind=Reentrant)
    with caplog.at_level(logging.WARNING):
        bench.scheduler.event_loop_normal()
    assert len(bench.scheduler.processed) == 3
    assert bench.hooks.failures == plugin.FAILURES_MAX
    assert len(caplog.records) == 2


def test_a_record_between_failures_ends_the_row() -> None:
    """Failures now and then do not switch the plugin off."""
    bench = Bench()
    for index in range(300):
        batch = broken_batch(ValueError()) if index % 3 == 0 else decode()
        bench.scheduler.process_batch_result(batch, bench.scheduler.run_batch(batch))
    assert bench.hooks.failures == 100
    assert bench.hooks.disabled == plugin.RUNNING


def test_a_failure_in_every_cycle_is_a_row_although_records_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails each time switches the plugin off even if the others work."""

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(plugin.Cycles, "planned_nothing", fail)
    bench = Bench([decode(), None] * 50)
    bench.scheduler.event_loop_normal()
    assert bench.hooks.disabled == plugin.DISABLED_BY_FAILURES


def test_ring_that_cannot_be_written() -> None:
    """A full tmpfs is counted, and after 16 records the plugin gives up on the ring."""

    class FullRing(MemoryRing):
        def put(self, sequence: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    bench = Bench([decode()] * 40, overlap=True)
    bench.ring = FullRing()
    bench.scheduler.event_loop_overlap()
    assert bench.hooks.disabled == plugin.DISABLED_BY_RING
    assert len(bench.scheduler.processed) == 40


# The ring's beginning and end


def opening(open_ring: Callable[[Any], Any]) -> tuple[plugin.Hooks, Scheduler, Clock]:
    clock = Clock()
    hooks = plugin.Hooks(open_ring, clock, clock)
    return hooks, hook(type("Scheduler", (Scheduler,), {}), hooks)(clock, [decode()] * 1000), clock


def test_ring_is_made_at_the_first_call() -> None:
    """Before the loop turns there is no ring."""
    made: list[Any] = []

    def make(scheduler: Any) -> MemoryRing:
        made.append(scheduler)
        return MemoryRing()

    _, scheduler, _ = opening(make)
    assert made == []
    scheduler.event_loop_normal()
    assert made == [scheduler]


def test_missing_directory_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A directory that is not there yet is looked for after ten seconds, then ever more rarely; complained of once."""
    attempts: list[int] = []

    def make(_: Any) -> MemoryRing:
        attempts.append(clock())
        if len(attempts) < 9:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return MemoryRing()

    hooks, scheduler, clock = opening(make)
    with caplog.at_level(logging.WARNING):
        for _ in range(2000):
            clock.spend(10**9)
            scheduler.process_input_requests([])
    waits_s = [round((later - earlier) / 1e9) for earlier, later in pairwise(attempts)]
    assert waits_s == [10, 20, 40, 80, 160, 320, 320, 320]
    assert hooks.cycles is not None
    assert len(caplog.records) == 1
    assert hooks.failures == 0


def test_directory_on_a_disk_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Where a ring may not be made, that is said once, and the hooks only call through."""

    def make(_: Any) -> Any:
        raise ValueError("on ext4")

    hooks, scheduler, clock = opening(make)
    with caplog.at_level(logging.WARNING):
        scheduler.event_loop_normal()
        clock.spend(10**12)
        scheduler.process_input_requests([])
    assert hooks.disabled == plugin.DISABLED_BY_RING
    assert [record.getMessage() for record in caplog.records] == [
        "cyclewatch: cycles are not measured, there is no ring: on ext4"
    ]


def test_unforeseen_failure_at_the_start_switches_off() -> None:
    """Anything else that goes wrong while the ring is made happens once."""
    attempts: list[Any] = []

    def make(scheduler: Any) -> Any:
        attempts.append(scheduler)
        raise SystemExit("ours")

    hooks, scheduler, _ = opening(make)
    scheduler.event_loop_normal()
    assert len(attempts) == 1
    assert hooks.disabled == plugin.DISABLED_BY_FAILURES


def test_heartbeat_once_a_second() -> None:
    """The counters are written at once and then about once a second, busy or idle."""
    for script in ([decode()] * 1000, [None] * 20_000):
        bench = Bench(script, overlap=True)
        bench.scheduler.event_loop_overlap()
        beats = [counters["heartbeat_ns"] for counters in bench.ring.counters]
        seconds = (bench.clock() - 10**12) / 1e9
        assert 0.9 * seconds < len(beats) <= seconds + 1
        assert all(later - earlier >= 10**9 for earlier, later in pairwise(beats))


def test_fork_drops_the_ring() -> None:
    """A child gives up the ring of its parent, and makes its own if its own loop turns."""
    rings: list[MemoryRing] = []

    def make(_: Any) -> MemoryRing:
        rings.append(MemoryRing())
        return rings[-1]

    hooks, scheduler, _ = opening(make)
    scheduler.event_loop_normal()
    written = len(rings[0].records)
    hooks.after_fork()
    assert rings[0].closed
    assert not any(isinstance(callback, plugin.GarbagePauses) for callback in gc.callbacks)
    scheduler.process_batch_result(BATCH, scheduler.run_batch(BATCH))
    assert len(rings) == 2
    assert (len(rings[0].records), len(rings[1].records)) == (written, 1)


def test_fork_inside_a_call() -> None:
    """A child that was forked while SGLang handled input, and whose own loop turns there, measures it."""

    class Forking(Scheduler):
        child = False

        def process_input_requests(self, requests: list[Any]) -> None:
            if not self.child:
                self.child = True
                bench.hooks.after_fork()
                self.event_loop_normal()

    bench = Bench([decode()] * 3, kind=Forking)
    bench.scheduler.process_input_requests([])
    assert [record.kind for record in bench.results] == [plugin.FLAGGED, plugin.CYCLE, plugin.CYCLE]
    assert len(bench.ring.counters) == 1  # the sign of life of the child's own loop
    bench.hooks.after_fork()


def test_missing_functions_do_not_matter() -> None:
    """A version with few of the functions is measured by those."""
    ring: Any = MemoryRing()
    hooks = plugin.Hooks(lambda _: ring)
    poor = type("Poor", (Scheduler,), {})
    for name in ("run_batch", "process_batch_result"):
        setattr(poor, name, plugin.around(getattr(poor, name), getattr(hooks, name)))
    scheduler = poor(Clock(), [decode()] * 4, device="cpu")
    scheduler.event_loop_normal()
    assert len(ring.records) == 4
    hooks.after_fork()


def test_plan_of_0_5_4_is_the_batch() -> None:
    """Older versions give the batch itself, or None."""

    class Old(Scheduler):
        plan_type = staticmethod(lambda batch: batch)

    bench = Bench([None, decode(), decode(), None, None, decode()], kind=Old, overlap=True)
    bench.scheduler.event_loop_overlap()
    assert [record.kind for record in bench.results] == [plugin.FLAGGED, plugin.CYCLE, plugin.FLAGGED]


def test_fork_in_earnest() -> None:
    """The child of a real fork does not write into the parent's ring."""
    bench = Bench([decode()] * 3, overlap=True)
    os.register_at_fork(after_in_child=bench.hooks.after_fork)
    bench.scheduler.event_loop_overlap()
    pid = os.fork()
    if not pid:
        os._exit(0 if bench.hooks.cycles is None and bench.ring.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bench.hooks.cycles is not None
