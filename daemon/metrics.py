"""What Prometheus reads: what this daemon counts, and the state of every target as the last turn left it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cyclewatch.daemon.metrics_page import MetricsPage
from cyclewatch.daemon.metrics_state import StateCollector


class Metrics:
    """All metrics of one daemon, on a registry of their own; `page` is what a scrape shows of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.page = MetricsPage(self.registry)
        self.state = StateCollector()
        labels = ("collector",)
        self.collector_seconds = Histogram(
            "cyclewatch_collector_duration_seconds",
            "Duration of one collection.",
            labels,
            registry=self.registry,
            buckets=(0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
        )
        self.collector_success = Gauge(
            "cyclewatch_collector_success", "1 if the last collection worked.", labels, registry=self.registry
        )
        self.collector_last = Gauge(
            "cyclewatch_collector_last_success_timestamp_seconds",
            "When the collector last worked; until it first did, when the daemon started.",
            labels,
            registry=self.registry,
        )
        self.collector_failures = Counter(
            "cyclewatch_collector_failures",
            "Collections or single sources that failed.",
            labels,
            registry=self.registry,
        )
        self.collector_missed = Counter(
            "cyclewatch_collector_missed_runs",
            "Scheduled runs left out: the one before had not ended, the machine was too busy, or sampling was paused.",
            labels,
            registry=self.registry,
        )
        self.collector_overdue = Gauge(
            "cyclewatch_collector_overdue",
            "1 while a collection is past its deadline.",
            labels,
            registry=self.registry,
        )
        self.samples_dropped = Counter(
            "cyclewatch_samples_dropped",
            "Samples dropped because the pipeline was behind.",
            registry=self.registry,
        )
        self.records_refused = Counter(
            "cyclewatch_records_refused",
            "Cycle records that were implausible or too late for their window.",
            ("reason",),
            registry=self.registry,
        )
        self.regressions = Counter(
            "cyclewatch_regressions_confirmed", "Regressions confirmed.", ("target",), registry=self.registry
        )
        self.suspicions = Counter(
            "cyclewatch_suspicions",
            "Windows in which a series was under suspicion.",
            ("target",),
            registry=self.registry,
        )
        self.profiles = Counter(
            "cyclewatch_profiles",
            "Kernel profiles, by what they were taken for and what came of them.",
            ("target", "reason", "state"),
            registry=self.registry,
        )
        self.profile_exposure = Counter(
            "cyclewatch_profile_exposure_seconds",
            "Time in which the server was being profiled.",
            ("target",),
            registry=self.registry,
        )
        self.profile_stall = Gauge(
            "cyclewatch_profile_stall_seconds",
            "How much longer the longest cycle of the last profile was than any before it.",
            ("target",),
            registry=self.registry,
        )
        self.profile_after = Gauge(
            "cyclewatch_profile_after_ratio",
            "Median cycle after the last profile over the same load before it.",
            ("target",),
            registry=self.registry,
        )
        self.profiling_enabled = Gauge(
            "cyclewatch_profiling_enabled",
            "1 where the configuration lets profiles be taken.",
            registry=self.registry,
        )
        self.profiling_on = Gauge(
            "cyclewatch_profiling_on",
            "0 while no profiles are taken: disabled, over their budget, or switched off.",
            registry=self.registry,
        )
        self.probes = Counter(
            "cyclewatch_probes",
            "Probes, by what they were taken for and what they said of the machine.",
            ("reason", "verdict"),
            registry=self.registry,
        )
        self.incident_messages = Counter(
            "cyclewatch_incident_messages",
            "What was told of incidents, however many sinks there are.",
            ("state",),
            registry=self.registry,
        )
        self.outbox_pending = Gauge(
            "cyclewatch_outbox_pending", "Messages that wait to be sent.", ("sink",), registry=self.registry
        )
        self.outbox_oldest = Gauge(
            "cyclewatch_outbox_oldest_pending_seconds",
            "For how long the oldest of them has waited; 0 where none does.",
            ("sink",),
            registry=self.registry,
        )
        self.outbox_dead = Gauge(
            "cyclewatch_outbox_dead",
            "Messages that were given up; `cyclewatch outbox list --dead` shows them.",
            ("sink",),
            registry=self.registry,
        )
        self.deliveries = Counter(
            "cyclewatch_deliveries",
            "Attempts at sending: delivered, retried, refused, given_up.",
            ("sink", "outcome"),
            registry=self.registry,
        )
        self.picture_failures = Counter(
            "cyclewatch_picture_failures",
            "Messages that went without their picture, because it could not be drawn.",
            registry=self.registry,
        )
        self.api_refused = Counter(
            "cyclewatch_api_refused",
            "Questions to the API that were not let in: no_token, wrong_token, act, address, host, unusable.",
            ("reason",),
            registry=self.registry,
        )
        self.reloads = Counter(
            "cyclewatch_configuration_reloads",
            "Times that the configuration was read again: applied, or refused since it was wrong.",
            ("result",),
            registry=self.registry,
        )
        self.turn_seconds = Histogram(
            "cyclewatch_turn_duration_seconds",
            "Duration of one turn of the pipeline.",
            registry=self.registry,
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0),
        )
        self.registry.register(self.state)  # last, since its readings are what a full page can do without
