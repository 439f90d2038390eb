from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cyclewatch.collectors.records import Reading, RingCounters
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_state import PhaseState, RingState, StoreState, metric_name

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics.txt"


def small_state() -> Metrics:
    """One server with one rank, and the daemon's own numbers after one turn."""
    metrics = Metrics()
    metrics.state.phases = {
        "a": PhaseState(
            *("server", "tp0", "decode", 0.005, 1.21, 1.0),
            regression_open=True,
            stages_s=(0.001, 0.0, 0.003, 0.0, 0.0005, 0.0005),
            regressions_began_s={"level": 1_800_000_000.0},
        ),
        "b": PhaseState("server", "tp0", "extend", 0.05, None, 0.25, regression_open=False),
    }
    counters = RingCounters(written=1000, failures=2, unmatched=3, heartbeat_ns=5, disabled=1)
    metrics.state.rings = {"a": RingState("server", "tp0", counters, 990, 7, 1, alive=True, heartbeat_age_s=0.5)}
    metrics.state.quantities = known_quantities()
    main_thread = (("process", "scheduler"), ("rank", "tp0"), ("thread", "main"))
    readings = [
        Reading("server", "engine.running_requests", 12.0),
        Reading("server", "engine.ttft_mean_s", 0.25),
        Reading("server", "host.on_cpu_ratio", 0.9, main_thread),
        Reading("server", "host.on_cpu_ratio", 0.1, (("process", "main"), ("thread", "others"))),
    ]
    metrics.state.readings = lambda: readings
    metrics.collector_seconds.labels("cycles").observe(0.002)
    metrics.collector_success.labels("cycles").set(1)
    metrics.collector_last.labels("cycles").set(1_800_000_000)
    metrics.collector_failures.labels("cycles").inc(0)
    metrics.collector_missed.labels("cycles").inc()
    metrics.collector_overdue.labels("cycles").set(0)
    metrics.records_refused.labels("late").inc(4)
    metrics.regressions.labels("server").inc()
    metrics.suspicions.labels("server").inc(3)
    metrics.outbox_pending.labels("oncall").set(2)
    metrics.outbox_oldest.labels("oncall").set(12.5)
    metrics.outbox_dead.labels("oncall").set(1)
    metrics.deliveries.labels("oncall", "delivered").inc(4)
    metrics.incident_messages.labels("opened").inc(2)
    metrics.state.incidents = {("open", "critical"): 1, ("silenced", "info"): 2}
    metrics.state.store = StoreState(pending=2, failures=5, dropped=7)
    metrics.turn_seconds.observe(0.003)
    return metrics


def page(metrics: Metrics) -> str:
    """What Prometheus gets, without the times at which counters were made."""
    lines = generate_latest(metrics.page).decode().splitlines(keepends=True)
    return "".join(line for line in lines if "_created" not in line)


def test_the_page_of_a_small_state_is_the_golden_one() -> None:
    """Names, help texts, labels and values; people build dashboards on them."""
    assert page(small_state()) == GOLDEN.read_text()


def test_the_page_can_be_parsed_and_has_no_series_twice() -> None:
    families = list(text_string_to_metric_families(page(small_state())))
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples]
    assert len(series) == len(set(series)) > 40


def test_every_metric_is_explained_and_named_by_the_conventions() -> None:
    """A prefix, base units, a sentence."""
    for family in text_string_to_metric_families(page(small_state())):
        assert family.name.startswith("cyclewatch_")
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_s", "_ns", "_ms", "_percent"))


def test_an_empty_daemon_has_a_page_too() -> None:
    """The first scrape comes before the first turn."""
    assert "cyclewatch_samples_dropped_total 0.0" in page(Metrics())


def test_two_daemons_in_one_process_do_not_meet() -> None:
    """A registry each, none global."""
    small_state()
    small_state()


@pytest.mark.parametrize(
    ("reading", "name"),
    [
        ("engine.ttft_mean_s", "cyclewatch_engine_ttft_mean_seconds"),
        ("engine.tokens_per_s", "cyclewatch_engine_tokens_per_second"),
        ("host.on_cpu_ratio", "cyclewatch_host_on_cpu_ratio"),
        ("engine.queue_requests", "cyclewatch_engine_queue_requests"),
        ("x.processes", "cyclewatch_x_processes"),
    ],
)
def test_names_of_readings_become_names_of_metrics(reading: str, name: str) -> None:
    assert metric_name(reading) == name


def test_the_split_is_the_mean_over_the_ranks() -> None:
    """A rank whose split is not known is left out of it."""
    metrics = Metrics()
    metrics.state.phases = {
        rank: PhaseState("server", rank, "decode", 0.005, 1.0, 1.0, regression_open=False, stages_s=stages_s)
        for rank, stages_s in (("tp0", (0.001,) * 6), ("tp1", (0.003,) * 6), ("tp2", ()))
    }
    labels = {"target": "server", "phase": "decode", "stage": "launch"}
    assert metrics.registry.get_sample_value("cyclewatch_cycle_stage_seconds", labels) == pytest.approx(0.002)


def test_a_label_that_some_series_do_not_have_is_empty_there() -> None:
    """Never the value of another label."""
    registry = small_state().registry
    labels = {"target": "server", "process": "main", "rank": "", "thread": "others"}
    assert registry.get_sample_value("cyclewatch_host_on_cpu_ratio", labels) == 0.1
