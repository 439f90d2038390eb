"""How fast the cores run that the schedulers' main threads are on."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cyclewatch.collectors.host.held import HeldFile
from cyclewatch.collectors.host.labels import PROCESS_LABELS, series
from cyclewatch.collectors.host.problems import unreadable
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.processes import ServerProcess
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading, Sample

_KHZ = 1_000
_MHZ = 1_000_000
_CPUINFO_BYTES_MAX = 2**22
_HERTZ = "host.cpu_frequency_hertz"


def parse_cpuinfo_hertz(content: bytes) -> dict[int, float]:
    """`/proc/cpuinfo`: frequency by CPU; empty where the kernel tells none, as on ARM.

    Raises:
        FormatError: a number is none.
    """
    found: dict[int, float] = {}
    cpu = -1
    for line in content.splitlines():
        name, _, value = line.partition(b":")
        if name.rstrip() == b"processor":
            cpu = counter(value.strip())
        elif name.rstrip() == b"cpu MHz" and cpu >= 0:
            whole, _, fraction = value.strip().partition(b".")
            found[cpu] = (counter(whole) + (counter(fraction) / 10 ** len(fraction) if fraction else 0)) * _MHZ
    return found


class _Core(NamedTuple):
    """What tells the frequency of one core; `highest` is what it was built for, and 0 where nobody says."""

    file: HeldFile
    highest_khz: int

    def khz(self) -> int | None:
        """The frequency now; None while the driver cannot tell, or once the core has gone offline."""
        try:
            return counter(self.file.read().strip())
        except (OSError, FormatError):
            return None


class CoreFrequency:
    """The frequency of each scheduler's core, from cpufreq, or from /proc/cpuinfo where there is none.

    Only these cores are asked: reading another one may wake it. A core is opened when a scheduler is first seen
    on it, and closed when none has been there between two looks.
    """

    quantities = (
        Quantity(
            _HERTZ,
            "Frequency of the core that the scheduler's main thread last ran on.",
            "/sys/devices/system/cpu/cpuN/cpufreq/scaling_cur_freq, or /proc/cpuinfo at each look",
            "host.interval_s",
            PROCESS_LABELS,
            cost="1.2 us a core, with the file held open",
        ),
        Quantity(
            "host.cpu_frequency_ratio",
            "The same as a share of the highest frequency that the core was built for.",
            "/sys/devices/system/cpu/cpuN/cpufreq/cpuinfo_max_freq",
            "host.interval_s",
            PROCESS_LABELS,
            cost="in the reading of cpu_frequency_hertz",
        ),
    )
    vanished = False

    def __init__(self, proc: Path, sys: Path, last_cpu: Mapping[ServerProcess, int]) -> None:
        self._cpuinfo = proc / "cpuinfo"
        self._cpus = sys / "devices/system/cpu"
        self._last_cpu = last_cpu
        self._cores: dict[int, _Core | None] = {}
        self._used: set[int] = set()

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Close what is no longer used; ask /proc/cpuinfo, which is slow, of the cores without cpufreq."""
        del scene, now_ns
        for cpu in self._cores.keys() - self._used:
            self._forget(cpu)
        self._used.clear()
        if None not in self._cores.values():
            return
        try:
            with self._cpuinfo.open("rb") as file:
                told = parse_cpuinfo_hertz(file.read(_CPUINFO_BYTES_MAX))
        except (OSError, FormatError) as error:
            yield unreadable(self._cpuinfo, error)
            return
        for process, cpu in self._last_cpu.items():
            if self._cores.get(cpu) is None and cpu in told:
                target, labels = series(process)
                yield Reading(target, _HERTZ, told[cpu], labels)

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Frequencies of the cores that the schedulers are on now."""
        del now_ns
        for process, cpu in self._last_cpu.items():
            self._used.add(cpu)
            if cpu not in self._cores:
                self._cores[cpu] = self._open(cpu)
            core = self._cores[cpu]
            khz = None if core is None else core.khz()
            if core is None or khz is None:
                continue
            target, labels = series(process)
            yield Reading(target, _HERTZ, khz * _KHZ, labels)
            if core.highest_khz:
                yield Reading(target, "host.cpu_frequency_ratio", khz / core.highest_khz, labels)

    def close(self) -> None:
        """Close all files."""
        for cpu in list(self._cores):
            self._forget(cpu)
        self._used.clear()

    def _open(self, cpu: int) -> _Core | None:
        directory = self._cpus / f"cpu{cpu}" / "cpufreq"
        try:
            file = HeldFile(directory / "scaling_cur_freq")
        except OSError:
            return None
        try:
            highest_khz = counter((directory / "cpuinfo_max_freq").read_bytes().strip())
        except (OSError, FormatError):
            highest_khz = 0
        return _Core(file, highest_khz)

    def _forget(self, cpu: int) -> None:
        core = self._cores.pop(cpu)
        if core is not None:
            core.file.close()
