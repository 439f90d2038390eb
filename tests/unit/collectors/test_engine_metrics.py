import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.engine_metrics import GAUGES, INCREASES, PARSER, QUANTITIES, gauges, increases, restarted
from cyclewatch.collectors.prometheus_text import Page
from cyclewatch.collectors.records import Reading

FIXTURES = Path(__file__).parents[2] / "fixtures/engine"
LATENCIES = ("time_to_first_token", "inter_token_latency", "e2e_request_latency")


def page(text: str) -> Page:
    return PARSER.parse(text.encode())


def fixture(version: str) -> Page:
    return PARSER.parse((FIXTURES / f"metrics-{version}.txt").read_bytes())


def by_name(readings: list[Reading]) -> dict[str, float]:
    found = {" ".join([reading.name, *(value for _, value in reading.labels)]): reading.value for reading in readings}
    assert len(found) == len(readings)
    assert {reading.target for reading in readings} <= {"t"}
    for reading in readings:
        (quantity,) = (one for one in QUANTITIES if one.name == reading.name)
        assert tuple(name for name, _ in reading.labels) == quantity.labels
    return found


def now(text: str) -> dict[str, float]:
    return by_name(list(gauges("t", page(text))))


def between(before: str, after: str, elapsed_s: float = 10) -> dict[str, float]:
    return by_name(list(increases("t", page(before), page(after), elapsed_s)))


def test_readings_of_a_real_0_5_23() -> None:
    assert by_name(list(gauges("t", fixture("0.5.23")))) == {
        "engine.running_requests": 8,
        "engine.queued_requests": 0,
        "engine.kv_used_ratio": 0.03,
        "engine.kv_used_tokens": 572,
    }
    loop_s = 67.485936501  # all stages together
    assert by_name(list(increases("t", {}, fixture("0.5.23"), 60))) == pytest.approx(
        {
            "engine.generation_tokens_per_s": 86636 / 60,
            "engine.prompt_tokens_per_s": (21639 + 124) / 60,
            "engine.requests_per_s": 906 / 60,
            "engine.cache_hit_ratio": 124 / (21639 + 124),
            "engine.ttft_mean_s": 9.864356890062936 / 910,
            "engine.itl_mean_s": 187.68495489599923 / 41892,
            "engine.e2e_mean_s": 392.4682836449954 / 906,
            "engine.queue_time_mean_s": 0.24173947499480164 / 915,
            "engine.cuda_graph_ratio": 0,
            "engine.scheduler_idle_ratio": 2.180090354 / loop_s,
            "engine.scheduler_cpu_ratio": 65.87459642300001 / loop_s,
            "engine.scheduler_stage_ratio get_next_batch_to_run": 2.6225906039999995 / loop_s,
            "engine.scheduler_stage_ratio idle": 2.178711636 / loop_s,
            "engine.scheduler_stage_ratio other": 0.745609484 / loop_s,
            "engine.scheduler_stage_ratio process_batch_result": 3.421103882000002 / loop_s,
            "engine.scheduler_stage_ratio process_input_requests": 0.2901729469999999 / loop_s,
            "engine.scheduler_stage_ratio process_queue": 0,
            "engine.scheduler_stage_ratio recv_requests": 0.727221531 / loop_s,
            "engine.scheduler_stage_ratio run_batch": 57.499932865000005 / loop_s,
            "engine.scheduler_stage_ratio sanity_check_cache": 0.000593552 / loop_s,
        }
    )


def test_readings_of_a_real_0_5_4() -> None:
    assert by_name(list(gauges("t", fixture("0.5.4")))) == {
        "engine.running_requests": 7,
        "engine.queued_requests": 0,
        "engine.kv_used_ratio": 0.02825927734375,
        "engine.kv_used_tokens": 463,
        "engine.cuda_graph_ratio": 0,
    }
    assert by_name(list(increases("t", {}, fixture("0.5.4"), 60))) == pytest.approx(
        {
            "engine.generation_tokens_per_s": 112845 / 60,
            "engine.prompt_tokens_per_s": 28151 / 60,
            "engine.requests_per_s": 1176 / 60,
            "engine.cache_hit_ratio": 154 / 28151,
            "engine.ttft_mean_s": 205.0964367389679 / 1177,
            "engine.itl_mean_s": 188.09010863304138 / 54087,
            "engine.e2e_mean_s": 392.989328622818 / 1176,
            "engine.queue_time_mean_s": 0.3999961700053518 / 1184,
        }
    )


@pytest.mark.parametrize("version", ["0.5.4", "0.5.23"])
def test_nothing_has_increased_between_a_page_and_itself(version: str) -> None:
    same = fixture(version)
    assert not restarted(same, same)
    found = by_name(list(increases("t", same, same, 10)))
    assert set(found.values()) == {0}
    assert all(name.endswith("_per_s") for name in found)


def test_data_parallel_groups_add_up_and_ranks_of_one_group_count_once() -> None:
    text = "".join(
        f'{name}{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="{pp}",moe_ep_rank="{tp}"}} {value + dp}\n'
        for name, value in (
            ("sglang:num_running_reqs", 3),
            ("sglang:token_usage", 0.5),
            ("sglang:spec_accept_length", 2),
            ("sglang:realtime_tokens_total", 100),
        )
        for dp in (0, 1)
        for tp in (0, 1)
        for pp in (0, 1)
    )  # fmt: skip
    assert now(text) == {
        "engine.running_requests": 7,
        "engine.kv_used_ratio": 1.5,
        "engine.spec_accept_length": 2.5,
    }


def test_priorities_break_the_total_down_and_do_not_add_to_it() -> None:
    assert now(
        'sglang:num_queue_reqs{priority=""} 5\n'
        'sglang:num_queue_reqs{priority="1"} 3\n'
        'sglang:num_queue_reqs{priority="2"} 2\n'
    ) == {"engine.queued_requests": 5}


def test_counters_of_priorities_and_streaming_add_up() -> None:
    before = 'sglang:num_requests_total{priority="1",is_streaming="true"} 10\n'
    after = (
        'sglang:num_requests_total{priority="1",is_streaming="true"} 30\n'
        'sglang:num_requests_total{priority="2",is_streaming="true"} 10\n'
        'sglang:num_requests_total{priority="2",is_streaming="false"} 20\n'
    )
    assert between(before, after) == {"engine.requests_per_s": 5}


def test_no_speculative_decoding_has_no_accept_length() -> None:
    assert now("sglang:spec_accept_length 0.0\n") == {}


def test_each_step_counts_where_the_server_tells_of_each() -> None:
    before = 'sglang:realtime_tokens_total{mode="decode"} 100\nsglang:generation_tokens_total 0\n'
    after = 'sglang:realtime_tokens_total{mode="decode"} 300\nsglang:generation_tokens_total 0\n'
    assert between(before, after) == {"engine.generation_tokens_per_s": 20}


def test_retractions_and_aborts_where_the_server_counts_them() -> None:
    before = "sglang:num_aborted_requests_total 1\n"
    after = "sglang:num_aborted_requests_total 2\nsglang:num_retracted_requests_total 5\n"
    assert between(before, after) == {"engine.aborted_requests_per_s": 0.1, "engine.retracted_requests_per_s": 0.5}


def test_mean_of_the_interval_not_of_the_life() -> None:
    for histogram, name in zip(LATENCIES, ("ttft", "itl", "e2e"), strict=True):
        before = f"sglang:{histogram}_seconds_sum 100\nsglang:{histogram}_seconds_count 1000\n"
        after = f"sglang:{histogram}_seconds_sum 102\nsglang:{histogram}_seconds_count 1004\n"
        assert between(before, after) == {f"engine.{name}_mean_s": 0.5}
        assert between(before, before) == {}


def test_share_of_cuda_graphs_among_the_decodes_of_the_interval() -> None:
    before = 'sglang:cuda_graph_passes_total{mode="decode_cuda_graph"} 100\n'
    after = (
        'sglang:cuda_graph_passes_total{mode="decode_cuda_graph"} 190\n'
        'sglang:cuda_graph_passes_total{mode="decode_none"} 10\n'
        'sglang:cuda_graph_passes_total{mode="prefill_none"} 50\n'
    )
    assert between(before, after) == {"engine.cuda_graph_ratio": 0.9}


def test_the_latest_batch_tells_of_cuda_graphs_only_where_nothing_counts_them() -> None:
    gauge = "sglang:is_cuda_graph 1\n"
    assert now(gauge) == {"engine.cuda_graph_ratio": 1}
    assert now(gauge + 'sglang:cuda_graph_passes_total{mode="decode_none"} 1\n') == {}


def test_stages_of_all_groups_add_up_to_one() -> None:
    """Of ranks that work as one the slower counts, once."""
    after = "".join(
        f'sglang:scheduler_stage_seconds_total{{category="{stage}",forward_overlap="{overlap}",'
        f'dp_rank="{dp}",tp_rank="{tp}"}} {seconds}\n'
        for stage, overlap, seconds in (("run_batch", "none", 2), ("run_batch", "full", 4), ("idle", "none", 4))
        for dp in (0, 1)
        for tp in (0, 1)
    ) + "".join(
        f'sglang:forward_execution_seconds_total{{category="decode",dp_rank="{dp}",tp_rank="0"}} 5\n' for dp in (0, 1)
    )
    assert between("", after) == {
        "engine.scheduler_idle_ratio": 0,
        "engine.scheduler_cpu_ratio": 0,
        "engine.scheduler_stage_ratio idle": 0.4,
        "engine.scheduler_stage_ratio run_batch": 0.6,
        "engine.forward_ratio decode": 0.5,
    }


def test_labels_from_the_page_are_few_and_plain() -> None:
    """They become series of the store."""
    names = [*(f"s{number:03}" for number in range(100)), "x" * 41, "a b", "\x01"]
    page_text = "".join(f'sglang:scheduler_stage_seconds_total{{category="{name}"}} 1\n' for name in names)
    found = [name for name in between("", page_text) if name.startswith("engine.scheduler_stage")]
    assert found == [f"engine.scheduler_stage_ratio s{number:03}" for number in range(32)]


def test_estimates_of_one_gpu_are_not_added_over_groups() -> None:
    after = "".join(f'sglang:estimated_flops_per_gpu_total{{dp_rank="{dp}"}} 4e13\n' for dp in (0, 1))
    assert between("", after) == {"engine.estimated_flops_per_s": 4e12}


def test_counter_that_goes_backwards_means_a_restart() -> None:
    before, after = page("sglang:num_requests_total 10\n"), page("sglang:num_requests_total 3\n")
    assert restarted(before, after)
    assert not restarted(after, before)
    assert not restarted(before, page("sglang:num_running_reqs 1\n"))  # not on this page


def test_sum_of_a_histogram_may_go_down_without_a_restart() -> None:
    before = "sglang:queue_time_seconds_sum 5\nsglang:queue_time_seconds_count 5\n"
    after = "sglang:queue_time_seconds_sum 4\nsglang:queue_time_seconds_count 6\n"
    assert not restarted(page(before), page(after))
    assert between(before, after) == {}  # a negative mean is none


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e999", "-1"])
def test_value_that_cannot_be_is_left_out(value: str) -> None:
    assert now(f"sglang:num_running_reqs {value}\nsglang:token_usage 0.5\n") == {"engine.kv_used_ratio": 0.5}
    assert between("sglang:num_requests_total 0\n", f"sglang:num_requests_total {value}\n") == {}


def test_sum_too_large_for_a_float_is_left_out() -> None:
    assert now('sglang:num_running_reqs{dp_rank="0"} 1e308\nsglang:num_running_reqs{dp_rank="1"} 1e308\n') == {}


def test_time_that_stands_still_has_no_rate() -> None:
    assert between("", "sglang:num_requests_total 5\n", elapsed_s=0) == {}


def test_every_name_asked_for_is_one_of_the_two_vocabularies() -> None:
    """Names that neither page has are those that appear at their first use."""
    seen = set(fixture("0.5.4")) | set(fixture("0.5.23"))
    text = " ".join(repr(source) for source in (*GAUGES, *INCREASES))
    rare = {
        "sglang:num_retracted_requests_total",
        "sglang:num_retracted_output_tokens_total",
        "sglang:num_aborted_requests_total",
        "sglang:forward_execution_seconds_total",
        "sglang:estimated_flops_per_gpu_total",
        "sglang:estimated_read_bytes_per_gpu_total",
        "sglang:estimated_write_bytes_per_gpu_total",
    }
    assert rare.isdisjoint(seen)
    assert all(f"'{name}'" in text for name in seen | rare)


VALUES = st.floats() | st.integers(-5, 5).map(float)
NAMES = st.sampled_from(sorted(set(fixture("0.5.23")) | set(fixture("0.5.4"))))
PAGES = st.dictionaries(
    NAMES,
    st.dictionaries(
        st.lists(
            st.tuples(
                st.sampled_from(["dp_rank", "mode", "priority", "tp_rank"]),
                st.sampled_from(["", "0", "decode", "prefill_compute"]),
            ),
            unique_by=lambda label: label[0],
        ).map(lambda labels: tuple(sorted(labels))),
        VALUES,
        max_size=4,
    ),
)


@given(PAGES, PAGES, st.floats(0, 1e6))
def test_no_pages_lead_to_an_error_or_an_impossible_reading(before: Page, after: Page, elapsed_s: float) -> None:
    restarted(before, after)
    readings = [*gauges("t", after), *increases("t", before, after, elapsed_s)]
    assert all(math.isfinite(reading.value) and reading.value >= 0 for reading in readings)
    by_name(readings)
