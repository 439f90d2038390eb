"""Heat: how long cores and packages were slowed by it. Intel's cores count it, others do not."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclewatch.collectors.host.counters import SINGLE, CounterFiles, parse_single
from cyclewatch.collectors.host.labels import PROCESS_LABELS, Labels, series
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Reading, Sample

_EVENTS, _TIME = "throttle_count", "throttle_total_time_ms"
_MS = 1e-3
_SOURCE = "/sys/devices/system/cpu/cpuN/thermal_throttle"

_Key = tuple[str, int, str]
"""`core` or `package`, its number, and what is counted; a core has the number of its CPU."""


class ThermalThrottling:
    """Of the cores that schedulers' main threads run on, and of all packages.

    The kernel adds the time when a core has cooled down again, so that a share may exceed 1 in one reading.
    """

    quantities = (
        Quantity(
            "host.core_throttled_ratio",
            "Share of the time that the core of the scheduler's main thread was slowed by heat.",
            f"{_SOURCE}/core_{_TIME}",
            "host.interval_s",
            PROCESS_LABELS,
            cost="1.2 us a core, with the file held open",
        ),
        Quantity(
            "host.core_throttle_events_per_s",
            "How often the core of the scheduler's main thread began to be slowed by heat.",
            f"{_SOURCE}/core_{_EVENTS}",
            "host.interval_s",
            PROCESS_LABELS,
            cost="1.2 us a core, with the file held open",
        ),
        Quantity(
            "host.package_throttled_ratio",
            "Share of the time that a processor package was slowed by heat.",
            f"{_SOURCE}/package_{_TIME}",
            "host.interval_s",
            ("package",),
            target="node",
            cost="1.2 us a package, with the file held open",
        ),
        Quantity(
            "host.package_throttle_events_per_s",
            "How often a processor package began to be slowed by heat.",
            f"{_SOURCE}/package_{_EVENTS}",
            "host.interval_s",
            ("package",),
            target="node",
            cost="1.2 us a package, with the file held open",
        ),
    )
    vanished = False

    def __init__(self, sys: Path, last_cpu: Mapping[ServerProcess, int]) -> None:
        self._cpus = sys / "devices/system/cpu"
        self._last_cpu = last_cpu
        self._counted = False
        self._package_cpus: Mapping[int, int] = {}
        self._cores: set[int] = set()
        self._files: CounterFiles[_Key, str] = CounterFiles(parse_single)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Find the packages, and hold the counters of these and of the cores used since the last look."""
        del scene
        self._counted = (self._cpus / "cpu0/thermal_throttle").is_dir()
        if self._counted and not self._package_cpus:
            self._package_cpus = self._packages()
        paths: dict[_Key, Path] = {}
        if self._counted:
            for package, cpu in self._package_cpus.items():
                paths |= self._paths("package", package, cpu)
            for cpu in self._cores:
                paths |= self._paths("core", cpu, cpu)
        self._cores.clear()
        self._files.refresh(paths, now_ns)
        yield from self._files.problems

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares and rates since the last reading; a core that a scheduler has come to has them the next time."""
        if not self._counted:
            return
        per_s = {key: counts.per_s.get(SINGLE) for key, counts in self._files.advance(now_ns).items()}
        for cpu in set(self._last_cpu.values()):
            self._cores.add(cpu)
            for key, path in self._paths("core", cpu, cpu).items():
                self._files.hold(key, path, now_ns)
        for process, cpu in self._last_cpu.items():
            target, labels = series(process)
            yield from _readings("core", per_s, cpu, target, labels)
        for package in self._package_cpus:
            yield from _readings("package", per_s, package, NODE, (("package", str(package)),))

    def close(self) -> None:
        """Close all files."""
        self._files.close()
        self._cores.clear()

    def _packages(self) -> dict[int, int]:
        """One CPU of each package, by the package's number; looked for once, since it takes a file for each CPU."""
        found: dict[int, int] = {}
        for directory in sorted(self._cpus.glob("cpu[0-9]*")):
            with contextlib.suppress(OSError, ValueError):
                package = counter((directory / "topology/physical_package_id").read_bytes().strip())
                found.setdefault(package, int(directory.name.removeprefix("cpu")))
        return found

    def _paths(self, scope: str, number: int, cpu: int) -> dict[_Key, Path]:
        directory = self._cpus / f"cpu{cpu}/thermal_throttle"
        return {(scope, number, what): directory / f"{scope}_{what}" for what in (_EVENTS, _TIME)}


def _readings(
    scope: str, per_s: Mapping[_Key, float | None], number: int, target: str, labels: Labels
) -> Iterator[Reading]:
    events, milliseconds = per_s.get((scope, number, _EVENTS)), per_s.get((scope, number, _TIME))
    if milliseconds is not None:
        yield Reading(target, f"host.{scope}_throttled_ratio", milliseconds * _MS, labels)
    if events is not None:
        yield Reading(target, f"host.{scope}_throttle_events_per_s", events, labels)
