"""What is kept of SGLang's /metrics: its names on one side, readings on the other.

SGLang's vocabulary changed between 0.5.4 and 0.5.23. Where both have a series for the same thing, the reading
is the same; where only one has it, the reading is there for that one only. All ranks of one server are put
together: those of a tensor- or pipeline-parallel group tell the same and count once, those of different
data-parallel groups add up.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cyclewatch.collectors.prometheus_text import Labels, Page, TextParser
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import Reading

_SAME_GROUP = {"tp_rank", "pp_rank", "moe_ep_rank"}
_BREAKDOWN = "priority"
_PARTS_MAX = 32
_PART_NAME_MAX = 40


@dataclass(frozen=True)
class Series:
    """All series of one name, or those among them that have a certain label."""

    name: str
    label: tuple[str, str] | None = None


@dataclass(frozen=True)
class Gauge:
    """A reading that is a value on the page."""

    reading: str
    series: Series
    over_groups: Callable[[Iterable[float]], float]
    zero_means_none: bool = False
    without: str = ""
    """A series that tells it better: where that one is on the page, this reading is made of it."""


@dataclass(frozen=True)
class Rate:
    """A reading that is the increase of counters in a second."""

    reading: str
    series: tuple[Series, ...]
    over_groups: Callable[[Iterable[float]], float] = sum


@dataclass(frozen=True)
class Quotient:
    """A reading that is the increase of some counters over that of others; none where the others stood still.

    With `by`, a label on SGLang's page and the one it becomes here, there is a reading for each of its values.
    """

    reading: str
    over: tuple[Series, ...]
    under: tuple[Series, ...]
    by: tuple[str, str] | None = None


def _average(values: Iterable[float]) -> float:
    """The mean; infinite where the sum is, in place of an error."""
    values = list(values)
    return sum(values) / len(values)


def _mean(histogram: str, reading: str) -> Quotient:
    return Quotient(reading, (Series(f"{histogram}_sum"),), (Series(f"{histogram}_count"),))


_DECODE = Series("sglang:realtime_tokens_total", ("mode", "decode"))
_PREFILL = Series("sglang:realtime_tokens_total", ("mode", "prefill_compute"))
_PREFILL_CACHED = Series("sglang:realtime_tokens_total", ("mode", "prefill_cache"))
_GENERATED = Series("sglang:generation_tokens_total")
_PROMPT = Series("sglang:prompt_tokens_total")
_PROMPT_CACHED = Series("sglang:cached_tokens_total")
_PASSES = "sglang:cuda_graph_passes_total"
_DECODE_GRAPH, _DECODE_PLAIN = Series(_PASSES, ("mode", "decode_cuda_graph")), Series(_PASSES, ("mode", "decode_none"))
_STAGES = Series("sglang:scheduler_stage_seconds_total")
"""Its categories exclude each other and add up to the time of the scheduler's loop. SGLang writes it, idle and CPU time
together, once a second: their quotients are exact, while rates over the time between two readings would swing."""

GAUGES = (
    Gauge("engine.running_requests", Series("sglang:num_running_reqs"), sum),
    Gauge("engine.queued_requests", Series("sglang:num_queue_reqs"), sum),
    # The fullest group is the one that makes requests wait.
    Gauge("engine.kv_used_ratio", Series("sglang:token_usage"), max),
    # 0 is what SGLang gives without speculative decoding; with it, there is at least one token a step.
    Gauge("engine.spec_accept_length", Series("sglang:spec_accept_length"), _average, zero_means_none=True),
    Gauge("engine.spec_accept_ratio", Series("sglang:spec_accept_rate"), _average, zero_means_none=True),
    Gauge("engine.kv_used_tokens", Series("sglang:num_used_tokens"), sum),
    # Of the latest batch alone, until there was a counter.
    Gauge("engine.cuda_graph_ratio", Series("sglang:is_cuda_graph"), _average, without=_PASSES),
)
# Of several ways to the same reading the first counts whose series are on the page. `realtime` counters
# (0.5.23) go up with every step, the others only when a request ends.
INCREASES: tuple[Rate | Quotient, ...] = (
    Rate("engine.generation_tokens_per_s", (_DECODE,)),
    Rate("engine.generation_tokens_per_s", (_GENERATED,)),
    Rate("engine.prompt_tokens_per_s", (_PREFILL, _PREFILL_CACHED)),
    Rate("engine.prompt_tokens_per_s", (_PROMPT,)),
    Rate("engine.requests_per_s", (Series("sglang:num_requests_total"),)),
    Rate("engine.aborted_requests_per_s", (Series("sglang:num_aborted_requests_total"),)),
    Rate("engine.retracted_requests_per_s", (Series("sglang:num_retracted_requests_total"),)),
    Rate("engine.retracted_tokens_per_s", (Series("sglang:num_retracted_output_tokens_total"),)),
    Quotient("engine.cuda_graph_ratio", (_DECODE_GRAPH,), (_DECODE_GRAPH, _DECODE_PLAIN)),
    Quotient("engine.scheduler_stage_ratio", (_STAGES,), (_STAGES,), by=("category", "stage")),
    Quotient("engine.scheduler_idle_ratio", (Series("sglang:scheduler_idle_seconds_total"),), (_STAGES,)),
    Quotient("engine.scheduler_cpu_ratio", (Series("sglang:scheduler_process_cpu_seconds_total"),), (_STAGES,)),
    Quotient(
        "engine.forward_ratio",
        (Series("sglang:forward_execution_seconds_total"),),
        (_STAGES,),
        by=("category", "mode"),
    ),
    Rate("engine.estimated_flops_per_s", (Series("sglang:estimated_flops_per_gpu_total"),), _average),
    Rate("engine.estimated_read_bytes_per_s", (Series("sglang:estimated_read_bytes_per_gpu_total"),), _average),
    Rate("engine.estimated_write_bytes_per_s", (Series("sglang:estimated_write_bytes_per_gpu_total"),), _average),
    Quotient("engine.cache_hit_ratio", (_PREFILL_CACHED,), (_PREFILL, _PREFILL_CACHED)),
    Quotient("engine.cache_hit_ratio", (_PROMPT_CACHED,), (_PROMPT,)),
    _mean("sglang:time_to_first_token_seconds", "engine.ttft_mean_s"),
    _mean("sglang:inter_token_latency_seconds", "engine.itl_mean_s"),
    _mean("sglang:e2e_request_latency_seconds", "engine.e2e_mean_s"),
    _mean("sglang:queue_time_seconds", "engine.queue_time_mean_s"),
)


def _series(source: Gauge | Rate | Quotient) -> tuple[Series, ...]:
    if isinstance(source, Gauge):
        return (source.series,)
    return source.series if isinstance(source, Rate) else (*source.over, *source.under)


_HELP = {
    "engine.running_requests": "Requests in the running batch.",
    "engine.queued_requests": "Requests that wait.",
    "engine.kv_used_ratio": "Share of the KV cache in use, in the fullest group.",
    "engine.spec_accept_length": "Tokens accepted in one step of speculative decoding.",
    "engine.spec_accept_ratio": "Share of the drafted tokens that speculative decoding accepted.",
    "engine.kv_used_tokens": "Tokens held in the KV cache.",
    "engine.cuda_graph_ratio": "Share of the decode batches that ran as CUDA graphs (0.5.4: did the last).",
    "engine.generation_tokens_per_s": "Tokens generated.",
    "engine.prompt_tokens_per_s": "Prompt tokens taken in, cached ones among them.",
    "engine.requests_per_s": "Requests ended.",
    "engine.aborted_requests_per_s": "Requests given up.",
    "engine.retracted_requests_per_s": "Requests put back into the queue for want of KV cache.",
    "engine.retracted_tokens_per_s": "Tokens generated by requests that were put back, to be computed again.",
    "engine.scheduler_stage_ratio": "Share of the scheduler's loop spent in a stage; the stages add up to 1.",
    "engine.scheduler_idle_ratio": "Share of the scheduler's loop in which there was nothing to do.",
    "engine.scheduler_cpu_ratio": "CPU time of the scheduler process, all threads, over the time of its loop.",
    "engine.forward_ratio": "Share of the time the GPU spent in forward passes of a mode; SGLang must be started with "
    "SGLANG_ENABLE_METRICS_DEVICE_TIMER=1.",
    "engine.estimated_flops_per_s": "Operations of one GPU as SGLang estimates them; --enable-mfu-metrics.",
    "engine.estimated_read_bytes_per_s": "Bytes one GPU reads from its memory, as SGLang estimates them.",
    "engine.estimated_write_bytes_per_s": "Bytes one GPU writes to its memory, as SGLang estimates them.",
    "engine.cache_hit_ratio": "Share of the prompt tokens found in the prefix cache.",
    "engine.ttft_mean_s": "Mean time to the first token.",
    "engine.itl_mean_s": "Mean time between two tokens of a request.",
    "engine.e2e_mean_s": "Mean time from a request to its end.",
    "engine.queue_time_mean_s": "Mean time a request waited before its first batch.",
}
QUANTITIES = tuple(
    Quantity(
        reading,
        text,
        ", ".join(
            {series.name: None for one in (*GAUGES, *INCREASES) if one.reading == reading for series in _series(one)}
        ),
        "engine.interval_s",
        tuple(
            sorted({one.by[1] for one in INCREASES if isinstance(one, Quotient) and one.reading == reading and one.by})
        ),
        cost="in one reading of /metrics",
    )
    for reading, text in _HELP.items()
)
PARSER = TextParser({series.name for source in (*GAUGES, *INCREASES) for series in _series(source)})
"""Parser of all names that any reading needs, and of no others."""


def gauges(target: str, page: Page) -> Iterator[Reading]:
    """Readings that one page is enough for."""
    # With priorities, SGLang gives the total without one, and every priority again.
    for gauge in GAUGES:
        if gauge.without in page:
            continue
        groups = _by_group(gauge.series, page)
        values = [value for group, value in groups.items() if not dict(group).get(_BREAKDOWN)]
        if gauge.zero_means_none:
            values = [value for value in values if value]
        if values:
            yield from _reading(target, gauge.reading, gauge.over_groups(values))


def restarted(before: Page, after: Page) -> bool:
    """Whether a counter went backwards, as it does only where the server has begun anew."""
    # The sum of a histogram may go down by itself: older servers add differences of the wall clock.
    counters = ("_total", "_count")
    return any(
        after.get(name, {}).get(labels, math.inf) < value
        for name, values in before.items()
        if name.endswith(counters)
        for labels, value in values.items()
    )


def increases(target: str, before: Page, after: Page, elapsed_s: float) -> Iterator[Reading]:
    """Readings from the increase of counters between two pages of one run of a server, `elapsed_s` apart.

    A counter that was not there before began at zero: SGLang makes many of them at their first use.
    """
    delta = {
        name: {labels: value - before.get(name, {}).get(labels, 0.0) for labels, value in values.items()}
        for name, values in after.items()
    }
    done = set()
    for source in INCREASES:
        on_page = [list(_by_group(series, delta).values()) for series in _series(source)]
        if source.reading in done or not any(on_page) or elapsed_s <= 0:
            continue
        done.add(source.reading)
        if isinstance(source, Rate):
            total = sum(map(source.over_groups, filter(None, on_page)))
            yield from _reading(target, source.reading, total / elapsed_s)
            continue
        under = sum(map(sum, on_page[len(source.over) :]))
        if under <= 0:
            continue
        if source.by is None:
            yield from _reading(target, source.reading, sum(map(sum, on_page[: len(source.over)])) / under)
            continue
        theirs, ours = source.by
        for name, part in _parts(source.over, delta, theirs):
            yield from _reading(target, source.reading, part / under, ((ours, name),))


def _parts(series: Iterable[Series], page: Page, label: str) -> list[tuple[str, float]]:
    """Sums by the values of a label; of these only names as SGLang has them, and not without end."""
    parts: dict[str, float] = {}
    for one in series:
        for group, value in _by_group(one, page).items():
            name = dict(group).get(label, "")
            if name.isidentifier() and len(name) <= _PART_NAME_MAX:
                parts[name] = parts.get(name, 0.0) + value
    return sorted(parts.items())[:_PARTS_MAX]


def _by_group(series: Series, page: Page) -> dict[Labels, float]:
    """Finite values of a series by its labels without those that tell ranks of one group apart."""
    groups: dict[Labels, float] = {}
    for labels, value in page.get(series.name, {}).items():
        if math.isfinite(value) and (series.label is None or series.label in labels):
            group = tuple(label for label in labels if label[0] not in _SAME_GROUP)
            groups[group] = max(value, groups.get(group, -math.inf))
    return groups


def _reading(target: str, name: str, value: float, labels: Labels = ()) -> Iterator[Reading]:
    """The reading, unless it cannot be one: NaN, infinite or negative."""
    if math.isfinite(value) and value >= 0:
        yield Reading(target, name, value, labels)
