import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.engine_metrics import GAUGES, INCREASES, PARSER, gauges, increases, restarted
from cyclewatch.collectors.prometheus_text import Page
from cyclewatch.collectors.records import Reading

FIXTURES = Path(__file__).parents[2] / "fixtures/engine"
LATENCIES = ("time_to_first_token", "inter_token_latency", "e2e_request_latency")


def page(text: str) -> Page:
    return PARSER.parse(text.encode())


def fixture(version: str) -> Page:
    return PARSER.parse((FIXTURES / f"metrics-{version}.txt").read_bytes())


def by_name(readings: list[Reading]) -> dict[str, float]:
    found = {reading.name: reading.value for reading in readings}
    assert len(found) == len(readings)
    assert {reading.target for reading in readings} <= {"t"}
    assert not any(reading.labels for reading in readings)
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
    }
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
        }
    )


def test_readings_of_a_real_0_5_4() -> None:
    assert by_name(list(gauges("t", fixture("0.5.4")))) == {
        "engine.running_requests": 7,
        "engine.queued_requests": 0,
        "engine.kv_used_ratio": 0.02825927734375,
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
    rare = {"sglang:num_retracted_requests_total", "sglang:num_aborted_requests_total"}
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
