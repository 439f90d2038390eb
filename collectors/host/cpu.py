"""The CPUs of the whole node: what they did, and how many tasks wanted them."""

from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.procfs import FormatError, counter
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Reading, Sample

_COLUMNS = 8
_UNUSED = {"idle", "iowait"}
_HUNDREDTHS = 100


def parse_cpu_modes(content: bytes) -> dict[str, int]:
    """`/proc/stat`: clock ticks of all CPUs together since boot, by mode.

    Raises:
        FormatError: no line of all CPUs at the beginning.
    """
    columns = content.partition(b"\n")[0].split()
    if columns[:1] != [b"cpu"] or len(columns) <= _COLUMNS:
        raise FormatError("stat does not begin with the times of all CPUs")
    # Guests are in user, those with a nice value in nice; proc_stat(5).
    user, nice, system, idle, iowait, irq, softirq, steal = map(counter, columns[1 : _COLUMNS + 1])
    return {
        "user": user + nice,
        "system": system,
        "idle": idle,
        "iowait": iowait,
        "irq": irq + softirq,
        "steal": steal,
    }


def parse_load(content: bytes) -> dict[str, int]:
    """`/proc/loadavg`: the load of the last minute, in hundredths.

    Raises:
        FormatError: it is no number with two decimals.
    """
    whole, point, decimals = content.partition(b" ")[0].partition(b".")
    if not point or len(decimals) != 2:  # noqa: PLR2004 (two decimals, as the kernel prints them)
        raise FormatError("loadavg does not begin with a load")
    return {"load": counter(whole) * _HUNDREDTHS + counter(decimals)}


class NodeCpu:
    """Shares of all CPU time of the node, and its load; the latter, a mean over a minute, only at looks."""

    quantities = (
        Quantity(
            "host.cpu_usage_ratio",
            "Share of the node's CPU time that was used, whatever for.",
            "/proc/stat",
            "host.interval_s",
            target="node",
            cost="6.5 us on two CPUs, and more with each CPU and interrupt",
        ),
        Quantity(
            "host.cpu_mode_ratio",
            "Share of the node's CPU time in a mode: user, system, iowait, irq, or steal (taken by the hypervisor).",
            "/proc/stat",
            "host.interval_s",
            ("mode",),
            target="node",
            cost="in the reading of cpu_usage_ratio",
        ),
        Quantity(
            "host.load",
            "Tasks of the node that ran, waited for a CPU or for storage, as a mean over the last minute.",
            "/proc/loadavg",
            "host.look_interval_s",
            target="node",
            cost="1.4 us",
        ),
    )
    vanished = False

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._modes: CounterFiles[str, str] = CounterFiles(parse_cpu_modes, required=True)
        self._load: CounterFiles[str, str] = CounterFiles(parse_load, required=True)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Open both files, and read the load."""
        del scene
        self._modes.refresh({"stat": self._proc / "stat"}, now_ns)
        self._load.refresh({"loadavg": self._proc / "loadavg"}, now_ns)
        for counts in self._load.advance(now_ns).values():
            yield Reading(NODE, "host.load", counts.now["load"] / _HUNDREDTHS)
        yield from (*self._modes.problems, *self._load.problems)

    def advance(self, now_ns: int) -> Iterator[Reading]:
        """Shares since the last reading; none where a mode went backwards, as the idle times can."""
        for counts in self._modes.advance(now_ns).values():
            total = sum(counts.per_s.values())
            if len(counts.per_s) == len(counts.now) and total > 0:
                used = sum(ticks for mode, ticks in counts.per_s.items() if mode not in _UNUSED)
                yield Reading(NODE, "host.cpu_usage_ratio", used / total)
                for mode, ticks in counts.per_s.items():
                    if mode != "idle":
                        yield Reading(NODE, "host.cpu_mode_ratio", ticks / total, (("mode", mode),))

    def close(self) -> None:
        """Close both files."""
        self._modes.close()
        self._load.close()
