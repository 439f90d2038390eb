"""One GPU: what is read of it in the fast loop and in the slow one, and the facts of it."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cyclewatch.collectors.gpu import fields
from cyclewatch.collectors.gpu.calls import REFUSAL_NS, CallWatch, GpuCalls
from cyclewatch.collectors.gpu.counters import Counters
from cyclewatch.collectors.gpu.door import Answer, Code, Field, Handle, Number, NvmlDoor, Text
from cyclewatch.collectors.gpu.fields import FieldBatch
from cyclewatch.collectors.gpu.gpm import SAMPLE, GpmMeter
from cyclewatch.collectors.gpu.memory import memory_readings
from cyclewatch.collectors.gpu.mig import MigSlices
from cyclewatch.collectors.gpu.steady import REPEAT_NS
from cyclewatch.collectors.records import NODE, Fact, Reading

_MEGAHERTZ = 1e6
_CLOCK_MAX_HERTZ = 1e11
_DEGREES_MAX = 200
_LINKS_MAX = 72
_REASON_RATIO_MAX = 1.5
"""The driver brings its counters up to date in steps, so that a share may come out above one."""


@dataclass(frozen=True)
class _Simple:
    """A reading that is the number of one call times `scale`; more than `top` is nonsense."""

    query: Number
    reading: str
    top: float
    scale: float = 1.0


_CLOCKS = (
    _Simple(Number.SM_CLOCK, "gpu.sm_clock_hertz", _CLOCK_MAX_HERTZ, _MEGAHERTZ),
    _Simple(Number.MEMORY_CLOCK, "gpu.memory_clock_hertz", _CLOCK_MAX_HERTZ, _MEGAHERTZ),
)
_SLOW = (
    _Simple(Number.SM_CLOCK_MAX, "gpu.sm_clock_max_hertz", _CLOCK_MAX_HERTZ, _MEGAHERTZ),
    _Simple(Number.MEMORY_CLOCK_MAX, "gpu.memory_clock_max_hertz", _CLOCK_MAX_HERTZ, _MEGAHERTZ),
    _Simple(Number.PCIE_GENERATION, "gpu.pcie_generation", 100),
    _Simple(Number.PCIE_GENERATION_MAX, "gpu.pcie_generation_max", 100),
    _Simple(Number.PCIE_WIDTH, "gpu.pcie_width", 100),
    _Simple(Number.PCIE_WIDTH_MAX, "gpu.pcie_width_max", 100),
)
_LIMITS = {
    "current": Number.POWER_LIMIT,
    "default": Number.POWER_LIMIT_DEFAULT,
    "enforced": Number.POWER_LIMIT_ENFORCED,
}
_NAMES = {"model": Text.NAME, "uuid": Text.UUID, "vbios": Text.VBIOS}
_MODES = {"persistence": Number.PERSISTENCE_MODE, "ecc": Number.ECC_MODE, "mig": Number.MIG_MODE}


class Device:
    """One GPU of an open door. Its handle is valid until the door is closed."""

    def __init__(self, door: NvmlDoor, gpu: Handle, index: int, watch: CallWatch) -> None:
        self.index = index
        self.calls = GpuCalls(f"GPU {index}", watch)
        self.handle = gpu
        self._door = door
        self._labels = (("gpu", str(index)),)
        self._counters = Counters()
        self._fast_fields = FieldBatch("fields_fast", self.calls, self._read_fields, fields.FAST)
        self._slow_fields: FieldBatch | None = None
        self._links_refused_ns: int | None = None
        self._gpm: GpmMeter | None = None
        self._mig = MigSlices(door, gpu, f"GPU {index}", self.calls, watch)
        self._has_counters: bool | None = None
        self._reasons_seen: Counter[str] = Counter()
        self._reason_samples = 0

    def fast(self) -> Iterator[Reading]:
        """Clocks, power, and what GPM tells; event reasons are sampled for the slow loop.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        for simple in _CLOCKS:
            yield from self._simple(simple)
        self._sample_reasons()
        power = self._fast_fields.read().get(fields.POWER)
        if power is None:
            power = self._number(Number.POWER)
        yield from self._gauge("gpu.power_watts", power, fields.WATTS_MAX, 1e-3)
        if self._gpm is not None:
            yield from self._gpm.read(self._labels)
        yield from self._mig.fast(self._labels)

    def slow(self) -> Iterator[Reading]:
        """Event reasons, memory, temperatures, limits, errors, links.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        yield Reading(NODE, "gpu.answering", 1.0, self._labels)
        self._look_at_mode()
        for simple in _SLOW:
            yield from self._simple(simple)
        yield from memory_readings(self._door, self.handle, self.calls, self._labels)
        yield from self._mig.slow(self._labels)
        utilization = self.calls.ask("utilization", self._door.utilization, self.handle)
        if utilization is not None:
            yield from self._gauge("gpu.utilization_ratio", utilization.gpu, 1, 0.01)
            yield from self._gauge("gpu.memory_busy_ratio", utilization.memory, 1, 0.01)
        values = self._slow_values()
        read_ns = self.calls.clock()
        yield from self._reasons(values, read_ns)
        yield from self._from_fields(values, read_ns)
        yield from self._temperatures()
        for limit, query in _LIMITS.items():
            if f"limit/{limit}" not in values:
                yield from self._gauge(
                    "gpu.power_limit_watts", self._number(query), fields.WATTS_MAX, 1e-3, (("limit", limit),)
                )

    def facts(self) -> Iterator[Fact]:
        """What the GPU is and how it is set up; what it does not tell is left out.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        prefix = f"gpu{self.index}"
        for subject, text in _NAMES.items():
            words = self.calls.ask(text, self._door.text, self.handle, text)
            if words:
                yield Fact(NODE, f"{prefix}.{subject}", words)
        for subject, query in _MODES.items():
            mode = self._number(query)
            if mode in {0, 1}:
                yield Fact(NODE, f"{prefix}.{subject}", "on" if mode else "off")
        limit = self._number(Number.POWER_LIMIT)
        if limit is not None and 0 <= limit <= fields.WATTS_MAX * 1e3:
            yield Fact(NODE, f"{prefix}.power_limit_w", f"{limit / 1e3:g}")

    def take_problems(self) -> list[str]:
        """One sentence for each call that failed since the last time."""
        return self.calls.take_problems() + self._mig.take_problems()

    def close(self) -> None:
        """Give back what is held; the handle stays the door's."""
        self._mig.close()
        if self._gpm is not None:
            self._gpm.close()

    def _look_at_mode(self) -> None:
        """MIG on or off decides whether the GPU as a whole has counters, or its slices; no answer changes nothing."""
        mode = self._number(Number.MIG_MODE)
        if mode == 1:
            self._mig.refresh()
        elif mode == 0 or self.calls.capabilities.refused(Number.MIG_MODE):
            self._mig.close()
        if self._has_counters is None:
            self._has_counters = self.calls.ask("gpm_supported", self._door.gpm_supported, self.handle)
            if self._has_counters:
                self._gpm = GpmMeter(self._door, self.handle, None, self.calls)

    def _has_gpm(self) -> bool:
        return self._gpm is not None and not self.calls.capabilities.refused(SAMPLE)

    def _slow_values(self) -> dict[str, float]:
        """Those of the fields; how many NVLinks have some is asked once, and an hour after it was refused."""
        refused_ns = self._links_refused_ns
        if self._slow_fields is None or (refused_ns is not None and self.calls.clock() - refused_ns >= REFUSAL_NS):
            links = self._links()
            if links is not None:
                self._slow_fields = FieldBatch("fields_slow", self.calls, self._read_fields, fields.slow(links))
            self._links_refused_ns = self.calls.clock() if self.calls.capabilities.refused("link_count") else None
        return {} if self._slow_fields is None else self._slow_fields.read()

    def _links(self) -> int | None:
        """How many NVLinks there are, 0 where that is refused; None where it may be told another time."""
        answers = self.calls.ask("link_count", self._read_fields, [fields.LINK_COUNT])
        if not answers:
            return 0 if self.calls.capabilities.refused("link_count") else None
        value, code = answers[0]
        if code != Code.SUCCESS:
            return 0 if self.calls.failed("link_count", code) else None
        return int(value) if 0 <= value <= _LINKS_MAX else 0

    def _sample_reasons(self) -> None:
        bits = self.calls.first(
            (Number.EVENT_REASONS, self._door.number, self.handle, Number.EVENT_REASONS),
            (Number.THROTTLE_REASONS, self._door.number, self.handle, Number.THROTTLE_REASONS),
        )
        if bits is not None and bits >= 0:
            self._reasons_seen.update(reason for reason, bit in fields.REASON_BITS.items() if bits & bit)
            self._reason_samples += 1

    def _reasons(self, values: dict[str, float], at_ns: int) -> Iterator[Reading]:
        """Shares of the time since the last call: from the counters of time, else the share of the samples."""
        for reason in fields.REASONS:
            if reason not in values:
                continue
            increase = self._counters.increase(reason, values[reason], at_ns, REPEAT_NS)
            if increase is not None and increase.by <= _REASON_RATIO_MAX * increase.elapsed_ns:
                yield self._reason(reason, min(increase.by / increase.elapsed_ns, 1.0))
        if self._reason_samples:
            for reason in fields.REASON_BITS:
                if reason not in values:
                    yield self._reason(reason, self._reasons_seen[reason] / self._reason_samples)
        self._reasons_seen.clear()
        self._reason_samples = 0

    def _reason(self, reason: str, ratio: float) -> Reading:
        return Reading(NODE, "gpu.event_reason_ratio", ratio, (*self._labels, ("reason", reason)))

    def _from_fields(self, values: dict[str, float], at_ns: int) -> Iterator[Reading]:
        for gauge in fields.GAUGES:
            yield from self._gauge(gauge.reading, values.get(gauge.value), gauge.top, gauge.scale, gauge.labels)
        told = set()
        for rate in (*fields.RATES, *(() if self._has_gpm() else fields.TRAFFIC)):
            if rate.value not in values:
                continue
            patience_ns = REPEAT_NS if rate.rare else 0
            increase = self._counters.increase(rate.value, values[rate.value], at_ns, patience_ns)
            if increase is None or (rate.reading, rate.labels) in told:
                continue
            told.add((rate.reading, rate.labels))
            per_s = increase.by * 1e9 / increase.elapsed_ns
            yield from self._gauge(rate.reading, per_s, rate.top, rate.scale, rate.labels)

    def _temperatures(self) -> Iterator[Reading]:
        number, gpu = self._door.number, self.handle
        temperature = self.calls.first(
            (Number.TEMPERATURE, number, gpu, Number.TEMPERATURE),
            (Number.TEMPERATURE_V1, number, gpu, Number.TEMPERATURE_V1),
        )
        yield from self._gauge("gpu.temperature_celsius", temperature, _DEGREES_MAX)
        margin = self._number(Number.TEMPERATURE_MARGIN)
        if margin is None and temperature is not None:
            threshold = self._number(Number.TEMPERATURE_SLOWDOWN)
            margin = None if threshold is None else threshold - temperature
        if margin is not None and -_DEGREES_MAX <= margin <= _DEGREES_MAX:  # below zero while it slows down
            yield Reading(NODE, "gpu.temperature_margin_celsius", float(margin), self._labels)

    def _simple(self, simple: _Simple) -> Iterator[Reading]:
        return self._gauge(simple.reading, self._number(simple.query), simple.top, simple.scale)

    def _gauge(
        self,
        reading: str,
        value: float | None,
        top: float,
        scale: float = 1.0,
        labels: tuple[tuple[str, str], ...] = (),
    ) -> Iterator[Reading]:
        """`value` times `scale` if that is between 0 and `top`; NVML's own words for "unknown" are far above."""
        if value is not None and math.isfinite(value) and 0 <= value * scale <= top:
            yield Reading(NODE, reading, value * scale, self._labels + labels)

    def _number(self, query: Number) -> int | None:
        return self.calls.ask(query, self._door.number, self.handle, query)

    def _read_fields(self, wanted: Sequence[Field]) -> list[Answer]:
        return self._door.fields(self.handle, wanted)
