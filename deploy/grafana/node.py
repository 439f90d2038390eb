"""The dashboard of a node: did serving get slower, where does a cycle go, and what else changed there and then."""

from panels import Annotation, Dashboard, Panel, Query, Row, Variable

_SERVER = 'instance="$instance", target=~"$target"'
_NODE = 'instance="$instance"'


def _by(labels: str, metric: str, *conditions: str, how: str = "max") -> str:
    """A metric of the chosen servers, one series for each value of `labels`."""
    return f"{how} by ({labels}) ({metric}{{{', '.join((_SERVER, *conditions))}}})"


def _node_by(labels: str, metric: str, *conditions: str, how: str = "max") -> str:
    """The same of what belongs to no server alone."""
    return f"{how} by ({labels}) ({metric}{{{', '.join((_NODE, *conditions))}}})"


def _split(phase: str) -> Panel:
    expr = _by("stage", "cyclewatch_cycle_stage_seconds", f'phase="{phase}"', how="avg")
    text = "Mean of the last window by the stage of the scheduler's loop, over ranks and servers."
    return Panel(f"A cycle of {phase}", text, "s", [Query(expr, "{{stage}}")], stacked=True)


def _thread(metric: str) -> str:
    return _by("target, rank", metric, 'process="scheduler"', 'thread="main"')


_SLOWER = Row(
    "Is serving slower?",
    (
        Panel(
            "Open incidents",
            "Slowdowns that are confirmed and that nobody has dealt with, by severity.",
            "none",
            [Query(_node_by("severity", "cyclewatch_incidents", 'state="open"', how="sum"), "{{severity}}")],
            kind="stat",
            width=8,
            bad=1,
        ),
        Panel(
            "Open regressions",
            "Series (server, rank and phase) that are slower than their baseline.",
            "none",
            [Query(f"sum(cyclewatch_regression_open{{{_SERVER}}})", "regressions")],
            kind="stat",
            width=4,
            bad=1,
        ),
        Panel(
            "Slowest against expected",
            "Cycle time over what the workload model expects of the load, of the slowest series. 100 % is as ever.",
            "percentunit",
            [Query(f"max(cyclewatch_cycle_expected_ratio{{{_SERVER}}})", "slowest")],
            kind="stat",
            width=6,
            warn=1.05,
            bad=1.25,
        ),
        Panel(
            "Baseline seen",
            "How much of the baseline has been learned, of the youngest series. Below 100 % nothing is judged.",
            "percentunit",
            [Query(f"min(cyclewatch_baseline_progress_ratio{{{_SERVER}}})", "youngest")],
            kind="stat",
            width=6,
        ),
        Panel(
            "Cycle time against expected",
            "The slowest rank of each phase: the others wait for it. What the load explains is taken out.",
            "percentunit",
            [Query(_by("target, phase", "cyclewatch_cycle_expected_ratio"), "{{target}} {{phase}}")],
        ),
        Panel(
            "Cycle time",
            "Median of the last window, as a mean over the ranks; dashed, what was expected of its load.",
            "s",
            [
                Query(_by("target, phase", "cyclewatch_cycle_median_seconds", how="avg"), "{{target}} {{phase}}"),
                Query(
                    f"avg by (target, phase) (cyclewatch_cycle_median_seconds{{{_SERVER}}}"
                    f" / cyclewatch_cycle_expected_ratio{{{_SERVER}}})",
                    "{{target}} {{phase}}, expected",
                    dashed=True,
                ),
            ],
        ),
        Panel(
            "Regressions",
            "While any rank of the phase has an open regression. Red marks on all panels show where each began.",
            "none",
            [Query(_by("target, phase", "cyclewatch_regression_open"), "{{target}} {{phase}}")],
            kind="state-timeline",
            width=24,
            bad=1,
        ),
    ),
)

_SPLIT = Row(
    "Where a cycle goes",
    (
        _split("decode"),
        _split("extend"),
        Panel(
            "Lost between cycles",
            "Requests waited and no batch could be made; Python's garbage collector stopped the scheduler.",
            "percentunit",
            [
                Query(_by("target", "cyclewatch_cycles_stalled_ratio"), "{{target}} stalled"),
                Query(_by("target", "cyclewatch_cycles_collected_ratio"), "{{target}} garbage collection"),
            ],
        ),
        Panel(
            "Scheduler's loop, as SGLang tells it",
            "Share of each stage; only of versions that tell it.",
            "percentunit",
            [Query(_by("stage", "cyclewatch_engine_scheduler_stage_ratio", how="avg"), "{{stage}}")],
            stacked=True,
        ),
    ),
)

_FELT = Row(
    "What users feel",
    (
        Panel(
            "Time to the first token",
            "Mean between two readings of SGLang's metrics.",
            "s",
            [Query(_by("target", "cyclewatch_engine_ttft_mean_seconds"), "{{target}}")],
        ),
        Panel(
            "Time between tokens",
            "Mean between two readings of SGLang's metrics.",
            "s",
            [Query(_by("target", "cyclewatch_engine_itl_mean_seconds"), "{{target}}")],
        ),
        Panel(
            "Tokens per second",
            "Generated, and taken in with prompts.",
            "short",
            [
                Query(_by("target", "cyclewatch_engine_generation_tokens_per_second"), "{{target}} generated"),
                Query(_by("target", "cyclewatch_engine_prompt_tokens_per_second"), "{{target}} prompts"),
            ],
        ),
        Panel(
            "Requests",
            "Running in the batch, and waiting.",
            "none",
            [
                Query(_by("target", "cyclewatch_engine_running_requests"), "{{target}} running"),
                Query(_by("target", "cyclewatch_engine_queued_requests"), "{{target}} waiting"),
            ],
        ),
    ),
)

_HOST = Row(
    "Host",
    (
        Panel(
            "Scheduler's main thread",
            "On a CPU, and ready to run without one: then something else has the cores.",
            "percentunit",
            [
                Query(_thread("cyclewatch_host_on_cpu_ratio"), "{{target}} {{rank}} on a CPU"),
                Query(_thread("cyclewatch_host_run_queue_wait_ratio"), "{{target}} {{rank}} waits for one"),
            ],
        ),
        Panel(
            "Its core, held back",
            "Frequency of the highest possible; time slowed by heat, and held by the CPU limit of the control group.",
            "percentunit",
            [
                Query(_by("target, rank", "cyclewatch_host_cpu_frequency_ratio"), "{{target}} {{rank}} frequency"),
                Query(_by("target, rank", "cyclewatch_host_core_throttled_ratio"), "{{target}} {{rank}} heat"),
                Query(_by("target, rank", "cyclewatch_host_cgroup_throttled_ratio"), "{{target}} {{rank}} CPU limit"),
            ],
        ),
        Panel(
            "CPUs of the node",
            "Share that is used, and by whom: the five other programs that use most, in whole CPUs.",
            "short",
            [
                Query(f"cyclewatch_host_cpu_usage_ratio{{{_NODE}}}", "share of all"),
                Query(_node_by("command", "cyclewatch_host_other_command_ratio", how="sum"), "{{command}}"),
            ],
        ),
        Panel(
            "Pressure",
            "Share of the time in which some work of the node waited for a resource.",
            "percentunit",
            [Query(_node_by("resource", "cyclewatch_host_pressure_ratio", 'kind="some"'), "{{resource}}")],
        ),
    ),
)

_GPU = Row(
    "GPUs",
    (
        Panel(
            "SM clock",
            "What it runs at.",
            "hertz",
            [Query(_node_by("gpu", "cyclewatch_gpu_sm_clock_hertz"), "GPU {{gpu}}")],
        ),
        Panel(
            "Clock held down",
            "Share of the time by reason; an idle GPU is held down by idleness, which is no fault.",
            "percentunit",
            [Query(_node_by("gpu, reason", "cyclewatch_gpu_event_reason_ratio"), "GPU {{gpu}} {{reason}}")],
        ),
        Panel(
            "Power",
            "Drawn; dashed, the limit that holds.",
            "watt",
            [
                Query(_node_by("gpu", "cyclewatch_gpu_power_watts"), "GPU {{gpu}}"),
                Query(
                    _node_by("gpu", "cyclewatch_gpu_power_limit_watts", 'limit="enforced"'),
                    "GPU {{gpu}}, limit",
                    dashed=True,
                ),
            ],
        ),
        Panel(
            "Temperature",
            "Of the chip.",
            "celsius",
            [Query(_node_by("gpu", "cyclewatch_gpu_temperature_celsius"), "GPU {{gpu}}")],
        ),
        Panel(
            "Busy",
            "Time in which any kernel ran, and share of the SMs that had work, where the chip tells it.",
            "percentunit",
            [
                Query(_node_by("gpu", "cyclewatch_gpu_utilization_ratio"), "GPU {{gpu}} any kernel"),
                Query(_node_by("gpu", "cyclewatch_gpu_sm_ratio"), "GPU {{gpu}} SMs"),
            ],
        ),
        Panel(
            "Traffic",
            "From and to each GPU, over PCIe and NVLink.",
            "Bps",
            [
                Query(_node_by("gpu", "cyclewatch_gpu_pcie_sent_bytes_per_second"), "GPU {{gpu}} PCIe, sent"),
                Query(_node_by("gpu", "cyclewatch_gpu_pcie_received_bytes_per_second"), "GPU {{gpu}} PCIe, received"),
                Query(_node_by("gpu", "cyclewatch_gpu_nvlink_sent_bytes_per_second"), "GPU {{gpu}} NVLink, sent"),
                Query(
                    _node_by("gpu", "cyclewatch_gpu_nvlink_received_bytes_per_second"), "GPU {{gpu}} NVLink, received"
                ),
            ],
        ),
        Panel(
            "Errors",
            "Of memory and links, in a second. Corrected ones cost time too.",
            "short",
            [
                Query(_node_by("gpu, kind", "cyclewatch_gpu_ecc_errors_per_second"), "GPU {{gpu}} ECC {{kind}}"),
                Query(_node_by("gpu, kind", "cyclewatch_gpu_pcie_errors_per_second"), "GPU {{gpu}} PCIe {{kind}}"),
                Query(_node_by("gpu, kind", "cyclewatch_gpu_nvlink_errors_per_second"), "GPU {{gpu}} NVLink {{kind}}"),
            ],
        ),
        Panel(
            "Memory",
            "Share in use.",
            "percentunit",
            [Query(_node_by("gpu", "cyclewatch_gpu_memory_used_ratio"), "GPU {{gpu}}")],
        ),
    ),
)

NODE = Dashboard(
    uid="cyclewatch-node",
    title="cyclewatch: node",
    help="Did serving get slower, where does a cycle go, and what else changed there and then?",
    variables=(
        Variable("instance", "Node", "label_values(cyclewatch_profiling_on, instance)"),
        Variable("target", "Server", 'label_values(cyclewatch_hook_alive{instance="$instance"}, target)', several=True),
    ),
    annotations=(
        Annotation(
            "Regressions",
            f"1000 * cyclewatch_regression_began_timestamp_seconds{{{_SERVER}}}",
            "{{target}} {{rank}}: {{phase}} became slower",
            "kind: {{kind}}",
        ),
    ),
    rows=(_SLOWER, _SPLIT, _FELT, _HOST, _GPU),
)
