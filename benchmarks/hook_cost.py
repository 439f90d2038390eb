"""What the plugin costs a scheduler cycle, beside what else one might put there.

    python benchmarks/hook_cost.py [--rounds 20000] [--json]

A cycle here is four functions that do nothing, called as SGLang's loop calls them: input, plan, launch, result. The
contestants are called in turn, one cycle each, every cycle timed by itself, so that whatever else the machine does
hits all of them. The peers do what one would write into the loop by hand: observe histograms, end a span, publish a
message as SGLang's forward-pass metrics do.
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
from types import SimpleNamespace
from typing import Any

import cyclewatch_sglang as plugin

WARM_UP_ROUNDS = 2000
FIELDS = len(plugin.PAYLOAD_FIELDS)
STAGES = ("cycle", "schedule", "input", "launch", "wait", "result", "rest")
LOOP = ("process_input_requests", "get_next_batch_to_run", "run_batch", "process_batch_result")
AIM_MEDIAN_NS, AIM_P99_NS = 5_000, 20_000
CLOCK, PWRITE, WRAPPER = "read the clock", "  pwrite of 128 bytes", "AROUND wrapper alone, {}"
FLOOR_PARTS = "SGLang's wrappers, the clock and the system call, whatever a hook does besides"


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

    def synchronize(self) -> None:
        """Give back at once."""


class Scheduler:
    """Functions that do nothing, with the arguments and the results that SGLang's have."""

    enable_overlap = True

    def __init__(self, device: str) -> None:
        self.device = device
        self.waiting_queue: list[int] = []
        self.batch = SimpleNamespace(
            forward_mode=Mode.DECODE, reqs=[0] * 32, seq_lens_sum=65_536, extend_num_tokens=0, spec_algorithm=None
        )
        self.running_batch = self.batch
        self.plan = SimpleNamespace(batch_to_run=self.batch)
        self.result = SimpleNamespace(copy_done=Event(), can_run_cuda_graph=True)
        self.profiler_manager = SimpleNamespace(profile_in_progress=False)

    def process_input_requests(self, requests: list[Any]) -> None:
        """Handle input."""

    def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
        """Plan."""
        return self.plan

    def run_batch(self, batch: Any) -> Any:
        """Launch."""
        return self.result

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Wait for the device and handle the result."""
        result.copy_done.synchronize()

    def cycle(self) -> None:
        """One turn of the loop."""
        self.process_input_requests([])
        batch = self.get_next_batch_to_run(running_batch=None, last_batch=None).batch_to_run
        self.process_batch_result(batch, self.run_batch(batch))


def registry_wrap(original: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    """What SGLang's HookRegistry makes of an AROUND hook."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    return wrapper


def hooked(directory: Path, device: str, wrap: Callable[[Callable[..., Any], Any], Callable[..., Any]]) -> Scheduler:
    """A scheduler with the plugin's hooks, writing a ring of its own."""
    kind = type("Scheduler", (Scheduler,), {})
    number = len(list(directory.iterdir()))
    hooks = plugin.Hooks(lambda scheduler: plugin.RingWriter.create(directory, identity(scheduler, number)))
    for name in LOOP:
        setattr(kind, name, wrap(getattr(kind, name), getattr(hooks, name)))
    scheduler: Scheduler = kind(device)
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
    clock, thread_clock = time.monotonic_ns, time.thread_time_ns
    yield CLOCK, clock, "10 in a cycle on a GPU, 8 on a CPU"
    yield "read the thread's CPU clock", thread_clock, "2 in 8 cycles"
    scheduler = Scheduler("cuda")
    for name, arguments in (("run_batch", (None,)), ("get_next_batch_to_run", (None, None))):
        call = registry_wrap(getattr(Scheduler, name), lambda original, *args, **kwargs: original(*args, **kwargs))
        yield WRAPPER.format(name), functools.partial(call, scheduler, *arguments), "4 in a cycle"
    number = 10**12
    record = (number, *[number // 10**6] * 7, -1, 1, 2, 2, 0, 2, 32, 0, 65_536, 0, 32, 0)
    ring = plugin.RingWriter.create(directory, identity(scheduler, 10**6))
    yield "RingWriter.write", functools.partial(ring.write, *record), "1 in a cycle; of it:"
    packed = struct.Struct("<Q" + plugin.PAYLOAD.format[1:] + "Q")
    buffer, fd = bytearray(plugin.RECORD_BYTES), os.open(ring.path, os.O_RDWR)
    fields = (1, *record[:14], 0, *record[14:], 1)
    yield "  pack 23 numbers", functools.partial(packed.pack_into, buffer, 0, *fields), ""
    yield "  CRC-32 of 124 bytes", functools.partial(zlib.crc32, memoryview(buffer)[:124]), ""
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
            ("plain", Scheduler("cuda"), "the four functions without hooks: in the rows below it is taken off"),
            ("hooks on a GPU, through HookRegistry", hooked(directory, "cuda", registry_wrap), "0.5.23"),
            ("hooks on a GPU, patched directly", hooked(directory, "cuda", plugin.around), "0.5.4"),
            ("hooks on a CPU, through HookRegistry", hooked(directory, "cpu", registry_wrap), "nothing to wait for"),
            ("hooks on a CPU, patched directly", hooked(directory, "cpu", plugin.around), ""),
            ("hooks switched off", switched_off(), "after 16 failures of their own"),
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
    timer, plain = results["timer"][0], results["plain"][0]
    rows = []
    for group, name, call, note in entries:
        if group == "timer":
            continue
        base = timer if group != "cycle" or name == "plain" else plain
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
    yield f"\n{floor(rows) / 1000:.2f} µs of it on a GPU are {FLOOR_PARTS}"
    aim = next(row for row in rows if row.name == "hooks on a GPU, through HookRegistry")
    verdict = "met" if aim.median_ns <= AIM_MEDIAN_NS and aim.p99_ns <= AIM_P99_NS else "not met"
    yield f"the aim, a median of {AIM_MEDIAN_NS // 1000} µs and a p99 of {AIM_P99_NS // 1000} µs, is {verdict}"


def floor(rows: list[Row]) -> int:
    """What the hooks cannot do without: the registry's wrappers, the clock and the system call, in nanoseconds."""
    median = {row.name: row.median_ns for row in rows}
    wrappers = 3 * median[WRAPPER.format("run_batch")] + median[WRAPPER.format("get_next_batch_to_run")]
    return wrappers + 10 * median[CLOCK] + median[PWRITE]


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
