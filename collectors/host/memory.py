"""Memory of the whole node, and of its NUMA nodes."""

from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.host.counters import CounterFiles
from cyclewatch.collectors.host.source import OnlyAtLooks, Scene
from cyclewatch.collectors.procfs import named_counters
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import NODE, Reading, Sample

NUMA_NODES_MAX = 16

_KIB = 1024

parse_meminfo = named_counters({b"MemAvailable": "available", b"SwapTotal": "swap", b"SwapFree": "free swap"})
"""`/proc/meminfo`: KiB that could be had without swapping, and KiB of swap, all and free."""

parse_numastat = named_counters({b"numa_miss": "missed"})
"""`numastat` of a NUMA node: pages given from it since boot although another node was wanted."""


class NodeMemory(OnlyAtLooks):
    """Memory at the pace of looks: it changes slowly, and the kernel adds it up anew for each reading."""

    quantities = (
        Quantity(
            "host.memory_available_bytes",
            "Memory of the node that programs can still have without swapping.",
            "MemAvailable in /proc/meminfo",
            "host.look_interval_s",
            target="node",
            cost="5.2 us",
        ),
        Quantity(
            "host.swap_used_bytes",
            "Memory of the node that has been swapped out.",
            "SwapTotal and SwapFree in /proc/meminfo",
            "host.look_interval_s",
            target="node",
            cost="in the reading of memory_available_bytes",
        ),
        Quantity(
            "host.numa_miss_per_s",
            "Pages that a NUMA node gave away because the one that was wanted had none left.",
            "/sys/devices/system/node/nodeN/numastat",
            "host.look_interval_s",
            ("numa_node",),
            target="node",
            cost="1.7 us a NUMA node",
        ),
    )

    def __init__(self, proc: Path, sys: Path) -> None:
        self._meminfo_path = proc / "meminfo"
        self._nodes = sys / "devices/system/node"
        self._meminfo: CounterFiles[str, str] = CounterFiles(parse_meminfo, required=True)
        self._numastat: CounterFiles[str, str] = CounterFiles(parse_numastat)

    def look(self, scene: Scene, now_ns: int) -> Iterator[Sample]:
        """Read everything; nodes of memory may be added while the machine runs."""
        del scene
        for counts in self._meminfo.advance(now_ns).values():
            found = counts.now
            if "available" in found:
                yield Reading(NODE, "host.memory_available_bytes", found["available"] * _KIB)
            if "swap" in found and "free swap" in found:
                yield Reading(NODE, "host.swap_used_bytes", max(0, found["swap"] - found["free swap"]) * _KIB)
        for name, counts in self._numastat.advance(now_ns).items():
            if "missed" in counts.per_s:
                labels = (("numa_node", name.removeprefix("node")),)
                yield Reading(NODE, "host.numa_miss_per_s", counts.per_s["missed"], labels)
        self._meminfo.refresh({"meminfo": self._meminfo_path}, now_ns)
        nodes = sorted(self._nodes.glob("node[0-9]*"))[:NUMA_NODES_MAX]
        self._numastat.refresh({path.name: path / "numastat" for path in nodes}, now_ns)
        yield from (*self._meminfo.problems, *self._numastat.problems)

    def close(self) -> None:
        """Close all files."""
        self._meminfo.close()
        self._numastat.close()
