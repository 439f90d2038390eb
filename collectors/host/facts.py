"""What the node is, in words, for the fingerprint of the environment."""

from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.source import OnlyAtLooks, Scene
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Fact, Sample

_BYTES_MAX = 4096
_CPU_FACTS = {"model name": "cpu_model", "microcode": "microcode"}
_POLICY_FACTS = {
    "governor": "scaling_governor",
    "cpu_frequency_limit_khz": "scaling_max_freq",
    "energy_preference": "energy_performance_preference",
}
_SWITCH = {"1": "on", "0": "off"}
_SWITCH_OFF = {"1": "off", "0": "on"}


def parse_cpu_facts(content: str) -> dict[str, str]:
    """`/proc/cpuinfo`: model and microcode of the first CPU; what is not there, as on ARM, is left out."""
    found = {}
    for line in content.partition("\n\n")[0].split("\n"):
        name, _, value = line.partition(":")
        subject = _CPU_FACTS.get(name.strip())
        if subject is not None and value.strip():
            found[subject] = value.strip()
    return found


def count_cpus(content: str) -> int:
    """How many CPUs are in a list like `0-15,32`; 0 for what is no such list."""
    count = 0
    for part in content.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            return 0
        count += max(0, int(last) - int(first) + 1)
    return count


def parse_choice(content: str) -> str:
    """The word in brackets among those that could be chosen, as in `always [madvise] never`; empty without one."""
    return content.partition("[")[2].partition("]")[0]


class NodeFacts(OnlyAtLooks):
    """Kernel, processors and the settings that change how fast they are. What cannot be read is left out."""

    quantities: tuple[Quantity, ...] = ()

    def __init__(self, proc: Path, sys: Path) -> None:
        self._proc = proc
        self._cpus = sys / "devices/system/cpu"
        self._sys = sys

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Every fact anew."""
        del scene, now_ns
        for subject, value in self._facts():
            if value:
                yield Fact(NODE, subject, value)

    def close(self) -> None:
        """Nothing is held."""

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "kernel", _text(self._proc / "sys/kernel/osrelease")
        yield from parse_cpu_facts(_text(self._proc / "cpuinfo")).items()
        online = count_cpus(_text(self._cpus / "online"))
        yield "cpus", str(online) if online else ""
        yield "smt", _text(self._cpus / "smt/control")
        policies = sorted((self._cpus / "cpufreq").glob("policy[0-9]*"))
        for subject, file in _POLICY_FACTS.items():
            # A node whose cores differ has one fact with all values.
            yield subject, ", ".join(sorted({_text(policy / file) for policy in policies} - {""}))
        yield "turbo", self._turbo()
        yield "transparent_hugepages", parse_choice(_text(self._sys / "kernel/mm/transparent_hugepage/enabled"))
        yield "clocksource", _text(self._sys / "devices/system/clocksource/clocksource0/current_clocksource")

    def _turbo(self) -> str:
        """Whether cores may run faster than their base frequency; Intel's driver tells it the other way round."""
        boost = _SWITCH.get(_text(self._cpus / "cpufreq/boost"), "")
        return boost or _SWITCH_OFF.get(_text(self._cpus / "intel_pstate/no_turbo"), "")


def _text(path: Path) -> str:
    """The beginning of a file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode(errors="replace").strip()
    except OSError:
        return ""
