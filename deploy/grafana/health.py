"""The dashboard of cyclewatch itself: does it see everything, keep up, tell, and at what cost?"""

from panels import Dashboard, Panel, Query, Row, Variable

_OWN = 'instance="$instance"'


def _own(metric: str, by: str = "", how: str = "max") -> str:
    return f"{how} by ({by}) ({metric}{{{_OWN}}})" if by else f"{metric}{{{_OWN}}}"


def _rate(counter: str, by: str = "") -> str:
    rate = f"rate({counter}{{{_OWN}}}[$__rate_interval])"
    return f"sum by ({by}) ({rate})" if by else f"sum({rate})"


def _p95(histogram: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.95, {_rate(f'{histogram}_bucket', labels)})"


_WELL = Row(
    "Is it well?",
    (
        Panel(
            "Hooks that write",
            "Ranks whose cycles are read.",
            "none",
            [Query(f"sum(cyclewatch_hook_alive{{{_OWN}}})", "ranks")],
            kind="stat",
            width=4,
        ),
        Panel(
            "Hooks that switched themselves off",
            "Until SGLang is started again.",
            "none",
            [Query(f"sum(cyclewatch_hook_disabled{{{_OWN}}})", "ranks")],
            kind="stat",
            width=4,
            bad=1,
        ),
        Panel(
            "Profiling",
            "1 while kernel profiles are taken.",
            "none",
            [Query(_own("cyclewatch_profiling_on"), "on")],
            kind="stat",
            width=4,
        ),
        Panel(
            "CPU",
            "Of one core; 2 % is the aim.",
            "percentunit",
            [Query(_own("cyclewatch_self_cpu_ratio"), "CPU")],
            kind="stat",
            width=4,
            warn=0.05,
            bad=0.2,
        ),
        Panel(
            "Memory",
            "150 MB is the aim.",
            "decbytes",
            [Query(_own("cyclewatch_self_rss_bytes"), "RSS")],
            kind="stat",
            width=4,
            warn=200e6,
            bad=400e6,
        ),
        Panel(
            "Series left out",
            "Of /metrics, for want of room.",
            "none",
            [Query(_own("cyclewatch_series_left_out"), "series")],
            kind="stat",
            width=4,
            bad=1,
        ),
    ),
)

_KEEPS_UP = Row(
    "Does it keep up?",
    (
        Panel(
            "A turn of the pipeline",
            "One is due every second: the mean, and what 95 % of them stay below.",
            "s",
            [
                Query(
                    f"{_rate('cyclewatch_turn_duration_seconds_sum')}"
                    f" / {_rate('cyclewatch_turn_duration_seconds_count')}",
                    "mean",
                ),
                Query(_p95("cyclewatch_turn_duration_seconds"), "95 %"),
            ],
            bad=0.5,
        ),
        Panel(
            "Collections",
            "What 95 % of each collector's stay below.",
            "s",
            [Query(_p95("cyclewatch_collector_duration_seconds", "collector"), "{{collector}}")],
        ),
        Panel(
            "Collectors that fail",
            "Failures, and runs that were due but left out, in a second.",
            "short",
            [
                Query(_rate("cyclewatch_collector_failures_total", "collector"), "{{collector}} failed"),
                Query(_rate("cyclewatch_collector_missed_runs_total", "collector"), "{{collector}} left out"),
            ],
        ),
        Panel(
            "Age of what collectors gave last",
            "Since they last worked.",
            "s",
            [
                Query(
                    f"time() - {_own('cyclewatch_collector_last_success_timestamp_seconds', 'collector')}",
                    "{{collector}}",
                )
            ],
            bad=600,
        ),
        Panel(
            "Records read from rings",
            "In a second, by server.",
            "short",
            [Query(_rate("cyclewatch_ring_records_read_total", "target"), "{{target}}")],
        ),
        Panel(
            "Lost",
            "In a second: overwritten unread, broken, dropped before the pipeline, given up without a database.",
            "short",
            [
                Query(_rate("cyclewatch_ring_records_lost_total"), "overwritten"),
                Query(_rate("cyclewatch_ring_records_torn_total"), "broken"),
                Query(_rate("cyclewatch_samples_dropped_total"), "dropped"),
                Query(_rate("cyclewatch_store_dropped_rows_total"), "given up"),
            ],
        ),
        Panel(
            "Behind",
            "Age of the newest record read, where more than one waits.",
            "s",
            [Query(_own("cyclewatch_self_ring_behind_seconds", "target, rank"), "{{target}} {{rank}}")],
            bad=10,
        ),
        Panel(
            "Waiting",
            "Samples for the pipeline, batches for the database.",
            "none",
            [Query(_own("cyclewatch_self_queue_length", "queue"), "{{queue}}")],
        ),
    ),
)

_TELLS = Row(
    "Does it tell?",
    (
        Panel(
            "Messages not delivered",
            "Waiting to be sent, and given up, by sink.",
            "none",
            [
                Query(_own("cyclewatch_outbox_pending", "sink"), "{{sink}} waiting"),
                Query(_own("cyclewatch_outbox_dead", "sink"), "{{sink}} given up"),
            ],
        ),
        Panel(
            "Attempts at sending",
            "By sink and by what came of them, in a second.",
            "short",
            [Query(_rate("cyclewatch_deliveries_total", "sink, outcome"), "{{sink}} {{outcome}}")],
        ),
    ),
)

_COSTS = Row(
    "What does it cost?",
    (
        Panel(
            "CPU by thread",
            "Of one core.",
            "percentunit",
            [Query(_own("cyclewatch_self_thread_cpu_ratio", "thread", how="sum"), "{{thread}}")],
            stacked=True,
        ),
        Panel(
            "Memory",
            "Now, and the most there ever was.",
            "decbytes",
            [
                Query(_own("cyclewatch_self_rss_bytes"), "now"),
                Query(_own("cyclewatch_self_rss_peak_bytes"), "most", dashed=True),
            ],
        ),
        Panel(
            "Database",
            "Rows written in a second.",
            "short",
            [Query(_own("cyclewatch_self_store_rows_per_second"), "rows")],
        ),
        Panel(
            "Database, busy",
            "Share of the time in transactions.",
            "percentunit",
            [Query(_own("cyclewatch_self_store_busy_ratio"), "busy")],
        ),
    ),
)

HEALTH = Dashboard(
    uid="cyclewatch-health",
    title="cyclewatch: its own health",
    help="Does it see everything, keep up, tell, and at what cost?",
    variables=(Variable("instance", "Node", "label_values(cyclewatch_profiling_on, instance)"),),
    annotations=(),
    rows=(_WELL, _KEEPS_UP, _TELLS, _COSTS),
)
