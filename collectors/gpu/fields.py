"""The field values (NVML_FI_* in nvml.h) that are read, many in one call, and how each becomes a reading."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cyclewatch.collectors.gpu.calls import REFUSAL_NS, GpuCalls
from cyclewatch.collectors.gpu.capabilities import Support, refusal
from cyclewatch.collectors.gpu.door import ALL_LINKS, Answer, Code, Field

Ways = tuple[tuple[Field, ...], ...]
"""Ways to one value, the best first; each is a sum of fields. Drivers and chips differ in which they know."""

LINK_COUNT = Field(91)
POWER = "power_average"
"""Milliwatts, averaged over a second (NVML_FI_DEV_POWER_AVERAGE)."""
ENERGY = "energy"
"""Millijoules since the driver was loaded."""
ACTIVE_LINKS = "active_links"

REASONS = {
    "sw_power_cap": 74,
    "sync_boost": 76,
    "board_limit": 77,
    "low_utilization": 78,
    "reliability": 79,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
"""Event (throttle) reasons with a counter of the nanoseconds spent in them."""
REASON_BITS = {
    "idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "board_limit": 0x200,
    "reliability": 0x400,
}
"""The same, and those without a counter, as bits of the present moment (nvmlClocksEventReason*)."""


def _one(*numbers: int, scope: int = 0) -> Ways:
    return tuple((Field(number, scope),) for number in numbers)


def _over_links(links: int, *numbers: int) -> Ways:
    """Summed by the driver where it does that, else link by link."""
    link_by_link = tuple(tuple(Field(number, link) for link in range(links)) for number in numbers if links)
    return _one(*numbers, scope=ALL_LINKS) + link_by_link


FAST: dict[str, Ways] = {POWER: _one(185)}


def slow(links: int) -> dict[str, Ways]:
    """What the slow loop reads of a GPU with so many NVLinks."""
    values = {name: _one(number) for name, number in REASONS.items()} | {
        ENERGY: _one(83),
        "memory_temperature": _one(82),
        "limit/current": _one(192),
        "limit/default": _one(189),
        "limit/enforced": _one(190),
        "rows/corrected": _one(142),
        "rows/uncorrected": _one(143),
        "rows_pending": _one(144),
        "rows_failed": _one(145),
        "recovery_action": _one(230),
        "ecc/corrected": _one(3),
        "ecc/uncorrected": _one(4),
        "pcie/replay": _one(94),
        "pcie/recovery": _one(169),
        "pcie/correctable": _one(173),
        "pcie/non_fatal": _one(179),
        "pcie/fatal": _one(180),
        "pcie_sent": _one(197),
        "pcie_received": _one(198),
    }
    if links:
        values |= {
            # The totals 38, 52 and 59 are those of chips before Hopper, 208 to 215 those of NVLink 5.
            "nvlink/crc": _over_links(links, 163) + _one(38),
            "nvlink/replay": _over_links(links, 161) + _one(52),
            "nvlink/recovery": _over_links(links, 162) + _one(59) + _over_links(links, 215),
            "nvlink/receive": _over_links(links, 208),
            "nvlink/integrity": _over_links(links, 211),
            "nvlink/discard": _over_links(links, 212),
            "nvlink_sent_kib": _over_links(links, 138),
            "nvlink_received_kib": _over_links(links, 139),
            "nvlink_sent": _over_links(links, 202),
            "nvlink_received": _over_links(links, 204),
            ACTIVE_LINKS: (tuple(Field(165, link) for link in range(links)),),
        }
    return values


@dataclass(frozen=True)
class Gauge:
    """A reading that is a value times `scale`; more than `top` is nonsense."""

    value: str
    reading: str
    top: float
    scale: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Rate:
    """A reading that is the increase of a counter in a second, times `scale`; more than `top` is nonsense.

    Of a `rare` one nothing is told for a while as long as the counter stands still.
    """

    value: str
    reading: str
    top: float
    scale: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()
    rare: bool = False


WATTS_MAX = 10_000.0
BYTES_PER_S_MAX = 1e13
_ROWS_MAX = 1e6
_ERRORS_PER_S_MAX = 1e9

GAUGES = (
    Gauge(ENERGY, "gpu.energy_joules", 1e15, 1e-3),
    Gauge("memory_temperature", "gpu.memory_temperature_celsius", 200),
    *(
        Gauge(f"limit/{limit}", "gpu.power_limit_watts", WATTS_MAX, 1e-3, (("limit", limit),))
        for limit in ("current", "default", "enforced")
    ),
    *(
        Gauge(f"rows/{kind}", "gpu.remapped_rows", _ROWS_MAX, labels=(("kind", kind),))
        for kind in ("corrected", "uncorrected")
    ),
    Gauge("rows_pending", "gpu.row_remap_pending", 1),
    Gauge("rows_failed", "gpu.row_remap_failed", 1),
    Gauge("recovery_action", "gpu.recovery_action", 100),
    Gauge(ACTIVE_LINKS, "gpu.nvlink_links_active", 1000),
)
RATES = (
    Rate(ENERGY, "gpu.mean_power_watts", WATTS_MAX, 1e-3),
    *(
        Rate(f"{source}/{kind}", f"gpu.{source}_errors_per_s", _ERRORS_PER_S_MAX, 1, (("kind", kind),), rare=True)
        for source, kinds in (
            ("ecc", ("corrected", "uncorrected")),
            ("pcie", ("replay", "recovery", "correctable", "non_fatal", "fatal")),
            ("nvlink", ("crc", "replay", "recovery", "receive", "integrity", "discard")),
        )
        for kind in kinds
    ),
)
TRAFFIC = (
    Rate("pcie_sent", "gpu.pcie_sent_bytes_per_s", BYTES_PER_S_MAX),
    Rate("pcie_received", "gpu.pcie_received_bytes_per_s", BYTES_PER_S_MAX),
    Rate("nvlink_sent_kib", "gpu.nvlink_sent_bytes_per_s", BYTES_PER_S_MAX, 1024),
    Rate("nvlink_received_kib", "gpu.nvlink_received_bytes_per_s", BYTES_PER_S_MAX, 1024),
    Rate("nvlink_sent", "gpu.nvlink_sent_bytes_per_s", BYTES_PER_S_MAX),
    Rate("nvlink_received", "gpu.nvlink_received_bytes_per_s", BYTES_PER_S_MAX),
)
"""Traffic from counters, for chips without GPM; of two ways to the same reading the first counts that has a value."""


class FieldBatch:
    """Several values of one GPU, in one call.

    The first call asks for every field of every way; what is refused there is left out of the next, for an hour.
    """

    def __init__(
        self,
        name: str,
        calls: GpuCalls,
        read: Callable[[Sequence[Field]], list[Answer]],
        wanted: Mapping[str, Ways],
    ) -> None:
        self._name = name
        self._calls = calls
        self._read = read
        self._wanted = wanted
        self._chosen: dict[str, tuple[Field, ...]] = {}
        self._fields: list[Field] = []
        self._chosen_ns: int | None = None

    def read(self) -> dict[str, float]:
        """The values that are there at present, by name.

        Raises:
            LibraryGoneError: NVML must be initialised anew.
            GpuGoneError: this GPU is gone.
        """
        now_ns = self._calls.clock()
        choosing = self._chosen_ns is None or now_ns - self._chosen_ns >= REFUSAL_NS
        if choosing:
            self._fields = list({field: None for ways in self._wanted.values() for way in ways for field in way})
        answers = self._calls.ask(self._name, self._read, self._fields) if self._fields else None
        if answers is None or len(answers) != len(self._fields):
            return {}
        known = {}
        refused = {}
        for field, (value, code) in zip(self._fields, answers, strict=True):
            if code == Code.SUCCESS:
                known[field] = value
            elif (support := refusal(code)) is not None:
                refused[field] = support
            else:
                self._calls.failed(f"field {field.number}", code)
        if choosing:
            self._choose(refused, now_ns)
        elif refused:
            self._chosen_ns = None  # another mode, or an answer that only failed at first: choose again
        return {
            name: sum(known[field] for field in way)
            for name, way in self._chosen.items()
            if all(field in known for field in way)
        }

    def _choose(self, refused: Mapping[Field, Support], now_ns: int) -> None:
        """For each value keep the best way that is not refused; why there is none is said of the best one."""
        self._chosen = {}
        for name, ways in self._wanted.items():
            way = next((way for way in ways if refused.keys().isdisjoint(way)), None)
            if way is not None:
                self._chosen[name] = way
                self._calls.capabilities.note(name, Support.YES)
            else:
                why = next(refused[field] for field in ways[0] if field in refused)
                self._calls.capabilities.note(name, why)
        self._fields = list({field: None for way in self._chosen.values() for field in way})
        self._chosen_ns = now_ns
