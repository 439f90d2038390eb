"""What one scrape gets: bounded and well-formed, whatever names other processes gave themselves."""

import zlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

SERIES_MAX = 20_000
"""Most series of a page: 1.5 MB, rendered in half a second. Six servers of eight ranks have 2,900."""
LABEL_MAX = 128
"""Most characters of a label's value."""


class MetricsPage(Collector):
    """A registry as it is shown. What comes later in it is left out first."""

    def __init__(self, registry: CollectorRegistry, series_max: int = SERIES_MAX) -> None:
        self._registry = registry
        self._series_max = series_max

    def collect(self) -> Iterator[Metric]:
        """All families, cut where the page is full, and how many series that left out."""
        room, left_out = self._series_max - 1, 0
        for family in self._registry.collect():
            left_out += max(0, len(family.samples) - room)
            family.samples = [_clean(sample) for sample in family.samples[:room]]
            room -= len(family.samples)
            yield family
        yield GaugeMetricFamily(
            "cyclewatch_series_left_out",
            f"Series that this page has no room for: it holds {self._series_max}.",
            value=left_out,
        )


def _clean(sample: Sample) -> Sample:
    if all(value.isascii() and len(value) <= LABEL_MAX for value in sample.labels.values()):
        return sample
    return sample._replace(labels={name: _clean_value(value) for name, value in sample.labels.items()})


def _clean_value(value: str) -> str:
    """A value that UTF-8 can hold, cut where it is long; two that differ still do."""
    clean = value.encode(errors="replace").decode()
    if clean == value and len(clean) <= LABEL_MAX:
        return clean
    mark = f"~{zlib.crc32(value.encode(errors='surrogatepass')):08x}"
    return clean[: LABEL_MAX - len(mark)] + mark
