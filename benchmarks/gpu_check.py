"""Reading real GPUs: are the values right, which calls are slow, and does the reading slow a load down?

    python benchmarks/gpu_check.py [--torch PYTHON] [--seconds 600] [--record FILE] [--json FILE]

A load multiplies matrices on GPU 0 without a pause, in the Python that is named by --torch. Beside it the collector
reads all GPUs at its default intervals, on and off in blocks of 30 s, until it has been on for so many seconds; then,
with the load still running, its readings are held against those of nvidia-smi. Aims: the load's throughput within
0.5 % with the reading on and off; all readings agree. --record keeps what NVML answered, for the tests.
"""

import argparse
import datetime as dt
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from gpu_load import AIM_RATIO, Effect, effect, load, throughput

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.collector import GpuCollector
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.gpu.pynvml_door import PynvmlDoor
from cyclewatch.collectors.gpu.recorder import RecordingDoor
from cyclewatch.collectors.records import Fact, Failure, NoData, Reading, Sample
from cyclewatch.config.settings import Gpu

BLOCK_S = 30.0
CHECKS = 4
SETTLE_S = 10.0


@dataclass(frozen=True)
class Compared:
    """One value of nvidia-smi and the reading that should agree: within `absolute`, or `relative` of the value."""

    field: str
    reading: str
    scale: float
    absolute: float
    relative: float = 0.0


COMPARED = (
    Compared("clocks.sm", "gpu.sm_clock_hertz", 1e6, 60e6, 0.05),
    Compared("clocks.mem", "gpu.memory_clock_hertz", 1e6, 1e6),
    Compared("clocks.max.sm", "gpu.sm_clock_max_hertz", 1e6, 0),
    Compared("power.draw", "gpu.power_watts", 1, 10, 0.1),
    Compared("enforced.power.limit", "gpu.power_limit_watts", 1, 0.5),
    Compared("temperature.gpu", "gpu.temperature_celsius", 1, 3),
    Compared("temperature.memory", "gpu.memory_temperature_celsius", 1, 3),
    Compared("memory.total", "gpu.memory_total_bytes", 2**20, 2**20),
    Compared("memory.used", "gpu.memory_used_bytes", 2**20, 64 * 2**20, 0.01),
    Compared("utilization.gpu", "gpu.utilization_ratio", 0.01, 0.1),
    Compared("pcie.link.gen.current", "gpu.pcie_generation", 1, 0),
    Compared("pcie.link.width.current", "gpu.pcie_width", 1, 0),
)


class TimingDoor:
    """Times every call of another door."""

    def __init__(self, door: NvmlDoor) -> None:
        self._door = door
        self.took_us: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._door, name)

        def timed(*arguments: object) -> object:
            began_ns = time.perf_counter_ns()
            try:
                return call(*arguments)
            finally:
                query = arguments[1] if name in {"number", "text"} else name
                self.took_us.setdefault(str(query), []).append((time.perf_counter_ns() - began_ns) / 1e3)

        return timed

    def slowest(self) -> list[tuple[str, int, float, float]]:
        """Calls with their count, median and maximum in microseconds, those that took most at once first."""
        waits = {"event_wait"}
        rows = [
            (name, len(took), statistics.median(took), max(took))
            for name, took in self.took_us.items()
            if name not in waits
        ]
        return sorted(rows, key=lambda row: -row[3])


def read(collector: GpuCollector, seconds: float) -> list[Sample]:
    """Collect at the collector's interval for so long."""
    samples: list[Sample] = []
    began_s = time.monotonic()
    turn = 0
    while time.monotonic() - began_s < seconds:
        samples += collector.collect(Now(time.monotonic_ns(), time.time_ns()))
        turn += 1
        time.sleep(max(0.0, began_s + turn * collector.interval_s - time.monotonic()))
    return samples


def values(samples: Sequence[Sample], gpu: str) -> dict[str, list[float]]:
    """Readings of one whole GPU by name; of the power limits the one that holds."""
    found: dict[str, list[float]] = {}
    for sample in samples:
        if not isinstance(sample, Reading):
            continue
        labels = dict(sample.labels)
        if labels.get("gpu") == gpu and "mig" not in labels and labels.get("limit", "enforced") == "enforced":
            found.setdefault(sample.name, []).append(sample.value)
    return found


def parse_smi(text: str) -> dict[str, dict[str, float]]:
    """What nvidia-smi prints for `index` and the compared fields, by GPU; "N/A" and the like are left out."""
    rows: dict[str, dict[str, float]] = {}
    for line in text.strip().splitlines():
        index, *cells = (cell.strip() for cell in line.split(","))
        rows[index] = {
            one.field: float(cell) * one.scale
            for one, cell in zip(COMPARED, cells, strict=True)
            if cell.replace(".", "", 1).isdigit()
        }
    return rows


def nvidia_smi() -> dict[str, dict[str, float]]:
    """Ask nvidia-smi for the compared fields."""
    query = ",".join(["index", *(one.field for one in COMPARED)])
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    return parse_smi(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@dataclass(frozen=True)
class Agreement:
    """A reading beside what nvidia-smi says: medians of both."""

    gpu: str
    reading: str
    ours: float | None
    theirs: float | None
    good: bool


def compare(samples: Sequence[Sample], smi: Sequence[Mapping[str, Mapping[str, float]]]) -> list[Agreement]:
    """Readings against several answers of nvidia-smi in the same time."""
    agreements = []
    for gpu in sorted({gpu for rows in smi for gpu in rows}):
        ours = values(samples, gpu)
        for one in COMPARED:
            said = [rows[gpu][one.field] for rows in smi if one.field in rows.get(gpu, {})]
            here, there = _median(ours.get(one.reading)), _median(said)
            # What neither tells is not supported, and that agrees too.
            good = here is there is None
            if here is not None and there is not None:
                good = abs(here - there) <= max(one.absolute, one.relative * abs(there))
            agreements.append(Agreement(gpu, one.reading, here, there, good))
    return agreements


def _median(numbers: Sequence[float] | None) -> float | None:
    return statistics.median(numbers) if numbers else None


def collector_on(door: NvmlDoor) -> GpuCollector:
    """The collector as in the daemon, without servers."""
    return GpuCollector(Gpu(), Discovery(()), Path("/proc"), door)


@dataclass(frozen=True)
class Result:
    """What the run found; `slowest` has calls with count, median and maximum in microseconds."""

    facts: dict[str, str]
    effect: Effect
    agreements: list[Agreement]
    slowest: list[tuple[str, int, float, float]]
    problems: list[str]

    @property
    def good(self) -> bool:
        """Whether all aims are met."""
        return self.effect.good and all(one.good for one in self.agreements)

    def __str__(self) -> str:
        change = self.effect
        lines = [
            ", ".join(f"{subject} {value}" for subject, value in self.facts.items() if "uuid" not in subject),
            "",
            (
                f"load with reading on over off: {change.change:+.3%}, {'within' if change.good else 'NOT within'} "
                f"{AIM_RATIO:.1%} (standard error {change.standard_error:.3%}, {change.pairs} pairs of {BLOCK_S:g} s)"
            ),
            "",
            f"{'GPU':4} {'reading':32} {'cyclewatch':>16} {'nvidia-smi':>16}",
        ]
        for one in self.agreements:
            both = (f"{number:16.6g}" if number is not None else f"{'-':>16}" for number in (one.ours, one.theirs))
            lines.append(f"{one.gpu:4} {one.reading:32} {' '.join(both)}  {'' if one.good else 'DIFFERS'}")
        lines += ["", f"{'slowest calls':24} {'count':>7} {'median':>10} {'longest':>10}"]
        lines += [
            f"{name:24} {count:7} {median_us:7.1f} us {longest_us:7.1f} us"
            for name, count, median_us, longest_us in self.slowest[:15]
        ]
        return "\n".join([*lines, *(f"problem: {problem}" for problem in self.problems)])


def check(python: str, seconds: float, record: Path | None) -> Result:
    """The whole run."""
    timing = TimingDoor(PynvmlDoor())
    door = cast("NvmlDoor", timing)  # it has whatever the other door has
    on: list[float] = []
    off: list[float] = []
    with tempfile.TemporaryDirectory(prefix="cyclewatch-gpu-") as directory, load(python, Path(directory)) as running:
        collector = collector_on(door)
        samples = read(collector, SETTLE_S)
        for pair in range(max(1, round(seconds / BLOCK_S))):
            for reading in (True, False) if pair % 2 else (False, True):
                began_s = time.monotonic()
                if reading:
                    samples += read(collector, BLOCK_S)
                else:
                    time.sleep(BLOCK_S)
                (on if reading else off).append(throughput(running.rates(), began_s, time.monotonic()))
        collector.close()
        facts = {one.subject: one.value for one in samples if isinstance(one, Fact)}
        recorder = RecordingDoor(door, provenance(facts))
        collector = collector_on(recorder)
        checked = read(collector, SETTLE_S)
        smi = []
        for _ in range(CHECKS):
            smi.append(nvidia_smi())
            checked += read(collector, SETTLE_S)
        collector.close()
    if record is not None:
        recorder.recording.save(record)
    problems = {one.reason for one in (*samples, *checked) if isinstance(one, Failure | NoData)}
    return Result(facts, effect(on, off), compare(checked, smi), timing.slowest(), sorted(problems))


def provenance(facts: Mapping[str, str]) -> dict[str, str]:
    """Where a recording comes from."""
    return {
        "chip": facts.get("gpu0.model", "unknown"),
        "driver": facts.get("driver", "unknown"),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "how": "recorded by benchmarks/gpu_check.py beside a load of matrix products",
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="a Python that has torch with CUDA")
    parser.add_argument("--seconds", type=float, default=600, help="seconds of reading; as many without (default: 600)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="where to keep what NVML answered")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the result")
    options = parser.parse_args()
    result = check(options.torch, options.seconds, options.record)
    print(result)
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=1))
    sys.exit(0 if result.good else 1)


if __name__ == "__main__":
    main()
