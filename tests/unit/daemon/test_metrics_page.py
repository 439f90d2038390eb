"""A page of /metrics stays within its bound, and well-formed, whatever is called what."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cyclewatch.collectors.records import Reading, RingCounters
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_page import LABEL_MAX, SERIES_MAX, MetricsPage
from cyclewatch.daemon.metrics_state import PhaseState, RingState

PAGE_BYTES_MAX = 2_500_000
"""What docs/prometheus.md promises."""

HOSTILE = (
    'quote " in it',
    "line\nbreak",
    "back\\slash",
    "\udcff not UTF-8",
    "雪" * 500,
    '"} 1\ncyclewatch_hook_alive{target="other"} 0',
    "\0\x1b[31m",
    "",
)


class Named(Collector):
    """One gauge and one counter with a series for each name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)

    def collect(self) -> Iterator[Metric]:
        for family in (GaugeMetricFamily("a", "A.", labels=["x"]), CounterMetricFamily("b", "B.", labels=["x"])):
            for name in self._names:
                family.add_metric([name], 1.0)
            yield family


def page(names: Iterable[str], series_max: int = SERIES_MAX) -> MetricsPage:
    registry = CollectorRegistry()
    registry.register(Named(names))
    return MetricsPage(registry, series_max)


def series(text: bytes) -> list[tuple[str, dict[str, str]]]:
    families = text_string_to_metric_families(text.decode())
    return [(sample.name, sample.labels) for family in families for sample in family.samples]


@given(st.lists(st.text(st.characters(categories=None)), unique=True))
def test_series_stay_apart_under_any_names(names: list[str]) -> None:
    """Names of any characters, halves of surrogate pairs too, and any length: as many series as there are names."""
    shown = series(generate_latest(page(names)))
    gauges = [labels["x"] for name, labels in shown if name == "a"]
    assert len(set(gauges)) == len(gauges) == len(names)
    assert all(len(value) <= LABEL_MAX for value in gauges)


def test_plain_names_are_left_alone() -> None:
    names = ["127.0.0.1:30000", "köln", "雪" * LABEL_MAX]
    assert [labels["x"] for name, labels in series(generate_latest(page(names))) if name == "a"] == names


@pytest.mark.parametrize(("series_max", "left_out"), [(100, 0), (21, 0), (20, 1), (15, 6), (1, 20)])
def test_a_full_page_leaves_out_the_last_and_says_how_many(series_max: int, left_out: int) -> None:
    """Twenty series, and the one that tells."""
    shown = series(generate_latest(page(map(str, range(10)), series_max)))
    assert len(shown) == 21 - left_out
    assert (
        f"cyclewatch_series_left_out {left_out}.0\n" in generate_latest(page(map(str, range(10)), series_max)).decode()
    )


def crowded() -> Metrics:
    """Three hundred servers of eight ranks, all that can be read of them, and names that nobody chose well."""
    metrics = Metrics()
    targets = [*HOSTILE, *(f"127.0.0.1:{30_000 + number}" for number in range(300 - len(HOSTILE)))]
    ranks = [f"dp{number}-tp{2**62}" for number in range(8)]
    places = [(target, rank) for target in targets for rank in ranks]
    metrics.state.rings = {
        f"{place}": RingState(*place, RingCounters(), 9, 7, 1, alive=True, heartbeat_age_s=0.5) for place in places
    }
    metrics.state.phases = {
        f"{place}": PhaseState(*place, "decode", 0.005, 1.0, 1.0, regression_open=False) for place in places
    }
    metrics.state.quantities = known_quantities()
    readings = [
        Reading(target, quantity.name, 1.0, tuple((label, name) for label in quantity.labels))
        for quantity in metrics.state.quantities.values()
        for target in targets
        for name in HOSTILE
    ]
    metrics.state.readings = lambda: readings
    for target in targets:
        metrics.regressions.labels(target).inc()
    return metrics


def test_a_crowded_node_has_a_bounded_page_that_promtool_accepts() -> None:
    """Rings and the daemon's own health are on it; readings are what is left out."""
    text = generate_latest(crowded().page)
    shown = series(text)
    assert len(shown) <= SERIES_MAX
    assert len(text) <= PAGE_BYTES_MAX
    assert len([name for name, _ in shown if name == "cyclewatch_hook_alive"]) == 300 * 8
    assert len({labels["target"] for name, labels in shown if name == "cyclewatch_hook_alive"}) == 300
    assert "cyclewatch_turn_duration_seconds_count" in {name for name, _ in shown}
    print(f"{len(text)} bytes")
    _check(text)


def test_promtool_accepts_every_metric_there_is() -> None:
    """Names, units and help texts by Prometheus' conventions: every reading that a collector declares, and our own."""
    metrics = Metrics()
    metrics.state.quantities = known_quantities()
    readings = [
        Reading("server", quantity.name, 1.0, tuple((label, "x") for label in quantity.labels))
        for quantity in metrics.state.quantities.values()
    ]
    metrics.state.readings = lambda: readings
    _check(generate_latest(metrics.page))


def _check(text: bytes) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on the PATH: install prometheus")
    answer = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, b""), answer.stderr
