"""Pressure stall information: how much of the time work stood still for want of a resource."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.host.cgroup import UNIFIED
from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.labels import Labels, Series
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, NoData, Reading, Sample

RESOURCES = ("cpu", "memory", "io", "irq")
PRESSURE_LABELS = ("resource", "kind")

_KINDS = {b"some": "some", b"full": "full"}
_TOTAL = b"total="
_US = 1e-6


def parse_pressure(content: bytes) -> dict[str, int]:
    """Microseconds stalled since boot: `some`, when at least one task was, and `full`, when all were.

    The averages beside them are over 10 s and more, and decay; the totals are exact over any time.

    Raises:
        FormatError: a line is neither of the two, or has no total.
    """
    totals = {}
    for line in content.splitlines():
        kind, _, rest = line.partition(b" ")
        _, total, digits = rest.rpartition(_TOTAL)
        if kind not in _KINDS or not total:
            raise FormatError("a line is not `some` or `full` with a total")
        totals[_KINDS[kind]] = counter(digits)
    return totals


def ratios(resource: str, stalled_us_per_s: Mapping[str, float]) -> Iterator[tuple[Labels, float]]:
    """Labels and shares of the time, from microseconds in a second."""
    for kind, value in stalled_us_per_s.items():
        yield (("resource", resource), ("kind", kind)), value * _US


class NodePressure:
    """The whole node's, from /proc/pressure."""

    quantities = (
        Quantity(
            "host.pressure_ratio",
            "Share of the time that some or all (`full`) runnable work of the node was stalled for a resource.",
            "/proc/pressure/{cpu,memory,io,irq}",
            "host.interval_s",
            PRESSURE_LABELS,
            target="node",
            cost="2.0 us a resource",
        ),
    )
    vanished = False

    def __init__(self, proc: Path) -> None:
        self._directory = proc / "pressure"
        self._files: CounterFiles[str, str] = CounterFiles(parse_pressure)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Open the files; `irq` came with Linux 6.1."""
        del scene
        self._files.refresh({resource: self._directory / resource for resource in RESOURCES}, now_ns)
        yield from self._files.problems
        if not self._files and not self._files.problems:
            yield NoData(
                f"no {self._directory}: the kernel keeps no pressure information; boot with psi=1 where it can"
            )

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares of the time since the last reading."""
        for resource, counts in self._files.advance(now_ns).items():
            for labels, ratio in ratios(resource, counts.per_s):
                # All work of a node that lacks CPU never stands still: the kernel prints a 0 there.
                if labels != (("resource", "cpu"), ("kind", "full")):
                    yield Reading(NODE, "host.pressure_ratio", ratio, labels)

    def close(self) -> None:
        """Close all files."""
        self._files.close()


class GroupPressure:
    """Of the control groups that schedulers are in; a server has the worst of its groups."""

    quantities = (
        Quantity(
            "host.cgroup_pressure_ratio",
            "Share of the time that some or all (`full`) work of the server's group was stalled for a resource.",
            "{cpu,memory,io,irq}.pressure of the control group, version 2",
            "host.interval_s",
            PRESSURE_LABELS,
            cost="2.0 us a resource",
        ),
    )
    vanished = False

    def __init__(self) -> None:
        self._targets: Mapping[Path, set[str]] = {}
        self._files: CounterFiles[tuple[Path, str], str] = CounterFiles(parse_pressure)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Find the groups."""
        self._targets = scene.groups.own(UNIFIED)
        paths = {
            (directory, resource): directory / f"{resource}.pressure"
            for directory in self._targets
            for resource in RESOURCES
        }
        self._files.refresh(paths, now_ns)
        yield from self._files.problems

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares of the time since the last reading."""
        worst: dict[Series, float] = {}
        for (directory, resource), counts in self._files.advance(now_ns).items():
            for labels, ratio in ratios(resource, counts.per_s):
                for target in self._targets[directory]:
                    worst[target, labels] = max(worst.get((target, labels), 0.0), ratio)
        for (target, labels), ratio in worst.items():
            yield Reading(target, "host.cgroup_pressure_ratio", ratio, labels)

    def close(self) -> None:
        """Close all files."""
        self._files.close()
