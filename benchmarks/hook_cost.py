"""What the plugin costs a scheduler cycle, beside what else one might put there.

    python benchmarks/hook_cost.py [--rounds 20000] [--json]

A cycle here is four functions that do nothing, called as SGLang 0.5.23's overlap loop calls them: input, plan, launch
of one batch, result of the batch before. As there, every plan, result and event is a new object. The contestants are
called in turn, one cycle each, every cycle timed by itself, so that whatever else the machine does hits all of them,
and each finds in the caches what the others left, as in a server: by themselves the hooks take half a microsecond less.
The peers do what one would write into the loop by hand: observe histograms, end a span, publish a message as SGLang's
forward-pass metrics do.

Most of a hook is bytecode, so the interpreter counts: beside a plain build of Python 3.11 (pyenv's) Debian's takes an
eighth less.
"""
# ruff: noqa: ANN401, ARG002 (stand-ins for SGLang's objects take and give anything)

import argparse
import functools
import importlib
import importlib.metadata
import json
import os
import platform
import struct
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import cyclewatch_sglang as plugin

WARM_UP_ROUNDS = 2000
FIELDS = len(plugin.PAYLOAD_FIELDS)
STAGES = ("cycle", "schedule", "input", "launch", "wait", "result", "rest")
LOOP = ("process_input_requests", "get_next_batch_to_run", "run_batch", "process_batch_result")
AIM_MEDIAN_NS, AIM_P99_NS = 5_000, 20_000
PLAIN, OLD_PLAIN = "plain", "plain, 0.5.4"
HOOKED = "hooks on a GPU, through HookRegistry"
CALLED = "hooks that only call on, through HookRegistry"
CLOCK = "read the clock 10 times"
PACK, CRC, PWRITE = "  pack 23 numbers", "  CRC-32 of 124 bytes", "  pwrite of 128 bytes"


@dataclass(frozen=True)
class Row:
    """One contestant: nanoseconds of one cycle, or of one part of it."""

    group: str
    name: str
    median_ns: int
    p99_ns: int
    note: str = ""


class Mode(IntEnum):
    """As SGLang's forward mode."""

    DECODE = 2


class Event:
    """An event that never waits."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def synchronize(self) -> None:
        """Give back at once."""


@dataclass
class Batch:
    """As far as the hooks look at it."""

    reqs: list[int]
    forward_mode: Mode = Mode.DECODE
    spec_algorithm: None = None
    seq_lens_sum: int = 65_536
    extend_num_tokens: int = 0


@dataclass
class Plan:
    """What is to run next."""

    batch_to_run: Batch
    running_batch: Batch


@dataclass
class Result:
    """What a launch gives."""

    copy_done: Event
    can_run_cuda_graph: bool = True


class Profiler:
    """SGLang's profiler, which does not run."""

    profile_in_progress = False


class Scheduler:
    """Functions that do nothing, with the arguments and the results that SGLang's have."""

    enable_overlap = True

    def __init__(self, device: str) -> None:
        self.device = device
        self.waiting_queue: list[int] = []
        self.batch = self.running_batch = Batch([0] * 32)
        self.profiler_manager = Profiler()
        self.before = self.batch, Result(Event())

    def process_input_requests(self, requests: list[Any]) -> None:
        """Handle input."""

    def get_next_batch_to_run(self, running_batch: Batch, last_batch: Any) -> Plan:
        """Plan."""
        return Plan(self.batch, running_batch)

    def run_batch(self, batch: Batch) -> Result:
        """Launch."""
        return Result(Event())

    def process_batch_result(self, batch: Batch, result: Result) -> None:
        """Wait for the device and handle the result."""
        result.copy_done.synchronize()

    def cycle(self) -> None:
        """One turn of the loop."""
        self.process_input_requests([])
        batch = self.get_next_batch_to_run(running_batch=self.running_batch, last_batch=None).batch_to_run
        launched = batch, self.run_batch(batch)
        self.process_batch_result(*self.before)
        self.before = launched


class OldScheduler(Scheduler):
    """As SGLang 0.5.4, which plans without arguments, and gives the batch itself."""

    def get_next_batch_to_run(self) -> Batch:  # type: ignore[override]
        """Plan."""
        return self.batch

    def cycle(self) -> None:
        """One turn of the loop."""
        self.process_input_requests([])
        batch = self.get_next_batch_to_run()
        launched = batch, self.run_batch(batch)
        self.process_batch_result(*self.before)
        self.before = launched


def registry_wrap(original: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    """What SGLang's HookRegistry makes of an AROUND hook."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    return wrapper


def hooked(directory: Path, device: str, *, registry: bool) -> Scheduler:
    """A scheduler with the plugin's hooks, writing a ring of its own; without the registry it is an old one."""
    kind = type("Scheduler", (Scheduler if registry else OldScheduler,), {})
    wrap = registry_wrap if registry else plugin.around
    number = len(list(directory.iterdir()))
    hooks = plugin.Hooks(lambda scheduler: plugin.RingWriter.create(directory, identity(scheduler, number)))
    for name in LOOP:
        setattr(kind, name, wrap(getattr(kind, name), getattr(hooks, name)))
    scheduler: Scheduler = kind(device)
    return scheduler


def called_on() -> Scheduler:
    """A scheduler whose hooks do the least that there is to do: call SGLang's function with its arguments."""
    kind = type("Scheduler", (Scheduler,), {})
    hooks: tuple[Callable[..., Any], ...] = (
        lambda original, scheduler, requests: original(scheduler, requests),
        lambda original, scheduler, *, running_batch, last_batch: original(
            scheduler, running_batch=running_batch, last_batch=last_batch
        ),
        lambda original, scheduler, batch: original(scheduler, batch),
        lambda original, scheduler, batch, result: original(scheduler, batch, result),
    )
    for name, hook in zip(LOOP, hooks, strict=True):
        setattr(kind, name, registry_wrap(getattr(kind, name), hook))
    scheduler: Scheduler = kind("cuda")
    return scheduler


def identity(scheduler: Any, number: int) -> dict[str, Any]:
    """An identity with a name of its own for each ring of this process."""
    return {**plugin.identity(scheduler), "start_ticks": number}


def switched_off() -> Scheduler:
    """A scheduler whose hooks have given up."""
    kind = type("Scheduler", (Scheduler,), {})
    hooks = plugin.Hooks(lambda _: plugin.RingWriter.create("/proc", {}))
    hooks.disabled = plugin.DISABLED_BY_FAILURES
    for name in LOOP:
        setattr(kind, name, registry_wrap(getattr(kind, name), getattr(hooks, name)))
    scheduler: Scheduler = kind("cuda")
    return scheduler


def parts(directory: Path) -> Iterator[tuple[str, Callable[[], object], str]]:
    """The parts of the hooks, each by itself."""
    clock, scheduler = time.monotonic_ns, Scheduler("cuda")

    def read() -> None:
        clock(), clock(), clock(), clock(), clock(), clock(), clock(), clock(), clock(), clock()

    yield CLOCK, read, "as in a cycle on a GPU; on a CPU 8 times"
    yield "read the thread's CPU clock", time.thread_time_ns, "2 in 8 cycles"
    number = 10**12
    record = (number, *[number // 10**6] * 7, -1, 1, 2, 2, 0, 2, 32, 0, 65_536, 0, 32, 0)
    ring = plugin.RingWriter.create(directory, identity(scheduler, 10**6))
    yield "RingWriter.write", functools.partial(ring.write, *record), "1 in a cycle; of it:"
    packed = struct.Struct("<Q" + plugin.PAYLOAD.format[1:] + "Q")
    buffer, fd = bytearray(plugin.RECORD_BYTES), os.open(ring.path, os.O_RDWR)
    fields = (1, *record[:14], 0, *record[14:], 1)
    yield PACK, functools.partial(packed.pack_into, buffer, 0, *fields), ""
    yield CRC, functools.partial(zlib.crc32, memoryview(buffer)[:124]), ""
    yield PWRITE, functools.partial(os.pwrite, fd, buffer, plugin.HEADER_BYTES), ""
    yield "RingWriter.write_counters", functools.partial(ring.write_counters, heartbeat_ns=number), "once a second"
    yield "for comparison: the least system call", os.getppid, ""


# What a Python engineer would use. Each gives a function that reports one cycle, or raises ImportError.


def prometheus(observations: int) -> Callable[[], object]:
    """Observe histograms, their labels bound before."""
    client = importlib.import_module("prometheus_client")
    histogram = client.Histogram(
        "cycle_stage_seconds", "Time in a stage", ["stage", "phase"], registry=client.CollectorRegistry()
    )
    observers = [histogram.labels(stage, "decode").observe for stage in STAGES[:observations]]

    def report() -> None:
        for observe in observers:
            observe(0.0123)

    return report


def opentelemetry() -> Callable[[], object]:
    """End a span with the record's fields as attributes; the exporter throws it away."""
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")

    class Drop(export.SpanExporter):  # type: ignore[misc, name-defined]
        """Exports nothing."""

        def export(self, spans: Any) -> Any:
            del spans
            return export.SpanExportResult.SUCCESS

    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(Drop()))
    tracer = provider.get_tracer("hook_cost")
    attributes = dict.fromkeys(plugin.PAYLOAD_FIELDS, 12_345)

    def report() -> None:
        tracer.start_span("cycle", attributes=attributes).end()

    return report


def zmq_publish(stack: ExitStack, directory: Path) -> Callable[[], object]:
    """Publish the record as SGLang's forward-pass metrics are: a msgpack array over ZMQ, here to one subscriber."""
    encoder = importlib.import_module("msgspec.msgpack").Encoder()
    zmq = importlib.import_module("zmq")
    context = stack.enter_context(zmq.Context())
    address = f"ipc://{directory}/metrics"
    publisher, subscriber = (stack.enter_context(context.socket(kind)) for kind in (zmq.PUB, zmq.SUB))
    for socket in (publisher, subscriber):
        socket.linger = 0
    publisher.bind(address)
    subscriber.subscribe(b"")
    subscriber.connect(address)
    time.sleep(0.2)  # until the subscription has arrived
    record, sequence = [12_345] * FIELDS, 0

    def report() -> None:
        nonlocal sequence
        sequence += 1
        publisher.send_multipart((b"", sequence.to_bytes(8, "big"), encoder.encode(record)), zmq.NOBLOCK)

    return report


def peers(stack: ExitStack, directory: Path) -> Iterator[tuple[str, Callable[[], object] | None, str]]:
    """Each peer's report of one cycle, None where it is not installed."""
    makers: list[tuple[str, str, Callable[[], Callable[[], object]]]] = [
        ("prometheus_client, 1 observation", "prometheus-client", functools.partial(prometheus, 1)),
        ("prometheus_client, 7 observations", "prometheus-client", functools.partial(prometheus, len(STAGES))),
        ("OpenTelemetry span, simple processor", "opentelemetry-sdk", opentelemetry),
        ("msgspec and ZMQ PUB", "pyzmq", functools.partial(zmq_publish, stack, directory)),
    ]
    for name, distribution, make in makers:
        try:
            yield name, make(), f"{distribution} {importlib.metadata.version(distribution)}"
        except ImportError:
            yield name, None, f"{distribution} is not installed"


def measure(contestants: list[Callable[[], object]], rounds: int) -> list[tuple[int, int]]:
    """Median and 99th percentile of each, in nanoseconds, the timer's own time included."""
    clock = time.perf_counter_ns
    samples = [array("q") for _ in contestants]
    pairs = list(zip(contestants, samples, strict=True))
    for round_number in range(WARM_UP_ROUNDS + rounds):
        for contestant, sample in pairs:
            start = clock()
            contestant()
            spent = clock() - start
            if round_number >= WARM_UP_ROUNDS:
                sample.append(spent)
    ordered = [sorted(sample) for sample in samples]
    return [(values[rounds // 2], values[rounds * 99 // 100]) for values in ordered]


def run(rounds: int) -> list[Row]:
    """Measure everything; raises OSError or ValueError where no ring can be made."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cyclewatch-bench-", dir="/dev/shm")))
        loops = [
            (PLAIN, Scheduler("cuda"), "the four functions without hooks: in the rows below it is taken off"),
            (HOOKED, hooked(directory, "cuda", registry=True), "0.5.23"),
            ("hooks on a CPU, through HookRegistry", hooked(directory, "cpu", registry=True), "nothing to wait for"),
            (CALLED, called_on(), "the least a hook can do"),
            ("hooks switched off", switched_off(), "after 16 failures of their own"),
            (OLD_PLAIN, OldScheduler("cuda"), "as SGLang 0.5.4 calls them: in the rows below it is taken off"),
            ("hooks on a GPU, patched directly", hooked(directory, "cuda", registry=False), "0.5.4"),
            ("hooks on a CPU, patched directly", hooked(directory, "cpu", registry=False), ""),
        ]
        nothing: Callable[[], object] = lambda: None  # noqa: E731
        entries: list[tuple[str, str, Callable[[], object] | None, str]] = [
            ("timer", "timer", nothing, ""),
            *(("cycle", name, scheduler.cycle, note) for name, scheduler, note in loops),
            *(("part", *part) for part in parts(directory)),
            *(("peer", *peer) for peer in peers(stack, directory)),
        ]
        installed = [entry for entry in entries if entry[2] is not None]
        results = dict(
            zip(
                (entry[1] for entry in installed),
                measure([call for _, _, call, _ in entries if call is not None], rounds),
                strict=True,
            )
        )
    timer = plain = results["timer"][0]
    rows = []
    for group, name, call, note in entries:
        if group == "timer":
            continue
        base = timer if group != "cycle" or name in (PLAIN, OLD_PLAIN) else plain
        if name in (PLAIN, OLD_PLAIN):
            plain = results[name][0]
        median, p99 = (max(0, ns - base) for ns in results[name]) if call is not None else (-1, -1)
        rows.append(Row(group, name, median, p99, note))
    return rows


def table(rows: list[Row], rounds: int) -> Iterator[str]:
    """The rows as text."""
    titles = {
        "cycle": "all hooks of one cycle",
        "part": "what the parts take",
        "peer": "what else would report a cycle (the report alone, without hooks and clock reads)",
    }
    yield f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, {rounds} cycles each"
    for group, title in titles.items():
        yield f"\n{title:<52}{'median':>12}{'p99':>12}"
        for row in (row for row in rows if row.group == group):
            times = (f"{ns / 1000:9.2f} µs" if ns >= 0 else "-" for ns in (row.median_ns, row.p99_ns))
            yield f"  {row.name:<50}" + "".join(f"{text:>12}" for text in times) + f"   {row.note}".rstrip()
    aim = next(row for row in rows if row.name == HOOKED)
    yield f"\nwhat {aim.name} are made of"
    for name, ns in remains(rows):
        yield f"  {name:<54}{ns / 1000:8.2f} µs {ns / aim.median_ns:6.0%}"
    verdict = "met" if aim.median_ns <= AIM_MEDIAN_NS and aim.p99_ns <= AIM_P99_NS else "not met"
    yield f"\nthe aim, a median of {AIM_MEDIAN_NS // 1000} µs and a p99 of {AIM_P99_NS // 1000} µs, is {verdict}"


def remains(rows: list[Row]) -> Iterator[tuple[str, int]]:
    """The median of a cycle's hooks by part: what they cannot do without, and what is left for their own bytecode."""
    median = {row.name: row.median_ns for row in rows}
    needed = (
        ("SGLang's wrappers, and hooks that only call on", median[CALLED]),
        ("reading the clock", median[CLOCK]),
        ("packing the record, and its checksum", median[PACK] + median[CRC]),
        ("the system call that writes it", median[PWRITE]),
    )
    yield from needed
    yield "bytecode of the hooks and the accounting, caches cold", median[HOOKED] - sum(ns for _, ns in needed)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20_000, help="cycles of each contestant (default: 20000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = run(options.rounds)
    if options.json:
        print(json.dumps({"python": sys.version, "rounds": options.rounds, "rows": [asdict(row) for row in rows]}))
    else:
        print("\n".join(table(rows, options.rounds)))


if __name__ == "__main__":
    main()
