"""How every target stands after the last turn of the pipeline, as Prometheus reads it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import STAGES, Reading, RingCounters


@dataclass(frozen=True)
class PhaseState:
    """One phase of one rank after the last turn. `median_s` in seconds; `ratio` is measured over expected.

    `stages_s` are mean seconds of a cycle in the order of `STAGES`; `regressions_began_s` has since when what is open
    lasts, in UTC seconds by its kind.
    """

    target: str
    rank: str
    phase: str
    median_s: float
    ratio: float | None
    baseline_progress: float
    regression_open: bool
    stages_s: tuple[float, ...] = ()
    regressions_began_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RingState:
    """One ring after the last turn. `behind` counts records not yet read; the last one read ended at `newest_ns`."""

    target: str
    rank: str
    counters: RingCounters
    read: int
    lost: int
    torn: int
    alive: bool
    heartbeat_age_s: float
    behind: int = 0
    newest_ns: int = 0


@dataclass(frozen=True)
class StoreState:
    """The store's writer after the last turn: batches that wait, and what it has counted since the start."""

    pending: int = 0
    failures: int = 0
    dropped: int = 0


@dataclass(eq=False)
class StateCollector:
    """Gives the latest states to Prometheus. Whole values are replaced, so no lock is needed."""

    phases: Mapping[str, PhaseState] = field(default_factory=dict)
    rings: Mapping[str, RingState] = field(default_factory=dict)
    readings: Callable[[], Sequence[Reading]] = tuple
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    store: StoreState = StoreState()
    incidents: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many are not over, by state and severity; none where another daemon tells of them."""

    profile_datagrams_refused: int = 0

    def collect(self) -> Iterator[Metric]:
        """All families, by how much they matter: a page that is full has room for the first of them.

        A target that is gone is gone from here too.
        """
        yield from self._store()
        yield from self._incidents()
        yield CounterMetricFamily(
            "cyclewatch_profile_datagrams_refused",
            "Questions on Kineto's channel that got no answer.",
            value=self.profile_datagrams_refused,
        )
        yield from self._rings()
        yield from self._phases()
        yield from self._readings()

    def _incidents(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "cyclewatch_incidents",
            "Incidents that are not over; of daemons that share a database one tells of them, the others have 0.",
            labels=("state", "severity"),
        )
        for state in ("open", "acknowledged", "silenced"):
            for severity in ("critical", "warning", "info"):
                family.add_metric((state, severity), self.incidents.get((state, severity), 0))
        yield family

    def _phases(self) -> Iterator[Metric]:
        labels = ("target", "rank", "phase")
        median = GaugeMetricFamily(
            "cyclewatch_cycle_median_seconds", "Median cycle time in the last window.", labels=labels
        )
        ratio = GaugeMetricFamily(
            "cyclewatch_cycle_expected_ratio",
            "Measured over expected cycle time in the last window.",
            labels=labels,
        )
        progress = GaugeMetricFamily(
            "cyclewatch_baseline_progress_ratio", "How much of the baseline has been seen.", labels=labels
        )
        regression = GaugeMetricFamily(
            "cyclewatch_regression_open", "1 while a regression of this phase is open.", labels=labels
        )
        began = GaugeMetricFamily(
            "cyclewatch_regression_began_timestamp_seconds",
            "When an open regression began: the change point, not the moment at which it was found.",
            labels=(*labels, "kind"),
        )
        for state in self.phases.values():
            values = (state.target, state.rank, state.phase)
            median.add_metric(values, state.median_s)
            for kind, at_s in state.regressions_began_s.items():
                began.add_metric((*values, kind), at_s)
            if state.ratio is not None:
                ratio.add_metric(values, state.ratio)
            progress.add_metric(values, state.baseline_progress)
            regression.add_metric(values, float(state.regression_open))
        yield from (median, ratio, progress, regression, began, self._stages())

    def _stages(self) -> Metric:
        """Means over the ranks of a server: those of each would be a third of the page, and are in the store."""
        family = GaugeMetricFamily(
            "cyclewatch_cycle_stage_seconds",
            "Mean time of a cycle in a stage, over the ranks, in the last window; the stages add up to the mean cycle.",
            labels=("target", "phase", "stage"),
        )
        ranks: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        for state in self.phases.values():
            if state.stages_s:
                ranks.setdefault((state.target, state.phase), []).append(state.stages_s)
        for place, of_ranks in ranks.items():
            for stage, *seconds in zip(STAGES, *of_ranks, strict=True):
                family.add_metric((*place, stage), fmean(seconds))
        return family

    def _rings(self) -> Iterator[Metric]:
        labels = ("target", "rank")
        gauges = {
            "alive": GaugeMetricFamily("cyclewatch_hook_alive", "1 while the writing process runs.", labels=labels),
            "disabled": GaugeMetricFamily(
                "cyclewatch_hook_disabled", "1 after the hook switched itself off.", labels=labels
            ),
            "age": GaugeMetricFamily(
                "cyclewatch_hook_heartbeat_age_seconds",
                "Time since the scheduler's loop last turned.",
                labels=labels,
            ),
        }
        counters = {
            "read": CounterMetricFamily("cyclewatch_ring_records_read", "Records read.", labels=labels),
            "lost": CounterMetricFamily("cyclewatch_ring_records_lost", "Records overwritten unread.", labels=labels),
            "torn": CounterMetricFamily("cyclewatch_ring_records_torn", "Records with a wrong check.", labels=labels),
            "failures": CounterMetricFamily(
                "cyclewatch_hook_failures", "Failures of the hook's own code.", labels=labels
            ),
            "unmatched": CounterMetricFamily(
                "cyclewatch_hook_unmatched", "Launches and results that found no partner.", labels=labels
            ),
        }
        for ring in self.rings.values():
            values = (ring.target, ring.rank)
            gauges["alive"].add_metric(values, float(ring.alive))
            gauges["disabled"].add_metric(values, float(ring.counters.disabled > 0))
            gauges["age"].add_metric(values, ring.heartbeat_age_s)
            counters["read"].add_metric(values, ring.read)
            counters["lost"].add_metric(values, ring.lost)
            counters["torn"].add_metric(values, ring.torn)
            counters["failures"].add_metric(values, ring.counters.failures)
            counters["unmatched"].add_metric(values, ring.counters.unmatched)
        yield from gauges.values()
        yield from counters.values()

    def _readings(self) -> Iterator[Metric]:
        by_name: dict[str, list[Reading]] = {}
        for reading in self.readings():
            by_name.setdefault(reading.name, []).append(reading)
        for name, readings in by_name.items():
            quantity = self.quantities[name]
            # Not all series of a name have all labels: a process that has no rank has an empty one.
            labels = quantity.labels
            family = GaugeMetricFamily(metric_name(name), quantity.help, labels=("target", *labels))
            for reading in readings:
                values = dict(reading.labels)
                family.add_metric((reading.target, *(values.get(label, "") for label in labels)), reading.value)
            yield family

    def _store(self) -> Iterator[Metric]:
        store = self.store
        yield GaugeMetricFamily(
            "cyclewatch_store_pending_batches", "Batches waiting for the database.", value=store.pending
        )
        yield CounterMetricFamily("cyclewatch_store_write_failures", "Failed attempts to write.", value=store.failures)
        yield CounterMetricFamily(
            "cyclewatch_store_dropped_rows",
            "Measurements given up while the database was away.",
            value=store.dropped,
        )


def metric_name(reading: str) -> str:
    """Prometheus name of a reading: `engine.ttft_mean_s` is `cyclewatch_engine_ttft_mean_seconds`."""
    name = reading.replace(".", "_")
    if name.endswith("_per_s"):
        name = name.removesuffix("_s") + "_second"
    elif name.endswith("_s"):
        name = name.removesuffix("_s") + "_seconds"
    return f"cyclewatch_{name}"
