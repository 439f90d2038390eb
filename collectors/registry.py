"""The one table of collectors: a new collector is added here, and nowhere else."""

from collections.abc import Callable, Mapping
from pathlib import Path

from cyclewatch.collectors.base import Collector
from cyclewatch.collectors.cycles import CyclesCollector
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.engine import EngineCollector
from cyclewatch.collectors.fetch import HttpFetcher
from cyclewatch.collectors.forward_pass import ForwardPassCollector
from cyclewatch.collectors.gpu.collector import GpuCollector
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.host.collector import HostCollector
from cyclewatch.collectors.local_servers import LocalServersCollector
from cyclewatch.collectors.probe.quantities import QUANTITIES as PROBE
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.self_usage import OWN, SelfCollector, Work
from cyclewatch.config.settings import Settings


def known_quantities() -> dict[str, Quantity]:
    """Everything that any collector or the probe can read, by name, whatever the configuration switches off."""
    collectors = build_collectors(Settings.model_construct(), Discovery(()), {})
    collected = (quantity for collector in collectors for quantity in collector.quantities)
    return {quantity.name: quantity for quantity in (*collected, *PROBE)}


def build_collectors(
    settings: Settings,
    discovery: Discovery,
    resume: Mapping[str, int],
    work: Callable[[], Work] = Work,
    nvml: NvmlDoor | None = None,
    own: Path = OWN,
) -> list[Collector]:
    """The collectors that the settings switch on.

    `resume` maps rings to the sequence to go on with; `work` tells of the daemon's own; `nvml` stands for the
    driver's library, and `own` for the daemon's directory in /proc.
    """
    table: dict[str, tuple[bool, Collector]] = {
        "cycles": (
            settings.rings.enabled,
            CyclesCollector(settings.rings, discovery, settings.host.proc, resume),
        ),
        "forward_pass": (settings.forward_pass.enabled, ForwardPassCollector(settings.forward_pass, discovery)),
        "discovery": (
            settings.discovery.enabled,
            LocalServersCollector(settings.discovery, discovery, settings.host.proc),
        ),
        "engine": (settings.engine.enabled, EngineCollector(settings.engine, discovery, HttpFetcher())),
        "host": (settings.host.enabled, HostCollector(settings.host, discovery)),
        "gpu": (settings.gpu.enabled, GpuCollector(settings.gpu, discovery, settings.host.proc, nvml)),
        "self": (settings.self.enabled, SelfCollector(settings.self, work, own)),
    }
    return [collector for enabled, collector in table.values() if enabled]
